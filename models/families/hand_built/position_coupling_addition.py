"""The hand-built Position Coupling transformer (Position Coupling, ICLR 2025, Theorem 4.1 and appendix D).

One layer, four heads of value width 1, no norms, ReLU, unscaled scores, no free parameters: ``d = 2 (P1 + P2) + 19``.
It adds up to m numbers of up to n digits with the scratchpad of running sums
(:mod:`models.tasks.named.position_coupling.multi_addition`); with ``l = n + 1 + floor(log10 m)`` the level-1 ids run
from 1 to ``l + 1`` and the level-2 ids from 1 to ``m + 1``.

    x        = W_E[token] + W_pos[0, p1] + W_pos[1, p2]                  W_pos[., 0] = 0, for BOS
    W_pos    = v_p in POS and v_{p+1} in POS_NEXT, v_k in {-1, 1}^P the bits of k - 1      (equations 3, 5, 6)
    q.k      = eta P if key and query ids match or the key is BOS, <= eta (P - 2) else     (equations 7, 8, ...)
    head 1   PRE_SUM    3 NUM over {BOS, a_i[k], b_{i-1}[k]}: their sum, where digit k of b_i is to come
    head 2   PRE_CARRY  3 NUM over {BOS, a_i[k-1], b_{i-1}[k-1]}
    head 3   PRE_ARROW  BOS over {BOS and every digit of significance k}: 1 after the last digit, at most 1/2 before
    head 4   PRE_EOS    BOS over {BOS, the token itself, digit k-1 of a_{i+1}}: 1/2 in b_m, 1/3 mostly before
    g        = PRE_SUM + (PRE_CARRY - NUM) / 10 + 0.21                   digit sum, plus 1 if a carry came in
    SUM[k]   = f_k(g): 1 on [k, k + 1/2] and [k + 10, k + 10.5], 0 beyond half a unit from them
    ARROW    = 2 relu(PRE_ARROW - 1/2)
    EOS      = 2 relu(PRE_ARROW - 1/2) + 6 relu(PRE_EOS - 1/3) - 1
    logits   = SUM, 10 ARROW for ">", 100 EOS for "$"                    (Table 24)

Where this departs from the text, and why:

* **Ids.** The text takes ``l + 1 <= 2^P1`` and lets the NEXT code of id ``2^P1`` wrap around to ``v_1``. In the case of
  equality head 3 then finds the delimiters (id 1) after every last digit and misses every ">" and EOS. What is needed
  is ``l + 2 <= 2^P1``, or a zero NEXT code at the last id; ``last_next`` chooses. (The stated sufficient bound
  ``P1 >= log2 l`` is smaller still: at l = 2^P1 the ids do not even fit.) The wrap of level 2 is harmless: only
  digits of b_m have the last id, and the queries that would match them come before. Equations 17-18 mean V_3, U_3.
* **Temperature.** "Arbitrarily large" eta fails in floating point: above, the tie with BOS breaks, and below, attention
  leaks. At 30 x 30 in float32, wrong answers were measured up to eta = 2.8 and, among integers, from 2997 on.
* **The tie with BOS.** BOS must score exactly what a match scores. ``sqrt(eta P)`` in W_Q and W_K, as the text has it,
  is rounded. In float32 the tie is then off by at most a unit in the last place (11 bits: 1.5e-5), which has no effect,
  but in bfloat16 and float16 that unit is a whole score (P = 3, 7, 12, 14 bits in both: no EOS right). There a power of
  two in W_Q and the exact rest in W_K replace the two roots: ``bos_tie``.
* **Hidden units.** The text has 8 units per digit, 1 for ARROW and 2 for EOS, 83 in all. f_0 ... f_9 share their knots,
  and ARROW and EOS share a unit, so that 44 compute the same function. ``hidden="paper"`` gives the 83.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
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
from models.tasks.named.position_coupling.multi_addition import VOCABULARY, MultiOperandAddition, padded_length
from models.transformer.config import Dtype, TransformerConfig
from models.transformer.parts.weights import Weights, under

NAME = "position-coupling-hand-built"
LastNext = Literal["wrap", "zero", "paper"]
Hidden = Literal["shared", "paper"]
BosTie = Literal["paper", "split"]
#: What each head reads and writes: query code of level 1, key and query code of level 2 (none for head 3, whose score
#: is over P1 coordinates), value, factor, output.
HEADS = (
    ("POS_1_NEXT", ("POS_2", "POS_2_NEXT"), "NUM", 3.0, "PRE_SUM"),
    ("POS_1", ("POS_2", "POS_2_NEXT"), "NUM", 3.0, "PRE_CARRY"),
    ("POS_1_NEXT", None, "IS_BOS", 1.0, "PRE_ARROW"),
    ("POS_1", ("POS_2", "POS_2"), "IS_BOS", 1.0, "PRE_EOS"),
)
#: f_k(x) = sum of slope * relu(x - (k + knot)): section D.6.1.
TRAPEZOIDS = ((-0.5, 2), (0, -2), (0.5, -2), (1, 2), (9.5, 2), (10, -2), (10.5, -2), (11, 2))


@dataclass(frozen=True)
class HandBuiltOptions:
    """Size and variant of the construction.

    ``P1`` and ``P2`` default to the smallest bits that fit; more leave room for other position offsets.
    ``last_next`` is the NEXT code of the last level-1 id: "wrap" (v_1, with an id to spare), "zero" (which needs no id
    to spare) or "paper" (v_1 without one: wrong if l + 1 = 2^P1, kept to show this). ``bos_tie`` is how the score
    eta P of BOS is made: "paper" (two roots) or "split" (two exact factors); None is "paper" in float32 and float64
    and "split" in half precision.
    """

    max_operands: int = 30
    max_digits: int = 30
    eta: float = 16.0
    hidden: Hidden = "shared"
    last_next: LastNext = "wrap"
    P1: int | None = None
    P2: int | None = None
    bos_tie: BosTie | None = None
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        check_options(self, "max_operands", "max_digits")
        for name, given, ids in (("P1", self.P1, self.level1_ids), ("P2", self.P2, self.level2_ids)):
            if given is not None and 2**given < ids:
                raise UserError(
                    f"{name} = {given} bits tell {2**given} ids apart, and {self.max_operands} operands of "
                    f"{self.max_digits} digits need {ids}: {name} must be at least {bits(ids)}."
                )

    @property
    def length(self) -> int:
        """l, the number of digits that every number is padded to."""
        return padded_length(self.max_digits, self.max_operands)

    @property
    def level1_ids(self) -> int:
        """How many level-1 ids are needed: 1 ... l + 1, and one to spare if NEXT codes wrap around."""
        return self.length + (2 if self.last_next == "wrap" else 1)

    @property
    def level2_ids(self) -> int:
        return self.max_operands + 1

    @property
    def position_bits(self) -> tuple[int, int]:
        """(P1, P2)."""
        return self.P1 or bits(self.level1_ids), self.P2 or bits(self.level2_ids)

    def bos_factors(self, width: int) -> tuple[float, float]:
        """The factors of FULL_ONES in W_Q and of IS_BOS in W_K, so that BOS scores ``eta width``."""
        score = self.eta * width
        if (self.bos_tie or ("split" if self.dtype in ("bfloat16", "float16") else "paper")) == "paper":
            return math.sqrt(score), math.sqrt(score)
        power = 2.0 ** round(math.log2(score) / 2)
        return power, score / power


def hand_built_dims(P1: int, P2: int) -> dict[str, slice]:
    """The residual stream's named dimensions, in the order of appendix D.4.1."""
    single = ("NUM", "IS_BOS", "FULL_ONES", "PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS")
    positions = {"POS_1": P1, "POS_1_NEXT": P1, "POS_2": P2, "POS_2_NEXT": P2}
    return residual_dims({name: 1 for name in single} | {"SUM": 10, "ARROW": 1, "EOS": 1} | positions)


def hand_built_config(options: HandBuiltOptions) -> TransformerConfig:
    P1, P2 = options.position_bits
    return construction_config(
        options,
        n_layers=1,
        d_model=2 * (P1 + P2) + 19,
        n_heads=4,
        d_head=P1 + P2 + 1,
        d_mlp={"shared": 44, "paper": 83}[options.hidden],
        d_vocab=len(VOCABULARY),
        n_ctx=(2 * options.max_operands + 1) * (options.length + 1) + 1,  # the whole sequence, EOS included
        n_position_levels=2,
        n_position_ids=2 ** max(P1, P2) + 1,
    )


class HandBuiltWeights(Construction):
    """The weights of the construction for addition."""

    def __init__(self, options: HandBuiltOptions = HandBuiltOptions()):
        dims = hand_built_dims(*options.position_bits)
        super().__init__(hand_built_config(options), hand_built_weights(options, dims), options, dims)
        self.position_limits = tuple(2**n_bits for n_bits in options.position_bits)


def hand_built_weights(options: HandBuiltOptions, dims: dict[str, slice]) -> Weights:
    """All weights in float64, at negligible cost."""
    cfg = hand_built_config(options)
    W_Q, W_K, W_V, W_O = attention_weights(options, dims, cfg)
    W_in, b_in, W_out, b_out = mlp_weights(options, dims, cfg)
    weights = {"embed.W_E": token_embedding(dims, cfg), "pos_embed.W_pos": position_embedding(options, dims, cfg)}
    weights |= under("blocks.0.attn", W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O)
    weights |= under("blocks.0.mlp", W_in=W_in, b_in=b_in, W_out=W_out, b_out=b_out)
    return weights | {"unembed.W_U": unembedding(dims, cfg)}


def token_embedding(dims: dict[str, slice], cfg: TransformerConfig) -> Float[Tensor, "token d_model"]:
    """The token embedding: NUM is the digit's value, IS_BOS marks "$", FULL_ONES is 1 everywhere (section D.4.1)."""
    W_E = torch.zeros(cfg.d_vocab, cfg.d_model, dtype=torch.float64)
    W_E[:10, dims["NUM"]] = torch.arange(10.0, dtype=torch.float64)[:, None]
    W_E[VOCABULARY.index("$"), dims["IS_BOS"]] = 1.0
    W_E[:, dims["FULL_ONES"]] = 1.0
    return W_E


def position_embedding(
    options: HandBuiltOptions, dims: dict[str, slice], cfg: TransformerConfig
) -> Float[Tensor, "level id d_model"]:
    """``[v_p, v_{p+1}]`` for each level; id 0 is all zeros (equations 5 and 6).

    Both levels have the same number of rows; those past a level's own ``2^P`` ids are zero, and no admissible problem
    uses them.
    """
    W_pos = torch.zeros(2, cfg.position_rows, cfg.d_model, dtype=torch.float64)
    for level, n_bits in enumerate(options.position_bits):
        code, rows = codes(n_bits), slice(1, 2**n_bits + 1)
        following = code.roll(-1, 0)
        if level == 0 and options.last_next == "zero":
            following = torch.cat((code[1:], torch.zeros_like(code[:1])))
        W_pos[level, rows, dims[f"POS_{level + 1}"]] = code
        W_pos[level, rows, dims[f"POS_{level + 1}_NEXT"]] = following
    return W_pos


def attention_weights(
    options: HandBuiltOptions, dims: dict[str, slice], cfg: TransformerConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``W_Q``, ``W_K``, ``W_V`` [head, d_model, d_head] and ``W_O`` [head, d_head, d_model] (equations 7-22).

    d_head is P + 1; head 3 has P1 + 1 columns and values have one, padded with zeros.
    """
    P1, P2 = options.position_bits
    W_Q = torch.zeros(4, cfg.d_model, cfg.d_head, dtype=torch.float64)
    W_K, W_V = torch.zeros_like(W_Q), torch.zeros_like(W_Q)
    W_O = torch.zeros(4, cfg.d_head, cfg.d_model, dtype=torch.float64)
    root = math.sqrt(options.eta)
    identity = lambda width: torch.eye(width, dtype=torch.float64)  # noqa: E731  (float32 would round the root)
    for head, (level1, level2, value, factor, output) in enumerate(HEADS):
        W_Q[head, dims[level1], :P1] = root * identity(P1)
        W_K[head, dims["POS_1"], :P1] = root * identity(P1)
        width = P1
        if level2 is not None:
            width = P1 + P2
            W_Q[head, dims[level2[0]], P1:width] = root * identity(P2)
            W_K[head, dims[level2[1]], P1:width] = root * identity(P2)
        W_Q[head, dims["FULL_ONES"], width], W_K[head, dims["IS_BOS"], width] = options.bos_factors(width)
        W_V[head, dims[value], 0] = factor
        W_O[head, 0, dims[output]] = 1.0
    return W_Q, W_K, W_V, W_O


def mlp_weights(
    options: HandBuiltOptions, dims: dict[str, slice], cfg: TransformerConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``W_in``, ``b_in``, ``W_out``, ``b_out``: units are relu(reading - knot) (section D.6)."""
    units: list[tuple[str, float, dict[tuple[str, int], float]]] = []  # reading, knot, {(name, place): weight}
    if options.hidden == "shared":
        slopes: dict[float, dict[tuple[str, int], float]] = {}
        for digit in range(10):
            for knot, slope in TRAPEZOIDS:
                slopes.setdefault(digit + knot, {})[("SUM", digit)] = float(slope)
        units += [("g", knot, slopes[knot]) for knot in sorted(slopes)]
        units += [("PRE_ARROW", 1 / 2, {("ARROW", 0): 2.0, ("EOS", 0): 2.0})]
    else:
        units += [("g", d + knot, {("SUM", d): float(slope)}) for d in range(10) for knot, slope in TRAPEZOIDS]
        units += [("PRE_ARROW", 1 / 2, {(name, 0): 2.0}) for name in ("ARROW", "EOS")]
    units += [("PRE_EOS", 1 / 3, {("EOS", 0): 6.0})]

    W_in = torch.zeros(cfg.d_model, cfg.d_mlp, dtype=torch.float64)
    b_in = torch.zeros(cfg.d_mlp, dtype=torch.float64)
    W_out = torch.zeros(cfg.d_mlp, cfg.d_model, dtype=torch.float64)
    b_out = torch.zeros(cfg.d_model, dtype=torch.float64)
    for unit, (reading, knot, writes) in enumerate(units):
        if reading == "g":
            W_in[dims["PRE_SUM"], unit], W_in[dims["PRE_CARRY"], unit], W_in[dims["NUM"], unit] = 1.0, 0.1, -0.1
            b_in[unit] = (21 - round(100 * knot)) / 100  # 0.21 - knot, rounded once
        else:
            W_in[dims[reading], unit] = 1.0
            b_in[unit] = -knot
        for (name, place), weight in writes.items():
            W_out[unit, dims[name].start + place] = weight
    b_out[dims["EOS"]] = -1.0
    return W_in, b_in, W_out, b_out


def unembedding(dims: dict[str, slice], cfg: TransformerConfig) -> Float[Tensor, "d_model token"]:
    """The unembedding: SUM for the digits, 10 ARROW for ">", 100 EOS for "$" (Table 24)."""
    W_U = torch.zeros(cfg.d_model, cfg.d_vocab, dtype=torch.float64)
    W_U[dims["SUM"], :10] = torch.eye(10, dtype=torch.float64)
    W_U[dims["ARROW"], VOCABULARY.index(">")] = 10.0
    W_U[dims["EOS"], VOCABULARY.index("$")] = 100.0
    return W_U


def hand_built_task(max_operands: int = 30, max_digits: int = 30, **unused: Any) -> MultiOperandAddition:
    """The task with the model's limits; its first shape is the paper's example, three operands of two digits."""
    return MultiOperandAddition(
        min(3, max_operands), min(2, max_digits), max_operands=max_operands, max_digits=max_digits
    )


register_construction(
    NAME,
    HandBuiltWeights,
    HandBuiltOptions,
    hand_built_task,
    source="Position Coupling (ICLR 2025), Theorem 4.1 and appendix D",
)
