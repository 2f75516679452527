"""Hand-built transformers for addition modulo p: a clock, a pizza and a table, the programs of a modular adder.

One layer, ReLU units, no norms and no free parameters, over the tokens ``a b =``. With the angles ``w_k a = 2 pi k a /
p`` of a few frequencies k:

    clock    heads copy a and b apart; units relu(cos(w a - s) + cos(w b - t)) for all s, t on a grid of angles, read
             with the weight cos(s + t - w c):  logit_c ~ sum_k cos(w_k (a + b - c))
    pizza    one head copies their mean, whose angle is half of w (a + b); units relu(mean . e(s)), read with the weight
             cos(2 s - w c):  logit_c ~ sum_k |cos(w_k (a - b) / 2)| cos(w_k (a + b - c))
    table    heads copy a and b, one-hot; unit (a, b) is 1 for this pair alone, and writes a + b

The clock's logits do not depend on a - b, since the sum over the grid keeps one Fourier component in each of the two
angles. The pizza reads nothing but the mean: its logits are small where a - b is close to p / 2 in all frequencies.
Source of the two names: Nanda et al. 2023; Zhong et al. 2023, "The Clock and the Pizza".

These are the controls of questions about trained modular adders: which program a model runs is known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from math import pi
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.families.hand_built.construction import Construction, check_options, register_construction, residual_dims
from models.families.modular import modular_task
from models.tasks.formats.formatted_task import FormattedTask
from models.transformer.config import Dtype, TransformerConfig
from models.transformer.parts.weights import Weights, under

FREQUENCIES = 3
GRID = 12  # angles on a turn, in each of the clock's two and the pizza's one dimension
FAR = 60.0  # the score of a key that a head does not look at lies so far below

Program = Literal["clock", "pizza", "table"]


@dataclass(frozen=True)
class ModularOptions:
    """The modulus (an odd number from 5 on), the scale of the scores, and the dtype of all weights."""

    p: int = 59
    eta: float = FAR
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        check_options(self, "p")
        if self.p < 5 or self.p % 2 == 0:
            raise UserError(f"p must be an odd number from 5 on, not {self.p}.")


def _task(p: int, **unused: Any) -> FormattedTask:
    return modular_task(p)


@cache
def frequencies(p: int, n: int = FREQUENCIES) -> tuple[int, ...]:
    """The ``n`` frequencies whose cosines tell wrong answers best apart from the right one: those with the largest
    ``min over d of sum_k (1 - cos(2 pi k d / p))``. Multiplying all by one number changes nothing: the first is 1."""
    wrong = torch.arange(1, p, dtype=torch.float64)
    lack = {k: 1 - (2 * pi * k * wrong / p).cos() for k in range(1, p // 2 + 1)}
    others = combinations(range(2, p // 2 + 1), min(n, p // 2) - 1)
    return max(
        ((1, *rest) for rest in others), key=lambda chosen: float(torch.stack([lack[k] for k in chosen]).sum(0).min())
    )


def _circles(p: int) -> Float[Tensor, "number coordinate"]:
    """[cos w_k n, sin w_k n] of every number, frequency by frequency."""
    angle = 2 * pi * torch.arange(p, dtype=torch.float64)[:, None] * torch.tensor(frequencies(p)) / p
    return torch.stack((angle.cos(), angle.sin()), -1).flatten(1)


def _units(program: Program, p: int) -> tuple[Tensor, Tensor, Tensor]:
    """What the MLP's units read of a and of b (or of their mean), [coordinate, unit], and what they write."""
    turns = 2 * pi * torch.arange(GRID, dtype=torch.float64) / GRID
    s, t = torch.cartesian_prod(turns, turns).T if program == "clock" else (turns, turns)
    circle = lambda angle: torch.stack((angle.cos(), angle.sin()))  # noqa: E731
    each = len(frequencies(p))
    reads = [torch.block_diag(*[circle(angle)] * each) for angle in (s, t)]
    return reads[0], reads[1], torch.block_diag(*[circle(s + t).T / len(s)] * each)


def modular_weights(program: Program, options: ModularOptions) -> tuple[TransformerConfig, Weights, dict[str, slice]]:
    """(config, all weights in float64, names of the residual dimensions)."""
    p = options.p
    one_hot = torch.eye(p, dtype=torch.float64)
    numbers = one_hot if program == "table" else _circles(p)
    width = numbers.shape[1]
    dims = residual_dims({"NUMBER": width, "FIRST": 1, "SECOND": 1, "EQUALS": 1, "A": width, "B": width, "SUM": width})
    n_heads, d_model = (1 if program == "pizza" else 2), dims["SUM"].stop
    zeros = lambda *shape: torch.zeros(shape, dtype=torch.float64)  # noqa: E731

    W_E, W_pos = zeros(p + 1, d_model), zeros(3, d_model)
    W_E[:p, dims["NUMBER"]] = numbers
    for position, name in enumerate(("FIRST", "SECOND", "EQUALS")):
        W_pos[position, dims[name]] = 1.0
    W_Q, W_K, W_V = (zeros(n_heads, d_model, width) for _ in range(3))
    W_O = zeros(n_heads, width, d_model)
    for head in range(n_heads):
        if program != "pizza":  # whose head looks at all three tokens alike, and takes nothing from "="
            W_Q[head, dims["EQUALS"], 0] = options.eta
            W_K[head, dims[("FIRST", "SECOND")[head]], 0] = 1.0
        W_V[head, dims["NUMBER"]] = torch.eye(width, dtype=torch.float64)
        W_O[head, :, dims["AB"[head]]] = torch.eye(width, dtype=torch.float64)

    if program == "table":
        pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
        of_a, of_b, writes = one_hot[:, pairs[:, 0]], one_hot[:, pairs[:, 1]], one_hot[pairs.sum(1) % p]
    else:
        of_a, of_b, writes = _units(program, p)
    W_in = zeros(d_model, of_a.shape[1])
    W_in[dims["A"]] = of_a
    if program != "pizza":
        W_in[dims["B"]] = of_b
    W_out = zeros(of_a.shape[1], d_model)
    W_out[:, dims["SUM"]] = writes
    W_U = zeros(d_model, p + 1)
    W_U[dims["SUM"], :p] = numbers.T
    config = TransformerConfig(
        n_layers=1, d_model=d_model, n_heads=n_heads, d_head=width, d_mlp=of_a.shape[1], d_vocab=p + 1, n_ctx=3,
        act_fn="relu", normalization_type=None, attn_scale=1.0, dtype=options.dtype,
    )  # fmt: skip
    weights = {"embed.W_E": W_E, "pos_embed.W_pos": W_pos, "unembed.W_U": W_U}
    weights |= under("blocks.0.attn", W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O)
    b_in = torch.full((of_a.shape[1],), -1.0 if program == "table" else 0.0, dtype=torch.float64)
    b_U = torch.cat((zeros(p), torch.full((1,), -FAR, dtype=torch.float64)))  # "=" is never an answer
    return config, weights | under("blocks.0.mlp", W_in=W_in, b_in=b_in, W_out=W_out) | {"unembed.b_U": b_U}, dims


class HandBuiltModularWeights(Construction):
    """The weights of one of the three programs."""

    def __init__(self, program: Program, options: ModularOptions):
        config, weights, dims = modular_weights(program, options)
        super().__init__(config, weights, options, dims)


@dataclass(frozen=True)
class TableOptions(ModularOptions):
    """Of p squared units."""

    p: int = 13


SOURCE = "The program of Nanda et al. 2023 and Zhong et al. 2023 (modular addition)"
_PROGRAMS: Mapping[Program, tuple[type, str]] = {
    "clock": (ModularOptions, SOURCE),
    "pizza": (ModularOptions, SOURCE),
    "table": (TableOptions, "A table of all sums"),
}
for _program, (_options, _source) in _PROGRAMS.items():
    register_construction(
        f"modular-{_program}-hand-built", partial(HandBuiltModularWeights, _program), _options, _task, _source
    )
