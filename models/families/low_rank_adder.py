"""The 456-parameter adder and the models on the way to it ("A 456-Parameter Transformer Solves 10-Digit Addition").

One layer, one head, d_model = d_head = 7, 14 hidden units, no biases outside LayerNorm, the unembedding tied to the
token embedding. From 763 to 456 parameters, the matrices are factored further and further:

    x_t    = E[token] + P_t                           P = P_A P_B (33 x 3, 3 x 7); 763: a full table
    q_t    = n(x_t) A B_q,  k_t = v_t = n(x_t) A B_kv  456; 491, 512, 582: three B's with one A; 763: full
    a_tj   = softmax over j <= t of q_t . k_j / sqrt 7
    y_t    = x_t + (sum_j a_tj v_j) U V               rank 2 (456), 3, or full (763)
    y'_t   = y_t + gelu(n(y_t) W_in) W_out            rank 3 each; 582 and 763: full
    logit  = E n(y'_t)

n is RMSNorm with eps 1e-8 (456, 491) or LayerNorm with eps 1e-5 (512, 582, 763); each of the three norms has its own
weights. Unlike MicroAdder's, these digits have different norms, and queries and keys read tokens as well as positions:
the attention pattern depends on the numbers that are added.

The paper counts 33 positions; the zero row that follows them is not a parameter, and nothing reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from models.registry import ModelSpec, register
from models.tasks.named.adder_test_sets import VALIDATION_SIZE
from models.tasks.named.addition import PaddedAddition
from models.training.recipes import Recipe, add_recipe
from models.training.ten_digit_problems import VariedLengthProblems
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, under
from models.weight_maps.low_rank import Factors, thin_normal_
from models.weight_maps.weight_map import WeightMap, fill_, normal_

D_MODEL, D_MLP, D_VOCAB, POSITIONS = 7, 14, 14, 33
STD = 0.02  # standard deviation of embeddings and full matrices


@dataclass(frozen=True)
class LowRankOptions:
    """Ranks (None: a full matrix), and the two changes that came with 491 and 456 (paper, section 2)."""

    position_rank: int | None = None
    qkv_rank: int | None = None
    out_rank: int | None = None
    mlp_rank: int | None = None
    normalization_type: Literal["LN", "RMS"] = "LN"
    tie_kv: bool = False  # K = V; Q, K and V share their first factor in any case


class CountedPart(NamedTuple):
    """One line of the paper's tables: a component, how it is written, how many numbers it has."""

    component: str
    factorisation: str
    parameters: int


def low_rank_config(options: LowRankOptions) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        d_model=D_MODEL,
        n_heads=1,
        d_head=D_MODEL,
        d_mlp=D_MLP,
        d_vocab=D_VOCAB,
        n_ctx=POSITIONS + 1,
        act_fn="gelu",
        normalization_type=options.normalization_type,
        eps=1e-8 if options.normalization_type == "RMS" else 1e-5,
    )


class LowRankAdderWeights(WeightMap):
    """The parameters of one model of the family; :meth:`parts` counts them as the paper's tables do."""

    def __init__(self, options: LowRankOptions):
        super().__init__(low_rank_config(options))
        self.options = options
        self.W_E = nn.Parameter(torch.zeros(D_VOCAB, D_MODEL))
        self.pos = Factors(POSITIONS, D_MODEL, options.position_rank)
        for norm in ("ln1", "ln2", "ln_final"):
            self.register_parameter(f"{norm}_w", nn.Parameter(torch.ones(D_MODEL)))
            if options.normalization_type == "LN":
                self.register_parameter(f"{norm}_b", nn.Parameter(torch.zeros(D_MODEL)))
        self.qkv = Factors(D_MODEL, (2 if options.tie_kv else 3) * D_MODEL, options.qkv_rank)
        self.out = Factors(D_MODEL, D_MODEL, options.out_rank)
        self.mlp_in = Factors(D_MODEL, D_MLP, options.mlp_rank)
        self.mlp_out = Factors(D_MLP, D_MODEL, options.mlp_rank)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw embeddings, full matrices and factors of the position table from N(0, 0.02^2), and other factors of
        r x c numbers from N(0, 2 / (r + c)), where Q, K and V count as one matrix unless K and V are tied. Norms are 1
        (and 0)."""
        normal_(self.W_E, STD, generator)
        self.pos.initialise_table(STD, generator)
        if self.options.tie_kv and self.options.qkv_rank is not None:  # B_q and B_kv are two factors of their own
            for factor in (self.qkv.A, *self.qkv.B.split(D_MODEL, 1)):
                thin_normal_(factor, generator)
        else:
            self.qkv.initialise_linear(STD, generator)
        for matrix in (self.out, self.mlp_in, self.mlp_out):
            matrix.initialise_linear(STD, generator)
        for name, parameter in self.named_parameters():
            if name.startswith("ln"):
                fill_(parameter, 1.0 if name.endswith("_w") else 0.0)

    def forward(self) -> Weights:
        q, k, *v = self.qkv().split(D_MODEL, 1)
        weights = {"embed.W_E": self.W_E, "pos_embed.W_pos": F.pad(self.pos(), (0, 0, 0, 1))}
        value = v[0] if v else k
        weights |= under("blocks.0.attn", W_Q=q[None], W_K=k[None], W_V=value[None], W_O=self.out()[None])
        weights |= under("blocks.0.mlp", W_in=self.mlp_in(), W_out=self.mlp_out())
        weights["unembed.W_U"] = self.W_E.T
        for norm, place in (("ln1", "blocks.0.ln1"), ("ln2", "blocks.0.ln2"), ("ln_final", "ln_final")):
            weights[f"{place}.w"] = getattr(self, f"{norm}_w")
            if self.options.normalization_type == "LN":
                weights[f"{place}.b"] = getattr(self, f"{norm}_b")
        return weights | self._factors()

    def _factors(self) -> Weights:
        """The factors of W_K and W_O, for the training kernel."""
        factors = {}
        if self.options.qkv_rank is not None:
            factors = {"W_K_left": self.qkv.A[None], "W_K_right": self.qkv.B[:, D_MODEL : 2 * D_MODEL][None]}
        if self.options.out_rank is not None:
            factors |= {"W_O_left": self.out.A[None], "W_O_right": self.out.B[None]}
        return under("blocks.0.attn", **factors)

    def parts(self) -> list[CountedPart]:
        """The lines of the paper's Tables 1 and 4, counted on the parameters themselves."""

        def counted(component: str, written: str, *prefixes: str) -> CountedPart:
            found = [p.numel() for name, p in self.named_parameters() if name.startswith(prefixes)]
            return CountedPart(component, written, sum(found))

        norm = "weight and bias" if self.options.normalization_type == "LN" else "weight only"
        rank = self.options.qkv_rank
        tied = f"A: 7x{rank}; B_q: {rank}x7; B_kv: {rank}x7"
        return [
            counted("Token embedding (tied)", f"{D_VOCAB}x{D_MODEL}", "W_E"),
            counted("Position embedding", self.pos.describe(), "pos."),
            counted("Norm before attention", norm, "ln1_"),
            counted("QKV projection", tied if self.options.tie_kv else self.qkv.describe(), "qkv."),
            counted("Attention output", self.out.describe(), "out."),
            counted("Norm before the MLP", norm, "ln2_"),
            counted("MLP up", self.mlp_in.describe(), "mlp_in."),
            counted("MLP down", self.mlp_out.describe(), "mlp_out."),
            counted("Final norm", norm, "ln_final_"),
            CountedPart("Output head", "tied with the token embedding", 0),
        ]


OPTIONS: dict[str, LowRankOptions] = {
    "adder-763": LowRankOptions(),
    "adder-582": LowRankOptions(3, 3, 3, None),
    "adder-512": LowRankOptions(3, 3, 3, 3),
    "adder-491": LowRankOptions(3, 3, 3, 3, "RMS"),
    "adder-456": LowRankOptions(3, 3, 2, 3, "RMS", tie_kv=True),
}


RECIPE = Recipe(  # section 1.2
    steps=54_000,
    batch_size=512,
    warmup_steps=1_350,
    problems=VariedLengthProblems(),
    eval_every=1_000,
    validation_size=VALIDATION_SIZE,
    stop_after_perfect=None,  # as in the paper, whose curves go to the last step
)
add_recipe("adder-456", RECIPE)
LARGER = add_recipe("adder-512", RECIPE.replace(steps=27_000))  # section 1.3; the larger models


for _name, _options in OPTIONS.items():
    register(
        ModelSpec(
            name=_name,
            weight_map=partial(LowRankAdderWeights, _options),
            task=PaddedAddition,
            recipe=RECIPE if _options.normalization_type == "RMS" else LARGER,
            source="A 456-Parameter Transformer Solves 10-Digit Addition (2026), tables 1 and 4",
        )
    )

#: Section 2.3: the matrices that the paper says cannot have rank 2, one at a time in the model of 456 parameters.
RANK_2 = {"adder-456-rank-2-qkv": {"qkv_rank": 2}, "adder-456-rank-2-mlp": {"mlp_rank": 2}}
for _name, _changes in RANK_2.items():
    register(
        ModelSpec(
            name=_name,
            weight_map=partial(LowRankAdderWeights, replace(OPTIONS["adder-456"], **_changes)),
            task=PaddedAddition,
            recipe=RECIPE,
            source="A 456-Parameter Transformer Solves 10-Digit Addition (2026), section 2.3",
            sweep=True,
        )
    )
