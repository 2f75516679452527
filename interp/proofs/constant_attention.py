"""Method 1: attention that does not depend on digits, and writes along one direction.

If all tokens that can stand at a position have one norm, and queries and keys read positions only, then the pattern
``a_tj`` is the same for every input, and attention adds up one term a position:

    attn_out_t = sum_j c_tj(d_j),   c_tj(d) = sum_heads a_tj v_j(d) W_O

If all of these vectors lie along one direction B, the sum is ``s B`` with one scalar ``s = sum_j T_tj(d_j)``. Stored
weights fulfil neither exactly (points of a circle are rounded, and so is a product of factors), so nothing is assumed
to hold: the terms T are fixed-point integers, whose sums are exact, and what they leave out is enclosed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from flint import arb
from jaxtyping import Float, Int

from interp.proofs.balls import EXP_ULPS, Arithmetic, Ball, around_zero, hull, upper
from interp.proofs.normed_stream import normed_stream
from interp.proofs.one_layer import OneLayerAdder

NAME = "constant attention, rank 1"
#: Fractional bits of the fixed-point terms; sums of 33 of them stay below 2^63 for streams below 2^14.
BITS = 44
#: How far attention may vary with the digits, and how much it may write off its direction (as a share of what it
#: writes along it), for this method to be the right one. The proof holds for any values; large ones prove nothing.
MOST_VARIATION = 2.0**-10
_PRECISION = 80  # bits, while terms are enclosed
UNDERFLOW_OF_WEIGHTS = 2.0**-118  # 33 exponentials below the smallest normal number 2^-126, over a sum of at least one


@dataclass(frozen=True, eq=False)
class ScalarAttention:
    """``attn_out = s direction + e`` with ``s = 2^-BITS sum_j terms[query, j, d_j]`` and ``|e| <= error[query]``.

    Attributes:
        terms: zero where a key is masked; tokens that cannot stand at a position are zero as well.
        direction: a unit vector, exact as stored.
        error: what attention may write beside ``s direction`` over all inputs, rounding included: upper bounds, as
            exact balls.
        variation: the largest width of an attention weight over all inputs.
        off_direction: the largest error over the range of s.
    """

    terms: Int[np.ndarray, "query pos token"]
    direction: Float[np.ndarray, " d"]
    error: list[list[Ball]]
    variation: float
    off_direction: float


def obstacle(found: ScalarAttention) -> str | None:
    """Why this method cannot prove anything, in words; None if it can be tried."""
    if not found.variation <= MOST_VARIATION:
        return f"attention weights depend on the digits (one of them by {found.variation:.2g})"
    if not found.off_direction <= MOST_VARIATION:
        share = found.off_direction
        return f"attention writes along more than one direction (off the first by {share:.2g} of its range)"
    return None


def read_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> ScalarAttention:
    """Enclose what attention writes at every query, over all inputs.

    Precondition: finite weights. Postcondition: for every problem and every query t, what ``arithmetic`` makes of the
    attention output (before ``b_O``) is ``s direction + e`` with ``|e_i| <= error[t][i]``.

    Lemma: for real numbers ``|sum_j c_tj(d_j) - s B| <= sum_j max_d |c_tj(d) - T_tj(d) B|``, component by component;
    each maximum is over the tokens that can stand at j, with a_tj anywhere in its range over all inputs.

    Cost: queries x positions x tokens x d balls, about 0.2 s.
    """
    with flint.ctx.workprec(_PRECISION):
        return _read_attention(adder, arithmetic)


def _read_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> ScalarAttention:
    layout = adder.layout
    heads, d, width = adder.W_V.shape
    normed = [
        [normed_stream(adder, arithmetic, token, j) for token in layout.tokens[j]] for j in range(layout.n_positions)
    ]
    w_q, w_k, w_v = (matrices(w) for w in (adder.W_Q, adder.W_K, adder.W_V))
    queries = {
        t: [_any_token(arithmetic, normed[t], w_q[h], adder.b_Q[h]) for h in range(heads)] for t in layout.queries
    }
    keys = [[_any_token(arithmetic, xs, w_k[h], adder.b_K[h]) for h in range(heads)] for xs in normed]
    values = [  # [position][token][head * width]
        [[v for h in range(heads) for v in project(arithmetic, x, w_v[h], adder.b_V[h])] for x in xs] for xs in normed
    ]
    pattern = {
        t: [_weights(arithmetic, queries[t][h], [k[h] for k in keys[: t + 1]], adder.score_scale) for h in range(heads)]
        for t in layout.queries
    }
    w_o = adder.W_O.reshape(heads * width, d)
    direction = _direction(values, w_o, pattern, heads, width)
    exact_direction = [arb(x) for x in direction.tolist()]
    w_o_balls = [[arb(x) for x in row] for row in w_o.tolist()]

    n_tokens = max(max(allowed) for allowed in layout.tokens) + 1
    terms = np.zeros((len(layout.queries), layout.n_positions, n_tokens), dtype=np.int64)
    errors: list[list[Ball]] = []
    for row, t in enumerate(layout.queries):
        error = [arb(0)] * d
        size = [arb(0)] * (heads * width)  # of z, over all inputs
        for j in range(t + 1):
            largest = [arb(0)] * d
            bounds = [arb(0)] * (heads * width)
            for index, token in enumerate(layout.tokens[j]):
                weighed = [pattern[t][e // width][j] * v for e, v in enumerate(values[j][index])]
                bounds = [_larger(old, upper(new)) for old, new in zip(bounds, weighed, strict=True)]
                written = [sum((z * w_o_balls[e][i] for e, z in enumerate(weighed)), arb(0)) for i in range(d)]
                along = float(np.dot([float(x.mid()) for x in written], direction))
                if not abs(along) < 2.0**12:  # infinite, NaN, or too large for fixed-point sums
                    return ScalarAttention(terms, direction, errors, float("inf"), float("inf"))
                fixed = round(along * 2.0**BITS)
                terms[row, j, token] = fixed
                s = arb(fixed) / 2**BITS
                rest = [upper(w - s * b) for w, b in zip(written, exact_direction, strict=True)]
                largest = [_larger(old, new) for old, new in zip(largest, rest, strict=True)]
            error = [e + new for e, new in zip(error, largest, strict=True)]
            size = [a + b for a, b in zip(size, bounds, strict=True)]
        errors.append(
            [upper(e + attention_rounding(arithmetic, size, w_o_balls, i, t + 1)) for i, e in enumerate(error)]
        )

    spread = float(max(2 * w.rad() for rows in pattern.values() for head in rows for w in head))
    return ScalarAttention(terms, direction, errors, spread, _off_direction(terms, errors, direction, layout.tokens))


# ---- parts, each as models/parts computes it


def matrices(w: Float[np.ndarray, "head d e"]) -> list[list[list[Ball]]]:
    return [[[arb(x) for x in row] for row in matrix] for matrix in w.tolist()]


def project(arithmetic: Arithmetic, x: list[Ball], w: list[list[Ball]], b: Float[np.ndarray, " e"]) -> list[Ball]:
    found = []
    for e, bias in enumerate(b.tolist()):
        y = arithmetic.dot([value * row[e] for value, row in zip(x, w, strict=True)])
        found.append(arithmetic.rounded(y + bias) if bias else y)
    return found


def _any_token(
    arithmetic: Arithmetic, xs: list[list[Ball]], w: list[list[Ball]], b: Float[np.ndarray, " e"]
) -> list[Ball]:
    """A projection whatever token stands there."""
    return [hull(column) for column in zip(*(project(arithmetic, x, w, b) for x in xs), strict=True)]


def _weights(arithmetic: Arithmetic, query: list[Ball], keys: list[list[Ball]], scale: float) -> list[Ball]:
    """The softmax over keys: each weight's range over all inputs.

    ``a_j = 1 / sum_k exp(S_k - S_j)``. Rounding: a score is divided by the scale (off by a unit in the last place, or
    three roundings where a product with its rounded inverse stands for it); the largest is subtracted, off by u times
    their spread, once for j and once for k; an exponential is off by EXP_ULPS (2 u each), twice; the sum sees one
    rounding a key, the quotient at most two more. Exponentials that underflow add at most the smallest normal number.
    """
    scores = [
        arithmetic.rounded(arithmetic.dot([q * k for q, k in zip(query, key, strict=True)]) / arb(scale), 3)
        for key in keys
    ]
    everything = hull(scores)
    slack = around_zero(2 * arithmetic.growth(1) * upper(2 * everything.rad())) if arithmetic.unit else arb(0)
    found = []
    for j, own in enumerate(scores):
        total = arb(1) + sum(((s - own + slack).exp() for k, s in enumerate(scores) if k != j), arb(0))
        weight = arithmetic.rounded(1 / total, 4 * EXP_ULPS + len(keys) + 2)
        found.append(weight + around_zero(UNDERFLOW_OF_WEIGHTS) if arithmetic.unit else weight)
    return found


def attention_rounding(arithmetic: Arithmetic, size: list[Ball], w_o: list[list[Ball]], i: int, keys: int) -> Ball:
    """What rounding adds to component i of ``(pattern @ values) W_O``, ``size`` bounding ``sum_j |a_j v_j|``.

    Masked keys weigh exactly zero: they add zeros, and no rounding.
    """
    if not arithmetic.unit:
        return arb(0)
    own = [arithmetic.growth(keys) * z + UNDERFLOW_OF_WEIGHTS for z in size]
    carried = sum((upper(e * row[i]) for e, row in zip(own, w_o, strict=True)), arb(0))
    written = sum((upper((z + e) * row[i]) for z, e, row in zip(size, own, w_o, strict=True)), arb(0))
    return carried + arithmetic.growth(len(size)) * written + UNDERFLOW_OF_WEIGHTS


def _larger(a: Ball, b: Ball) -> Ball:
    return a.max(b)


def _direction(values: Any, w_o: np.ndarray, pattern: Any, heads: int, width: int) -> Float[np.ndarray, " d"]:
    """The unit vector along which attention writes most, from float64 midpoints; any vector gives a valid bound."""
    rows = []
    for t, weights in pattern.items():
        for j in range(t + 1):
            a = np.repeat([float(weights[h][j].mid()) for h in range(heads)], width)
            v = np.array([[float(x.mid()) for x in token] for token in values[j]]) * a @ w_o
            rows.append(v)
    stacked = np.concatenate(rows)
    if not np.isfinite(stacked).all() or not stacked.any():
        return np.eye(w_o.shape[1])[0]
    direction = np.linalg.svd(stacked, full_matrices=False)[2][0]
    return direction * np.sign(direction[np.abs(direction).argmax()])


def _off_direction(terms: np.ndarray, errors: list[list[Ball]], direction: np.ndarray, tokens: Any) -> float:
    """The largest error, over the range of s that the terms of its query leave."""
    worst = 0.0
    for row, error in zip(terms, errors, strict=True):
        ranges = [np.ptp(row[j, list(allowed)]) for j, allowed in enumerate(tokens)]
        span = max(float(sum(ranges)) * 2.0**-BITS, 1e-30)
        worst = max(worst, float(max(error)) / span)
    return worst
