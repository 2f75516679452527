"""Attention of one layer as a ratio of two sums over positions.

Fix a target, and the token at its query. Then the query's vector is fixed, and in a model of one layer the scores, keys
and values at another position depend on the token there alone. With ``w_hj(t) = exp(score_hj(t) - shift_h)`` and
``c_hj(t) = v_hj(t) W_O`` attention writes

    sum_h N_h / D_h,    N_h = sum_j w_hj(t_j) c_hj(t_j),    D_h = sum_j w_hj(t_j),

whatever token and position embeddings are made of: N and D are additive over positions, and a dynamic programme over
columns finds the extremes of ``u . N - level D`` for any direction u (see :mod:`interp.proofs.leaves`).

Here the terms are read off the weights: floats that are exact as stored, and one error for everything else.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import flint
import numpy as np
from flint import arb
from jaxtyping import Float

from interp.proofs.balls import EXP_ULPS, TRIG_ULPS, Arithmetic, Ball, angle_roundings, around_zero, hull, upper
from interp.proofs.forms import UP, roundings
from interp.proofs.one_layer import OneLayerAdder

#: Directions along which attention writes less than this share of what it writes along the first go into the error.
OFF_BASIS = 2.0**-16
#: If scores of one query are further apart than this, float64 cannot hold their weights next to each other.
MOST_SPREAD = 600.0
#: A key whose score is always this far below some other key's weighs at most exp(-FAR), and goes into the error.
FAR = 128.0
#: Relative errors of weights below this do not need a bound of their own on every window.
NO_SPREAD = 2.0**-40
UNDERFLOW_OF_WEIGHTS = 2.0**-118  # 33 exponentials below the smallest normal number 2^-126, over a sum of at least one
_PRECISION = 80  # bits, while terms are enclosed


@dataclass(frozen=True, eq=False)
class QueryTerms:
    """The terms of one query with one token at it.

    Attributes:
        weights: positive, at most about 1; zero where masked or too small to count.
        spread: twice the relative error that rounding may give each weight compared with the others (see
            :func:`read_ratio_attention`), or None where ``error`` includes it.
        error: everything else, component by component.
    """

    weights: Float[np.ndarray, "head pos token"]
    spread: Float[np.ndarray, "head pos token"] | None
    error: Float[np.ndarray, " d"]


@dataclass(frozen=True, eq=False)
class RatioAttention:
    """``attn_out = sum_h (sum_j w_hj(t_j) coords_hj(t_j)) / (sum_j w_hj(t_j)) @ basis + e``, ``|e| <= error``.

    This is before ``b_O``. ``w``, ``spread`` and ``error`` are those of the query and its token, ``queries[target,
    token]``; all numbers are exact as stored. With a ``spread`` the ratio's coordinate k is off by at most
    ``sum_j w_j spread_j |coords_jk - r| / sum_j w_j`` for every number r, head by head.

    Attributes:
        basis: r vectors, nearly orthonormal.
        coords: zero for tokens that cannot stand at a position.
        tokens: the tokens that can stand at the query of each target.
        obstacle: why there are no terms, in words, or None if there are.
    """

    basis: Float[np.ndarray, "r d"]
    coords: Float[np.ndarray, "head pos token r"]
    queries: dict[tuple[int, int], QueryTerms]
    tokens: tuple[tuple[int, ...], ...]
    obstacle: str | None = None


@functools.singledispatch
def read_ratio_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> RatioAttention:
    """The terms of every query and token at it, with bounds of what they leave out.

    Precondition: finite weights. Postcondition: for every problem and every target, what ``arithmetic`` makes of the
    attention output (before ``b_O``) at the query is the ratio of the stored terms on ``basis``, and e within the
    error.

    Lemma: what all keys of a query share leaves the softmax unchanged: a shift of the scores, such as the effect of an
    error of the query's own vector along one fixed key vector, and a factor of all exponentials, such as their sum's
    rounding. So let the pattern's weight of key j be ``C w_j (1 + eta_j) (1 + kappa_j)`` with stored weights w,
    ``p = w / sum w`` and ``C = 1 / sum_j w_j (1 + eta_j)``, where

    * ``|eta_j| <= (1 + rho_j) exp(u spread_j) (1 + g) - 1``: rho_j is how far ``exp(score_j - shift)`` may be from
      w_j, where the scores' balls are up to a common shift; a score minus the largest is off by u times their distance,
      an exponential by EXP_ULPS (2 u each);
    * ``|kappa_j| <= h`` for the sum, one rounding per key, and the quotient, at most two more.

    Then ``sum_j C w_j (1 + eta_j) c_j = m + sum_j p_j eta_j (c_j - m) / (1 + sum_j p_j eta_j)`` with ``m = sum_j p_j
    c_j``, and for every r, with eta the largest of all,
    ``|sum_j p_j eta_j (c_j - m)| <= sum_j p_j |eta_j| |c_j - r| + |m - r| eta <= sum_j p_j (|eta_j| + eta) |c_j - r|``:
    if all weights grow alike, or all values are equal, nothing changes. ``spread_j`` is
    ``(|eta_j| + eta) / (1 - eta)``; where eta is below ``NO_SPREAD``, the largest value of that bound is part of the
    error. kappa adds h times the largest value, underflow n nu of it; then come the roundings of
    ``pattern @ values`` and of ``W_O``. For the reals u, g, h and nu are zero.

    Take a key with a token whose score is more than ``FAR`` below a score that some position reaches with every token.
    It weighs at most ``far = exp(-FAR (1 - u)) (1 + g) (1 + h)`` in every problem, and its w is stored as zero. n such
    keys take at most n far from the weights of the others, and write as much: 2 n far times the largest value.

    Cost: some 10^5 scores in balls, 1 to 2 s.
    """
    with flint.ctx.workprec(_PRECISION):
        return _read(adder, arithmetic)


def _read(adder: OneLayerAdder, arithmetic: Arithmetic) -> RatioAttention:
    layout = adder.layout
    heads, d, width = adder.W_V.shape
    n_tokens = max(max(allowed) for allowed in layout.tokens) + 1
    normed = [
        {token: normed_stream(adder, arithmetic, token, j) for token in allowed}
        for j, allowed in enumerate(layout.tokens)
    ]
    w_q, w_k, w_v, w_o = (matrices(w) for w in (adder.W_Q, adder.W_K, adder.W_V, adder.W_O))
    basis, coords = _basis(adder, n_tokens)
    exact_basis = [[arb(x) for x in row] for row in basis.tolist()]

    keys: list[list[dict[int, list[Ball]]]] = []  # [head][pos][token]
    # The largest values, written vectors and their parts off the basis, over tokens at each position: [pos][head][..]
    size, written, off = ([[[arb(0)] * n for _ in range(heads)] for _ in normed] for n in (width, d, d))
    for h in range(heads):
        key = lambda x, j, h=h: headed(adder, arithmetic, project(arithmetic, x, w_k[h], adder.b_K[h]), adder.k_norm, j)  # noqa: E731
        keys.append([{t: key(x, j) for t, x in xs.items()} for j, xs in enumerate(normed)])
        for j, xs in enumerate(normed):
            for token, x in xs.items():
                value = project(arithmetic, x, w_v[h], adder.b_V[h])
                c = [sum((v * row[i] for v, row in zip(value, w_o[h], strict=True)), arb(0)) for i in range(d)]
                stored = [arb(y) for y in coords[h, j, token].tolist()]
                rest = [
                    x - sum((y * b[i] for y, b in zip(stored, exact_basis, strict=True)), arb(0))
                    for i, x in enumerate(c)
                ]
                for largest, new in ((size, value), (written, c), (off, rest)):
                    largest[j][h] = [old.max(upper(x)) for old, x in zip(largest[j][h], new, strict=True)]

    asked = lambda x, h: project(arithmetic, x, w_q[h], adder.b_Q[h])  # noqa: E731
    own = lambda h, at, token: headed(adder, arithmetic, asked(normed[at][token], h), adder.q_norm, at)  # noqa: E731
    return attention_of_keys(adder, arithmetic, own, keys, (size, written, off), basis, coords)


def attention_of_keys(
    adder: OneLayerAdder,
    arithmetic: Arithmetic,
    own: Callable[[int, int, int], list[Ball]],
    keys: list[list[dict[int, list[Ball]]]],
    parts: Sequence[list[list[list[Ball]]]],
    basis: Float[np.ndarray, "r d"],
    coords: Float[np.ndarray, "head pos token r"],
) -> RatioAttention:
    """The terms of every query and token at it, from enclosures of queries ``own(head, position, token)`` and keys, and
    in ``parts`` the largest values, written vectors and their parts off the basis: [pos][head][component] each."""
    heads, layout, d, n_tokens = len(adder.W_V), adder.layout, len(adder.W_in), coords.shape[2]
    tokens = tuple(layout.tokens[query] for query in layout.queries)
    flat_w_o = [row for head in matrices(adder.W_O) for row in head]
    queries: dict[tuple[int, int], QueryTerms] = {}
    for target, query in enumerate(layout.queries):
        seen = range(query + 1)
        most = [[_columnwise(part[j][h] for j in seen) for h in range(heads)] for part in parts]
        for token in tokens[target]:
            weights, spread = np.zeros((2, heads, layout.n_positions, n_tokens))
            error, sizes, spreads = [arb(0)] * d, [], False
            for h in range(heads):
                standing = [{token: keys[h][query][token]} if j == query else keys[h][j] for j in seen]
                vector = own(h, query, token)
                eta = _weights(arithmetic, vector, standing, adder.score_scale, weights[h], spread[h])
                if eta is None:
                    return RatioAttention(basis, coords, {}, tokens, "attention scores are too far apart")
                if not eta < NO_SPREAD:
                    fixed, loose = of_positions(weights[h], spread[h], coords[h], [list(at) for at in standing])
                    if fixed.sum() < loose.sum() / 16:
                        spread[h] = 0.0
                        error = [e + arb(x) for e, x in zip(error, (fixed @ np.abs(basis) * UP).tolist(), strict=True)]
                    else:
                        spreads = True
                left = len(seen) * arb(UNDERFLOW_OF_WEIGHTS) if arithmetic.unit else arb(0)
                left = upper(left + arithmetic.growth(len(seen) + 2) + (2 * eta if eta < NO_SPREAD else arb(0)))
                if any((weights[h, j, list(at)] == 0).any() for j, at in enumerate(standing)):
                    left = upper(left + 2 * len(seen) * _far(arithmetic, len(seen)))
                error = [e + o + left * c for e, o, c in zip(error, most[2][h], most[1][h], strict=True)]
                sizes += [(1 + left) * v for v in most[0][h]]
            error = [
                upper(e + attention_rounding(arithmetic, sizes, flat_w_o, i, len(seen))) for i, e in enumerate(error)
            ]
            queries[target, token] = QueryTerms(
                weights, spread if spreads else None, np.array([above(e) for e in error])
            )
            if not np.isfinite(queries[target, token].error).all():
                return RatioAttention(basis, coords, {}, tokens, "attention may overflow")
    return RatioAttention(basis, coords, queries, tokens)


def _weights(
    arithmetic: Arithmetic,
    query: list[Ball],
    keys: list[dict[int, list[Ball]]],
    scale: float,
    weights: Float[np.ndarray, "pos token"],
    spread: Float[np.ndarray, "pos token"],
) -> Ball | None:
    """Fill in one head's weights and spreads. Returns the lemma's largest eta, or None if scores are too far apart."""
    vectors = [key for at in keys for key in at.values()]
    middle = [arb(x.mid()) for x in max(vectors, key=lambda key: float(_dot(query, key).mid()))]
    sizes = [upper(q) for q in query]
    scores = [{t: _score(arithmetic, query, key, middle, scale, sizes) for t, key in at.items()} for at in keys]
    reached = functools.reduce(arb.max, [functools.reduce(arb.min, [s.lower() for s in at.values()]) for at in scores])
    scores = [{t: score for t, score in at.items() if not score < reached - FAR} for at in scores]
    everything = hull([s for at in scores for s in at.values()])
    if not upper(2 * everything.rad()) < MOST_SPREAD:
        return None
    shift, unit, exponential = everything.upper(), arithmetic.growth(1), 1 + arithmetic.growth(2 * EXP_ULPS)
    etas: dict[tuple[int, int], Ball] = {}
    for j, at in enumerate(scores):
        for t, score in at.items():
            weights[j, t] = math.exp(float((score - shift).mid()))
            rho = upper((score - shift).exp() / arb(weights[j, t]) - 1)
            etas[j, t] = upper((1 + rho) * (unit * upper(shift - score)).exp() * exponential - 1)
    largest = arb(0)
    for eta in etas.values():
        largest = largest.max(eta)
    if not largest < 0.25:
        return None
    for (j, t), eta in etas.items():
        spread[j, t] = above(upper((eta + largest) / (1 - largest)))
    return largest


def of_positions(
    weights: Float[np.ndarray, "pos token"],
    spread: Float[np.ndarray, "pos token"],
    coords: Float[np.ndarray, "pos token r"],
    tokens: list[list[int]],
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
    """A bound of what the spread of one head's weights does to each coordinate, whatever the tokens are, and about the
    one that a window has. The first is small where scores depend on positions and few keys have most of the weight.

    Lemma: let the key at j weigh from ``low_j`` to ``high_j``. Its share lies between ``low_j / (low_j + sum of the
    other high)`` and ``high_j / (high_j + sum of the other low)``, as computed and as stored. Both kinds of shares add
    up to 1, so that their differences write at most ``sum_j width_j |coords_j - r|``, for every number r.
    """
    chosen = [(j, at) for j, at in enumerate(tokens) if weights[j, at].any()]
    low = np.array([(weights[j, at] * (1 - spread[j, at])).min() for j, at in chosen]) * (1 - roundings(2))
    high = np.array([(weights[j, at] * (1 + spread[j, at])).max() for j, at in chosen]) * UP
    lost = roundings(len(chosen) + 2)
    others_low = np.maximum(low.sum() - low - lost * low.sum(), 0)
    others_high = high.sum() - high + lost * high.sum()
    width = high / (high + others_low) - low / (low + others_high) + roundings(8)
    middle = (coords[chosen[0][0]].min(0) + coords[chosen[0][0]].max(0)) / 2
    distance = np.array([np.abs(coords[j, at] - middle).max(0) for j, at in chosen]) * UP
    largest = np.array([spread[j, at].max() for j, at in chosen])
    return width @ distance * UP, (high / high.sum() * largest) @ distance


def _far(arithmetic: Arithmetic, keys: int) -> Ball:
    """The largest weight, as computed, of a key that is left out, apart from underflow."""
    return upper((-FAR * (1 - arithmetic.growth(1))).exp() * (1 + arithmetic.growth(2 * EXP_ULPS + keys + 3)))


def _dot(x: list[Ball], y: list[Ball]) -> Ball:
    return sum((a * b for a, b in zip(x, y, strict=True)), arb(0))


def _score(
    arithmetic: Arithmetic, query: list[Ball], key: list[Ball], middle: list[Ball], scale: float, sizes: list[Ball]
) -> Ball:
    """The computed score minus ``query . middle / scale``, which is the same for all keys whatever the query's error.

    ``sizes`` are the largest magnitudes of the query's components. The score is ``q . k`` by the arithmetic's dot
    product, divided by the scale (three roundings).
    """
    apart = _dot(query, [k - m for k, m in zip(key, middle, strict=True)])
    if arithmetic.unit:
        size = _dot(sizes, [upper(k) for k in key])
        apart = apart + around_zero(arithmetic.dot_error(size, len(key) + 1, 3))
    return apart / arb(scale)


def _columnwise(rows: object) -> list[Ball]:
    """The largest value of each entry over the rows."""
    first, *rest = rows  # pyright: ignore[reportGeneralTypeIssues]
    for row in rest:
        first = [a.max(b) for a, b in zip(first, row, strict=True)]
    return first


def _basis(adder: OneLayerAdder, n_tokens: int) -> tuple[Float[np.ndarray, "r d"], np.ndarray]:
    """Directions that attention writes along, and coordinates [head, pos, token, r], in float64: any would be valid."""
    heads, d, _ = adder.W_V.shape
    allowed = [(j, t) for j, tokens in enumerate(adder.layout.tokens) for t in tokens]
    streams = np.array([adder.W_E[t] + adder.W_pos[j] for j, t in allowed])
    x = adder.normed(streams, adder.ln1, adder.ln1_b)
    c = np.einsum("nhe,hed->hnd", np.einsum("nd,hde->nhe", x, adder.W_V) + adder.b_V, adder.W_O)
    _, sizes, directions = np.linalg.svd(c.reshape(-1, d), full_matrices=False)
    basis = directions[: max(1, int((sizes > OFF_BASIS * sizes[0]).sum()))]
    coords = np.zeros((heads, len(adder.layout.tokens), n_tokens, len(basis)))
    for n, (j, t) in enumerate(allowed):
        coords[:, j, t] = c[:, n] @ basis.T
    return basis, coords


def above(x: Ball) -> float:
    """A float that is at least the value of an exact ball; NaN stays NaN."""
    return math.nextafter(float(x), math.inf)


# ---- parts, each as models/transformer/parts computes it


def stream(adder: OneLayerAdder, arithmetic: Arithmetic, token: int, position: int) -> list[Ball]:
    """``W_E[token] + W_pos[position]``, exact or as the float that stores it."""
    if arithmetic.unit:
        return [arb(value) for value in adder.stream(token, position).tolist()]
    both = zip(adder.W_E[token].tolist(), adder.W_pos[position].tolist(), strict=True)
    return [arb(a) + arb(b) for a, b in both]


def normed_stream(adder: OneLayerAdder, arithmetic: Arithmetic, token: int, position: int) -> list[Ball]:
    """``ln1`` of a token at a position, d balls: ``x / scale * w (+ b)``, after subtracting the mean for LayerNorm.

    Without norms it is the stream.
    Rounding: the quotient is off by a unit in the last place (2 u), the product by one rounding, the bias's sum by one.
    """
    x = stream(adder, arithmetic, token, position)
    if not adder.has_norms:
        return x
    if adder.centred:
        x = arithmetic.centred(x)
    width = len(x) // adder.groups
    scales = [arithmetic.rms(x[at : at + width], adder.eps, adder.eps_outside) for at in range(0, len(x), width)]
    gained = zip(x, adder.ln1.tolist(), strict=True)
    normed = [arithmetic.rounded(v / scales[i // width] * w, 3) for i, (v, w) in enumerate(gained)]
    biased = zip(normed, adder.ln1_b.tolist(), strict=True)
    return [arithmetic.rounded(v + b) if b else v for v, b in biased]


def headed(
    adder: OneLayerAdder, arithmetic: Arithmetic, x: list[Ball], gain: Float[np.ndarray, " e"] | None, position: int
) -> list[Ball]:
    """A query or a key as scores read it: after its norm, if it has one, and rotated, if positions are rotary.

    Rounding: the norm's is as in :func:`normed_stream`; each half of a rotated pair is two products and a difference.
    """
    if gain is not None:
        scale = arithmetic.rms(x, adder.eps, adder.eps_outside)
        x = [arithmetic.rounded(v / scale * w, 3) for v, w in zip(x, gain.tolist(), strict=True)]
    return rotated(adder, arithmetic, x, position)


def rotated(adder: OneLayerAdder, arithmetic: Arithmetic, x: list[Ball], position: int) -> list[Ball]:
    """A query or a key after its norm, as scores read it."""
    config = adder.model.config
    if config.positional_embedding_type != "rotary":
        return x
    half, turned = len(x) // 2, list(x)
    for i in range(half):
        at = (2 * i, 2 * i + 1) if config.rotary_adjacent_pairs else (i, half + i)
        angle = arb(position) / arb(config.rotary_scaling_factor) * arb(config.rotary_base) ** (-arb(2 * i) / len(x))
        exact = i == 0 and config.rotary_scaling_factor == 1  # the angle is the position: base^0 is 1 in any library
        off = arithmetic.growth(0 if exact else angle_roundings(config.rotary_base)) * upper(angle)
        off = off + arithmetic.growth(2 * TRIG_ULPS)
        cos, sin = (value + around_zero(upper(off)) for value in (angle.cos(), angle.sin()))
        first, second = (x[place] for place in at)
        products = [arithmetic.rounded(y) for y in (first * cos, -second * sin, second * cos, first * sin)]
        turned[at[0]], turned[at[1]] = (arithmetic.rounded(sum(pair)) for pair in (products[:2], products[2:]))
    return turned


def matrices(w: Float[np.ndarray, "head d e"]) -> list[list[list[Ball]]]:
    return [[[arb(x) for x in row] for row in matrix] for matrix in w.tolist()]


def project(arithmetic: Arithmetic, x: list[Ball], w: list[list[Ball]], b: Float[np.ndarray, " e"]) -> list[Ball]:
    found = []
    for e, bias in enumerate(b.tolist()):
        products = [value * row[e] for value, row in zip(x, w, strict=True)]
        found.append(arithmetic.dot([*products, arb(bias)] if bias else products))  # added anywhere among them
    return found


def attention_rounding(arithmetic: Arithmetic, size: list[Ball], w_o: list[list[Ball]], i: int, keys: int) -> Ball:
    """What rounding adds to component i of ``(pattern @ values) W_O``, where ``size`` bounds ``sum_j |a_j v_j|``.

    Masked keys weigh exactly zero, so that they add no rounding.
    """
    if not arithmetic.unit:
        return arb(0)
    own = [arithmetic.growth(keys) * z + UNDERFLOW_OF_WEIGHTS for z in size]
    carried = sum((upper(e * row[i]) for e, row in zip(own, w_o, strict=True)), arb(0))
    written = sum((upper((z + e) * row[i]) for z, e, row in zip(size, own, w_o, strict=True)), arb(0))
    return carried + arithmetic.growth(len(size)) * written + UNDERFLOW_OF_WEIGHTS
