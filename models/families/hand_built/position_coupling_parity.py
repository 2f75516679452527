"""A hand-built transformer for parity with the scratchpad of running parities, in the manner of Theorem 4.1.

It is not in the paper, which trains its parity models (Position Coupling, ICLR 2025, section 3); the codes, the tie
with BOS and the way to see the end are those of its appendix D. It has one layer, one head, three hidden units, no
norms and no free parameters, for strings of up to ``max_bits`` bits. Position ids
(:mod:`models.tasks.named.position_coupling.parity`) are 1 for ``=``, and k + 1 for bit k of the query and of the
scratchpad.

    x        = W_E[token] + W_pos[p]            NUM, IS_BOS, FULL_ONES; v_p in POS, v_{p+1} in NEXT; 0 for BOS
    q.k      = eta P if the key is the query's next id or BOS, <= eta (P - 2) else      v in {-1, 1}^P (equation 3)
    head     looks at {BOS, bit k + 1 of the query}: BIT = 2 NUM, SHARE = that of BOS, 1/2; or 1 after the last bit
    PARITY   = relu(NUM + BIT) - 2 relu(NUM + BIT - 1)      exclusive or of the token itself and the bit
    END      = 2 relu(SHARE - 1/2)
    logits   = -PARITY for "0", PARITY - 1 for "1", -1 for "=", 2 END - 1 for "$"       each right by 1

The token itself is the running parity so far (``=`` counts as 0). One id is left to spare, so that the next code of the
last one does not wrap around to that of ``=``. A query is multiplied by eta and a key by 1, not both by sqrt(eta): with
eta a power of two every score is exact in half precision too, and so is the tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.families.hand_built.construction import (
    Construction,
    bits,
    check_options,
    codes,
    construction_config,
    register_construction,
    residual_dims,
)
from models.tasks.named.position_coupling.parity import VOCABULARY, Parity
from models.transformer.config import Dtype, TransformerConfig
from models.transformer.parts.weights import Weights, under

NAME = "parity-hand-built"


@dataclass(frozen=True)
class HandBuiltParityOptions:
    """How many bits a query may have; the temperature of the scores; the dtype of all weights."""

    max_bits: int = 100
    eta: float = 16.0
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        check_options(self, "max_bits")

    @property
    def highest_id(self) -> int:
        return self.max_bits + 1

    @property
    def code_width(self) -> int:
        """P, the bits of a position code: at least two, so that a key without a code is well below a match too."""
        return max(2, bits(self.highest_id + 1))


def parity_dims(code_width: int) -> dict[str, slice]:
    """The residual stream's named dimensions: what tokens bring, what the head writes, what the MLP writes, codes."""
    single = ("NUM", "IS_BOS", "FULL_ONES", "BIT", "SHARE", "PARITY", "END")
    return residual_dims({name: 1 for name in single} | {"POS": code_width, "NEXT": code_width})


def parity_config(options: HandBuiltParityOptions) -> TransformerConfig:
    P = options.code_width
    return construction_config(
        options,
        n_layers=1,
        d_model=7 + 2 * P,
        n_heads=1,
        d_head=P + 1,
        d_mlp=3,
        d_vocab=len(VOCABULARY),
        n_ctx=2 * options.max_bits + 3,  # the whole sequence, EOS included
        n_position_ids=options.highest_id + 1,
    )


class HandBuiltParityWeights(Construction):
    """The weights of the construction for parity."""

    def __init__(self, options: HandBuiltParityOptions = HandBuiltParityOptions()):
        dims = parity_dims(options.code_width)
        super().__init__(parity_config(options), parity_weights(options, dims), options, dims)


def parity_weights(options: HandBuiltParityOptions, dims: dict[str, slice]) -> Weights:
    """All weights in float64."""
    cfg, P, eta = parity_config(options), options.code_width, options.eta
    at = {name: place.start for name, place in dims.items()}
    zeros = lambda *shape: torch.zeros(shape, dtype=torch.float64)  # noqa: E731

    W_E = zeros(cfg.d_vocab, cfg.d_model)
    W_E[VOCABULARY.index("1"), at["NUM"]] = 1.0
    W_E[VOCABULARY.index("$"), at["IS_BOS"]] = 1.0
    W_E[:, at["FULL_ONES"]] = 1.0

    code, highest = codes(P), options.highest_id
    W_pos = zeros(1, cfg.position_rows, cfg.d_model)
    W_pos[0, 1:, dims["POS"]] = code[:highest]
    W_pos[0, 1:, dims["NEXT"]] = code[1 : highest + 1]

    W_Q, W_K, W_V, W_O = (zeros(1, *shape) for shape in [(cfg.d_model, cfg.d_head)] * 3 + [(cfg.d_head, cfg.d_model)])
    W_Q[0, dims["NEXT"], :P] = eta * torch.eye(P, dtype=torch.float64)
    W_K[0, dims["POS"], :P] = torch.eye(P, dtype=torch.float64)
    W_Q[0, at["FULL_ONES"], P], W_K[0, at["IS_BOS"], P] = eta, float(P)
    for column, (value, factor, output) in enumerate((("NUM", 2.0, "BIT"), ("IS_BOS", 1.0, "SHARE"))):
        W_V[0, at[value], column] = factor
        W_O[0, column, at[output]] = 1.0

    W_in, W_out = zeros(cfg.d_model, cfg.d_mlp), zeros(cfg.d_mlp, cfg.d_model)
    for name in ("NUM", "BIT"):
        W_in[at[name], 0] = W_in[at[name], 1] = 1.0
    W_in[at["SHARE"], 2] = 1.0
    W_out[0, at["PARITY"]], W_out[1, at["PARITY"]], W_out[2, at["END"]] = 1.0, -2.0, 2.0

    W_U = zeros(cfg.d_model, cfg.d_vocab)
    W_U[at["PARITY"], VOCABULARY.index("0")], W_U[at["PARITY"], VOCABULARY.index("1")] = -1.0, 1.0
    W_U[at["END"], VOCABULARY.index("$")] = 2.0
    weights = {"embed.W_E": W_E, "pos_embed.W_pos": W_pos}
    weights |= under("blocks.0.attn", W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O)
    weights |= under("blocks.0.mlp", W_in=W_in, b_in=_vector(0.0, -1.0, -0.5), W_out=W_out)
    return weights | under("unembed", W_U=W_U, b_U=_vector(0.0, -1.0, -1.0, -1.0))


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def parity_task(max_bits: int, **unused: Any) -> Parity:
    """The task with the model's limit; its first shape is the paper's example, four bits."""
    return Parity(min(4, max_bits), max_bits=max_bits)


register_construction(
    NAME,
    HandBuiltParityWeights,
    HandBuiltParityOptions,
    parity_task,
    source="In the manner of Position Coupling (ICLR 2025), Theorem 4.1, for its section 3",
)
