"""A proof that the hand-built transformer is right on *every* problem of a shape, without trying them.

Attention in this construction does not see digits: a score is a function of the two tokens' position ids and of
whether the key is BOS, and ids follow from where a token stands. So for one shape (m operands of n digits) every query
has *one* pattern for all 10^(n m) problems, and the proof goes in three steps, on the model's own weights:

1. **Separation.** Queries and keys read position codes, FULL_ONES and IS_BOS only; values read tokens only; heads write
   where neither the embeddings nor another head do; the hidden units read the heads' outputs and NUM only. Each of
   these is an equality on the weights.
2. **Attention.** For every response query the keys that tie with BOS are exactly those that the algorithm needs:

       head 1   a_i and b_{i-1} at the digit to be predicted        (none for b_0 and after a last digit)
       head 2   a_i and b_{i-1} at the query's own place
       head 3   every token at the digit to be predicted            (m + i of them; none after a last digit)
       head 4   the query's own token, and a_{i+1} at its place     (not in b_m)

   All other keys together weigh at most E against BOS' 1, and the tie is off by at most D; both are computed.
3. **Values.** What the MLP can then see is a finite set: two digits' sum, the previous two digits' sum and the carry
   into them (19 x 19 x 2, a superset of what occurs), how many keys heads 3 and 4 share BOS with. Each value is widened
   to the interval that E and D allow, and the logits' ranges over the intervals (the units are piecewise linear in
   three readings, so ranges are attained at ends and knots) leave the right token on top.

"interval" is about the exact function that the stored weights define. "float32" widens every interval by standard
bounds for rounding in the model's dtype with unit roundoff u (n u / (1 - n u) for a sum of n terms, in any order; exp
within 4 units in the last place; no underflow that matters), and so is about the model as it runs. Bounds are
evaluated in float64 and moved outwards by ``SLACK``, which is far above float64's own error.

Precondition: the model is what its options build (:mod:`interp.proofs.hand_built.matches_options`), with position ids
from the task.
Postcondition: a proof for a shape states that every next token of
every response of that shape, teacher-forced and hence greedily decoded, is right; operands with fewer digits are among
its problems. Cost: four tables [response, sequence], as one forward pass; no digits enter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.proofs.hand_built.addition_values import NotSeparated, Perturbation, read_units, smallest_margin
from interp.proofs.hand_built.matches_options import why_not_built
from interp.proofs.verdict.time_limit import watched
from interp.proofs.verdict.verdict import ArithmeticName
from models.transformer import HookedModel

SLACK = 1e-9


@dataclass(frozen=True)
class ShapeProof:
    """What was proved for one shape, or why nothing could be.

    Attributes:
        operands, digits: the shape; it has ``10^(operands digits)`` problems.
        margin: a lower bound of the right token's lead over all problems and positions (-inf if a step before failed).
        obstacle: the step that failed, in words, or None if everything is proved.
    """

    operands: int
    digits: int
    margin: float = float("-inf")
    obstacle: str | None = None


@dataclass(frozen=True)
class ScoreReading:
    """What the scores of a head are made of, read off the weights in float64."""

    level1: Float[np.ndarray, "query_id key_id"]  # score of a pair of level-1 ids
    level2: Float[np.ndarray, "query_id key_id"]
    bos: float  # score of BOS
    unit: float  # a flipped sign lowers a score by twice this
    size: float  # a bound of the sum of magnitudes that a score is made of


def prove_shapes(
    model: HookedModel, shapes: list[tuple[int, int]], arithmetic: ArithmeticName = "interval"
) -> Iterator[ShapeProof]:
    """Prove the hand-built transformer right on all problems of each shape, or say which step fails; the weights are
    read once.

    Raises:
        UserError: a shape beyond the model's limits.
    """
    weights = {key: value.detach().double().numpy() for key, value in model.effective_weights().items()}
    if (obstacle := why_not_built(model)) is not None:
        yield from (ShapeProof(m, n, obstacle=obstacle) for m, n in shapes)
        return
    try:
        readings = read_heads(weights, model.weight_map.dims, model.task.special)
        read_units(weights, model.weight_map.dims)
    except NotSeparated as error:
        yield from (ShapeProof(m, n, obstacle=str(error)) for m, n in shapes)
        return
    for m, n in watched(shapes, "proving", "shape"):
        yield _prove_shape(model, weights, readings, m, n, arithmetic == "float32")


def _prove_shape(
    model: HookedModel, weights: Any, readings: list[ScoreReading], m: int, n: int, rounded: bool
) -> ShapeProof:
    task = model.task.at(m, n)
    ids = task.position_ids(task.encode(torch.zeros(1, m, n, dtype=torch.long)))[0].numpy()
    needed = required_keys(m, task.length)
    leakage, tie = np.zeros(4), np.zeros(4)
    for head, reading in enumerate(readings):
        matched, leakage[head], tie[head] = attended(reading, ids, m, task.length)
        wrong = (matched != needed[head]).any(1)
        if wrong.any():
            step, place = divmod(int(wrong.argmax()), task.length + 1)
            names = {True: "attends to keys it should not", False: "misses a key"}
            what = names[bool((matched & ~needed[head]).any())]
            obstacle = f"head {head + 1} {what}, first at b_{step}, place {place}"
            return ShapeProof(m, n, obstacle=obstacle)
    largest = max(reading.size for reading in readings)
    size = Perturbation.of(model, len(ids), leakage, tie, rounded, SLACK, largest)
    margin = float(smallest_margin(weights, model.weight_map.dims, m, size))
    obstacle = None if margin > 0 else "leakage and rounding may cost more than the margin"
    return ShapeProof(m, n, margin, obstacle)


def read_heads(weights: dict[str, np.ndarray], dims: dict[str, slice], special: int) -> list[ScoreReading]:
    """Step 1: check that positions and tokens are separate, and read off each head's scores.

    Raises:
        NotSeparated: weights that couple them.
    """
    tokens, levels = weights["embed.W_E"], weights["pos_embed.W_pos"]
    written = [dims[name] for name in ("PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS", "SUM", "ARROW", "EOS")]

    def need(holds: Any, what: str) -> None:
        if not holds:
            raise NotSeparated(what)

    need(all((tokens[:, w] == 0).all() and (levels[:, :, w] == 0).all() for w in written), "the input fills outputs")
    need((levels[:, 0] == 0).all(), "id 0 is not zero")
    ordinary = np.arange(len(tokens)) != special
    readings = []
    for head in range(4):
        W_Q, W_K = weights["blocks.0.attn.W_Q"][head], weights["blocks.0.attn.W_K"][head]
        W_V, W_O = weights["blocks.0.attn.W_V"][head], weights["blocks.0.attn.W_O"][head]
        base, key_tokens = tokens @ W_Q, tokens @ W_K
        need((base == base[0]).all(), f"queries of head {head + 1} depend on the token")
        need((key_tokens[ordinary] == 0).all(), f"keys of head {head + 1} depend on the digit")
        need((levels @ W_V == 0).all(), f"values of head {head + 1} depend on the position")
        q, k, bos = levels @ W_Q, levels @ W_K, key_tokens[special]
        apart = [q[0] @ k[1].T, q[1] @ k[0].T, base[0] @ k[0].T, base[0] @ k[1].T, q[0] @ bos, q[1] @ bos]
        need(all((product == 0).all() for product in apart), f"scores of head {head + 1} mix levels or BOS with codes")
        output = W_V @ W_O
        name = ("PRE_SUM", "PRE_CARRY", "PRE_ARROW", "PRE_EOS")[head]
        source, factor = (("NUM", 3.0), ("NUM", 3.0), ("IS_BOS", 1.0), ("IS_BOS", 1.0))[head]
        expected = np.zeros_like(output)
        expected[dims[source], dims[name]] = factor
        need((output == expected).all(), f"head {head + 1} does not copy {factor:g} {source} to {name}")
        pair = np.abs(q[0][:, None] * k[0][None]).max()
        query = abs(base[0]) + abs(q).max(1).sum(0)
        size = float(max(query @ abs(bos), query @ abs(k).max(1).sum(0)))  # BOS has no position code, others no IS_BOS
        readings.append(ScoreReading(q[0] @ k[0].T, q[1] @ k[1].T, float(base[0] @ bos), float(pair), size))
    return readings


def required_keys(m: int, length: int) -> Bool[np.ndarray, "head query key"]:
    """The sets of step 2, by where tokens stand: query (i, p) is place p of b_i, and place 0 the delimiter before it.

    Place p of a_i stands at i (l + 1) - p (p = 0: the delimiter after it; that of a_m is b_0's), place p of b_i at
    (m + i) (l + 1) + p.
    """
    w = length + 1
    queries, n_pos = (m + 1) * w, (2 * m + 1) * w
    needed = np.zeros((4, queries, n_pos), dtype=bool)
    needed[:, :, 0] = True  # BOS
    i, p = np.divmod(np.arange(queries), w)
    row = np.arange(queries)

    def mark(head: int, chosen: np.ndarray, position: np.ndarray) -> None:
        needed[head, row[chosen], position[chosen]] = True

    a = lambda number, place: number * w - place  # noqa: E731
    b = lambda number, place: (m + number) * w + place  # noqa: E731
    inner, later = p < length, i >= 1
    mark(0, later & inner, a(i, p + 1))
    mark(0, later & inner, b(i - 1, p + 1))
    mark(1, later & ~((i == m) & (p == 0)), a(i, p))
    mark(1, later, b(i - 1, p))
    for number in range(m):
        mark(2, inner, a(number + 1, p + 1))
        mark(2, inner & (number < i), b(np.full_like(i, number), p + 1))
    mark(3, row >= 0, b(i, p))
    mark(3, (i < m) & ~((i == m - 1) & (p == 0)), a(i + 1, p))
    return needed


def attended(
    reading: ScoreReading, ids: Int[np.ndarray, "pos level"], m: int, length: int
) -> tuple[Bool[np.ndarray, "query key"], float, float]:
    """(which keys tie with BOS, the largest total weight of all others, the largest score difference of a tie)."""
    first = m * (length + 1)  # '='
    query, position = np.arange(first, len(ids)), np.arange(len(ids))
    score = reading.level1[ids[query, 0]][:, ids[:, 0]] + reading.level2[ids[query, 1]][:, ids[:, 1]]
    gap = np.where(position[None] <= query[:, None], score - reading.bos, -np.inf)
    gap[:, 0] = 0.0  # BOS itself
    matched = gap > -reading.unit  # a wrong key is two units below
    leak = np.where(matched, 0.0, np.exp(gap)).sum(1).max()
    tie = np.abs(gap, where=matched, out=np.zeros_like(gap)).max()
    # float64's own error in the scores and sums here, generously
    own = 1e-14 * (abs(reading.bos) + 1)
    return matched, float(leak * (1 + SLACK)), float(tie + own)
