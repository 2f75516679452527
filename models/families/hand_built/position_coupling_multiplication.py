"""A hand-built transformer for multiplication with the two-stage scratchpad, in the manner of Theorem 4.1.

It is not in the paper, which trains its multipliers (Position Coupling, ICLR 2025, section 5). It has two layers, nine
heads, no norms, ReLU and no free parameters, for operands of up to ``max_digits`` digits each. Sequences and ids are as
in :mod:`models.tasks.named.position_coupling.multiplication`: products p_j of A and digit j of B, then running sums
c_j.

The first layer's heads look up tokens by coupled ids, with BOS as the sink of each (``HEADS`` is the table; k is the
column to be written, o the token just written). Stage 1 writes p_j[k], stage 2 writes c_j[k]:

    stage 1 (has a level-1 id)     OWN = A[k] B[j]                       PREVIOUS = A[k-1] B[j]
    stage 2 (has none)             OWN = p_j[k] + c_{j-1}[k]             PREVIOUS = p_j[k-1] + c_{j-1}[k-1]     shifted

Its MLP multiplies two digits, x y = sum_i relu(x + 9 [y >= i] - 9) over i = 1 ... 9, with [y >= i] looked up from B; in
stage 2 no digit of A is found, so the products are 0 and what the heads have added stays. Both stages then finish in
the same way.
The carry c into column k is the one number with PREVIOUS + (carry before) = 10 c + o, and the carry before is 0 ... 8,
so 10 c - 8 <= PREVIOUS - o <= 10 c, and

    G = 10 OWN + PREVIOUS - o    lies in  10 t - 8 ... 10 t    with  t = OWN + c = 0 ... 89.

The second layer's attention is idle; its MLP reads G and puts t mod 10 into SUM: one step between 10 t and 10 t + 2,
for each t < 89, takes 1 from digit t mod 10 and gives 1 to the next. (This is the paper's
g = PRE_SUM + (PRE_CARRY - NUM) / 10 in whole numbers: everything is exact in float32, float64 and float16. bfloat16 has
too few bits for G.)

Delimiters follow from what a head does *not* find, that is from the share of BOS, 1 instead of at most 1/2:

    A_SHARE      1 where A[k-1] is missing: after the last digit of a product (or after a delimiter)
    WIDTH_SHARE  1 where no product reaches column k: after the last digit of a sum
    LAST_SHARE   1 where B has no further digit: in the last product and in the last sum

    ended    = 2 A_SHARE + IS_DIGIT + HAS_1 - 3     1 after a product, at most 0 elsewhere
    summed   = 2 WIDTH_SHARE - 1 - HAS_1            1 after a sum
    last     = 2 LAST_SHARE - 1                     1 or 0
    PLUS     = relu(ended - last)                   EQUALS = relu(ended + last - 1)
    ARROW    = relu(summed - last)                  EOS    = relu(summed + last - 1)
    logits   = SUM for digits, 2 PLUS, 2 EQUALS, 2 ARROW, 2 EOS; 0 for "*"

SUM always names some digit, and a delimiter counts double, so that every next token is right by a margin of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.families.hand_built.construction import (
    Construction,
    bits,
    check_options,
    codes,
    construction_config,
    register_construction,
    residual_dims,
)
from models.tasks.named.position_coupling.multiplication import VOCABULARY, Multiplication
from models.transformer.config import Dtype, TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.weights import Weights

NAME = "multiplication-hand-built"
NINE = 9  # thresholds 1 ... 9 of a digit
LARGEST = 89  # 9 times 9 and a carry of 8


@dataclass(frozen=True)
class Head:
    """Where a head of the first layer looks, and what it copies.

    ``query`` and ``key`` name the position codes that must be equal. ``with_level`` and ``without_level`` restrict the
    keys to tokens with an id of that level, or without one. A ``second_stage`` head looks at BOS in the first stage,
    where it would otherwise find the query's own token. ``writes`` are (from, factor, to).
    """

    finds: str
    query: tuple[str, ...]
    key: tuple[str, ...]
    writes: tuple[tuple[str, float, str], ...]
    with_level: int | None = None
    without_level: int | None = None
    second_stage: bool = False


#: A key next to BOS gets half of the attention, so values count double.
HEADS = (
    Head("A[k]", ("NEXT_1",), ("POS_1",), (("NUM", 2.0, "A_OWN"),), without_level=2),
    Head("A[k-1]", ("POS_1",), ("POS_1",), (("NUM", 2.0, "A_PREVIOUS"), ("IS_BOS", 1.0, "A_SHARE")), without_level=2),
    Head("B[j]", ("POS_2",), ("POS_2",), (("AT_LEAST", 2.0, "B_AT_LEAST"),), without_level=3),
    Head("B[j+1]", ("NEXT_2",), ("POS_2",), (("IS_BOS", 1.0, "LAST_SHARE"),), without_level=3),
    Head("p_j[k]", ("NEXT_3", "POS_2"), ("POS_3", "POS_2"), (("NUM", 2.0, "OWN"),), with_level=1),
    Head(
        "p_j[k-1]", ("POS_3", "POS_2"), ("POS_3", "POS_2"), (("NUM", 2.0, "PREVIOUS"),), with_level=1, second_stage=True
    ),
    Head("c_{j-1}[k]", ("NEXT_3", "POS_2"), ("POS_3", "NEXT_2"), (("NUM", 2.0, "OWN"),), without_level=1),
    Head("c_{j-1}[k-1]", ("POS_3", "POS_2"), ("POS_3", "NEXT_2"), (("NUM", 2.0, "PREVIOUS"),), without_level=1),
    Head("column k of any p", ("NEXT_3",), ("POS_3",), (("IS_BOS", 1.0, "WIDTH_SHARE"),), with_level=1),
)


@dataclass(frozen=True)
class HandBuiltMultiplicationOptions:
    """How many digits each operand may have; the temperature of the scores; the dtype of all weights."""

    max_digits: int = 30
    eta: float = 16.0
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        check_options(self, "max_digits")
        if self.dtype == "bfloat16":
            raise UserError("bfloat16 does not hold the whole numbers up to 890 that this model counts with.")

    @property
    def highest_ids(self) -> tuple[int, int, int]:
        """The last id of each level: column M of a product, digit N of B, column M + N - 1 of a sum."""
        return self.max_digits + 2, self.max_digits, 2 * self.max_digits + 1

    @property
    def code_widths(self) -> tuple[int, ...]:
        """Bits of each level's codes: one id to spare, so that no token has the next code of the last id; and at least
        two, so that a key without a code is well below a match."""
        return tuple(max(2, bits(highest + 1)) for highest in self.highest_ids)


def multiplication_dims(code_widths: tuple[int, ...]) -> dict[str, slice]:
    """The residual stream's named dimensions, grouped by what writes them."""
    tokens = {"NUM": 1, "IS_DIGIT": 1, "IS_BOS": 1, "FULL_ONES": 1, "AT_LEAST": NINE}
    levels = {"HAS_1": 1, "HAS_2": 1, "HAS_3": 1}
    heads = {"A_OWN": 1, "A_PREVIOUS": 1, "B_AT_LEAST": NINE, "A_SHARE": 1, "LAST_SHARE": 1, "WIDTH_SHARE": 1}
    first_layer = {"OWN": 1, "PREVIOUS": 1}  # heads and MLP
    delimiters = {"PLUS": 1, "EQUALS": 1, "ARROW": 1, "EOS": 1}
    positions = {f"{kind}_{level}": P for level, P in enumerate(code_widths, 1) for kind in ("POS", "NEXT")}
    return residual_dims(tokens | levels | heads | first_layer | delimiters | {"SUM": 10} | positions)


def multiplication_config(options: HandBuiltMultiplicationOptions) -> TransformerConfig:
    widths, n = options.code_widths, options.max_digits
    return construction_config(
        options,
        n_layers=2,
        d_model=sum(place.stop - place.start for place in multiplication_dims(widths).values()),
        n_heads=len(HEADS),
        d_head=max(widths[1] + widths[2] + 2, NINE),
        d_mlp=2 * LARGEST,  # the first layer uses 22
        d_vocab=len(VOCABULARY),
        n_ctx=1 + 2 * (n + 1) + n * (n + 2) + n * (2 * n + 1),  # the whole sequence, EOS included
        n_position_levels=3,
        n_position_ids=max(options.highest_ids) + 1,
    )


class HandBuiltMultiplicationWeights(Construction):
    """The weights of the construction for multiplication."""

    def __init__(self, options: HandBuiltMultiplicationOptions = HandBuiltMultiplicationOptions()):
        dims = multiplication_dims(options.code_widths)
        super().__init__(multiplication_config(options), multiplication_weights(options, dims), options, dims)
        self.position_limits = tuple(options.highest_ids)


def multiplication_weights(options: HandBuiltMultiplicationOptions, dims: dict[str, slice]) -> Weights:
    """All weights in float64."""
    cfg = multiplication_config(options)
    W_E, W_pos = embeddings(options, dims, cfg)
    weights = {"embed.W_E": W_E, "pos_embed.W_pos": W_pos, "unembed.W_U": unembedding(dims, cfg)}
    attention = attention_weights(options, dims, cfg)
    for layer, mlp in enumerate((products_and_delimiters(), digit_of_sum())):
        for name, weight in zip(("W_Q", "W_K", "W_V", "W_O"), attention, strict=True):
            weights[in_block(layer, f"attn.{name}")] = weight if layer == 0 else torch.zeros_like(weight)
        weights |= {in_block(layer, f"mlp.{key}"): value for key, value in mlp_weights(mlp, dims, cfg).items()}
    weights["blocks.1.mlp.b_out"] = torch.zeros(cfg.d_model, dtype=torch.float64)
    weights["blocks.1.mlp.b_out"][dims["SUM"].start] = 1.0  # t = 0 until the first step
    return weights


def embeddings(
    options: HandBuiltMultiplicationOptions, dims: dict[str, slice], cfg: TransformerConfig
) -> tuple[Tensor, Tensor]:
    """``W_E``: a digit's value and which of 1 ... 9 it reaches. ``W_pos``: codes of the id and the next, HAS_level."""
    W_E = torch.zeros(cfg.d_vocab, cfg.d_model, dtype=torch.float64)
    values = torch.arange(10, dtype=torch.float64)
    W_E[:10, dims["NUM"]] = values[:, None]
    W_E[:10, dims["AT_LEAST"]] = (values[:, None] >= values[1:]).double()
    W_E[:10, dims["IS_DIGIT"]] = 1.0
    W_E[VOCABULARY.index("$"), dims["IS_BOS"]] = 1.0
    W_E[:, dims["FULL_ONES"]] = 1.0
    W_pos = torch.zeros(3, cfg.position_rows, cfg.d_model, dtype=torch.float64)
    for level, (highest, width) in enumerate(zip(options.highest_ids, options.code_widths, strict=True)):
        code = codes(width)
        W_pos[level, 1 : highest + 1, dims[f"POS_{level + 1}"]] = code[:highest]
        W_pos[level, 1 : highest + 1, dims[f"NEXT_{level + 1}"]] = code[1 : highest + 1]
        W_pos[level, 1 : highest + 1, dims[f"HAS_{level + 1}"]] = 1.0
    return W_E, W_pos


def attention_weights(
    options: HandBuiltMultiplicationOptions, dims: dict[str, slice], cfg: TransformerConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``W_Q``, ``W_K``, ``W_V``, ``W_O`` of the first layer.

    A score is eta times (agreeing code bits - others, 2 for the level a key must have, -2 for one it must not have).
    BOS scores what a full match does, and 2 more for second-stage heads in the first stage. All scores are multiples
    of eta, so every other key is at least 2 eta below.
    """
    W_Q = torch.zeros(cfg.n_heads, cfg.d_model, cfg.d_head, dtype=torch.float64)
    W_K, W_V, W_O = torch.zeros_like(W_Q), torch.zeros_like(W_Q), torch.zeros_like(W_Q).transpose(1, 2).contiguous()
    at = {name: place.start for name, place in dims.items()}
    for i, head in enumerate(HEADS):
        column = 0
        for query, key in zip(head.query, head.key, strict=True):
            width = dims[query].stop - dims[query].start
            W_Q[i, dims[query], column : column + width] = options.eta * torch.eye(width, dtype=torch.float64)
            W_K[i, dims[key], column : column + width] = torch.eye(width, dtype=torch.float64)
            column += width
        match = float(column)
        W_Q[i, at["FULL_ONES"], column] = options.eta
        if head.with_level is not None:
            W_K[i, at[f"HAS_{head.with_level}"], column] = 2.0
            match += 2.0
        if head.without_level is not None:
            W_K[i, at[f"HAS_{head.without_level}"], column] = -2.0
        W_K[i, at["IS_BOS"], column] = match
        if head.second_stage:
            W_Q[i, at["HAS_1"], column + 1], W_K[i, at["IS_BOS"], column + 1] = options.eta, 2.0
        place = 0
        for value, factor, output in head.writes:
            for offset in range(dims[value].stop - dims[value].start):
                W_V[i, at[value] + offset, place] = factor
                W_O[i, place, at[output] + offset] = 1.0
                place += 1
    return W_Q, W_K, W_V, W_O


@dataclass(frozen=True)
class Unit:
    """``relu(reads . x + bias)``, written with weights; dimensions are (name, place)."""

    reads: dict[tuple[str, int], float]
    bias: float
    writes: dict[tuple[str, int], float]


def products_and_delimiters() -> list[Unit]:
    """The first layer's MLP: A[k] B[j] to OWN, A[k-1] B[j] to PREVIOUS, and the four delimiters."""
    units = [
        Unit({(digit, 0): 1.0, ("B_AT_LEAST", i): float(NINE)}, -float(NINE), {(output, 0): 1.0})
        for digit, output in (("A_OWN", "OWN"), ("A_PREVIOUS", "PREVIOUS"))
        for i in range(NINE)
    ]
    ended = {("A_SHARE", 0): 2.0, ("IS_DIGIT", 0): 1.0, ("HAS_1", 0): 1.0}, -3.0  # reads, bias
    summed = {("WIDTH_SHARE", 0): 2.0, ("HAS_1", 0): -1.0}, -1.0
    for (reads, bias), more, no_more in ((ended, "PLUS", "EQUALS"), (summed, "ARROW", "EOS")):
        units.append(Unit(reads | {("LAST_SHARE", 0): -2.0}, bias + 1.0, {(more, 0): 1.0}))
        units.append(Unit(reads | {("LAST_SHARE", 0): 2.0}, bias - 2.0, {(no_more, 0): 1.0}))
    return units


def digit_of_sum() -> list[Unit]:
    """The second layer's MLP: 89 steps of two units each, which move a one from a digit to the next."""
    G = {("OWN", 0): 10.0, ("PREVIOUS", 0): 1.0, ("NUM", 0): -1.0}
    units = []
    for t in range(LARGEST):
        for knot, slope in ((10.0 * t, 0.5), (10.0 * t + 2.0, -0.5)):
            units.append(Unit(G, -knot, {("SUM", t % 10): -slope, ("SUM", (t + 1) % 10): slope}))
    return units


def mlp_weights(units: list[Unit], dims: dict[str, slice], cfg: TransformerConfig) -> dict[str, Tensor]:
    """``W_in``, ``b_in`` and ``W_out`` of these units; the rest of d_mlp is zero."""
    W_in = torch.zeros(cfg.d_model, cfg.d_mlp, dtype=torch.float64)
    b_in = torch.zeros(cfg.d_mlp, dtype=torch.float64)
    W_out = torch.zeros(cfg.d_mlp, cfg.d_model, dtype=torch.float64)
    for i, unit in enumerate(units):
        for (name, place), weight in unit.reads.items():
            W_in[dims[name].start + place, i] = weight
        b_in[i] = unit.bias
        for (name, place), weight in unit.writes.items():
            W_out[i, dims[name].start + place] = weight
    return {"W_in": W_in, "b_in": b_in, "W_out": W_out}


def unembedding(dims: dict[str, slice], cfg: TransformerConfig) -> Tensor:
    """The unembedding: SUM for the digits; delimiters count double, so that they win over the digit in SUM."""
    W_U = torch.zeros(cfg.d_model, cfg.d_vocab, dtype=torch.float64)
    W_U[dims["SUM"], :10] = torch.eye(10, dtype=torch.float64)
    for name, token in (("PLUS", "+"), ("EQUALS", "="), ("ARROW", ">"), ("EOS", "$")):
        W_U[dims[name], VOCABULARY.index(token)] = 2.0
    return W_U


def multiplication_task(max_digits: int, **unused: Any) -> Multiplication:
    """The task with the model's limit; its first shape is the paper's example, two digits times three."""
    return Multiplication(min(2, max_digits), min(3, max_digits), max_digits=max_digits)


register_construction(
    NAME,
    HandBuiltMultiplicationWeights,
    HandBuiltMultiplicationOptions,
    multiplication_task,
    source="In the manner of Position Coupling (ICLR 2025), Theorem 4.1, for its section 5",
)
