"""Attention of one layer as a ratio of two sums over positions.

Fix a target, and the token at its query. Then the query's vector is fixed, and in a model of one layer the scores, keys
and values at another position depend on the token there alone. With ``w_hj(t) = exp(score_hj(t) - shift_h)`` and
``c_hj(t) = v_hj(t) W_O`` attention writes

    sum_h N_h / D_h,    N_h = sum_j w_hj(t_j) c_hj(t_j),    D_h = sum_j w_hj(t_j),

whatever token and position embeddings are made of: N and D are additive over positions, and a dynamic programme over
columns finds the extremes of ``u . N - level D`` for any direction u (see :mod:`interp.proofs.columns.column_windows`).

Here the terms are read off the weights: floats that are exact as stored, and one error for everything else.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.columns.adder_weights import AdderWeights
from interp.proofs.numbers.enclosure import Enclosure, TrimmedMatrix
from interp.proofs.numbers.rounded_operations import REAL, Rounding
from interp.proofs.numbers.rounding_errors import EXP_ULPS, UP, roundings, up
from interp.proofs.numbers.token_tables import TokenTables

#: Directions along which attention writes less than this share of what it writes along the first go into the error.
OFF_BASIS = 2.0**-16
#: If scores of one query are further apart than this, float64 cannot hold their weights next to each other.
MOST_SPREAD = 600.0
#: A key whose score is always this far below some other key's weighs at most exp(-FAR), and goes into the error.
FAR = 128.0
#: Relative errors of weights below this do not need a bound of their own on every window.
NO_SPREAD = 2.0**-32
UNDERFLOW_OF_WEIGHTS = 2.0**-118  # 33 exponentials below the smallest normal number 2^-126, over a sum of at least one


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
def read_ratio_attention(adder: AdderWeights, arithmetic: Rounding) -> RatioAttention:
    """The terms of every query and token at it, with bounds of what they leave out.

    Precondition: finite weights. Postcondition: for every problem and every target, what ``arithmetic`` makes of the
    attention output (before ``b_O``) at the query is the ratio of the stored terms on ``basis``, and e within the
    error.

    Lemma: what all keys of a query share leaves the softmax unchanged: a shift of the scores, such as the effect of an
    error of the query's own vector along one fixed key vector, and a factor of all exponentials, such as their sum's
    rounding. So let the pattern's weight of key j be ``C w_j (1 + eta_j) (1 + kappa_j)`` with stored weights w,
    ``p = w / sum w`` and ``C = 1 / sum_j w_j (1 + eta_j)``, where

    * ``|eta_j|`` is at most exp(e_j) - 1, with e_j from :meth:`Rounding.exponents`: how far the score may be off up to
      a common shift, u times its distance from the largest, and the exponential's roundings;
    * ``|kappa_j| <= h`` for the sum, one rounding per key, and the quotient, at most two more.

    Then ``sum_j C w_j (1 + eta_j) c_j = m + sum_j p_j eta_j (c_j - m) / (1 + sum_j p_j eta_j)`` with ``m = sum_j p_j
    c_j``, and for every r, with eta the largest of all,
    ``|sum_j p_j eta_j (c_j - m)| <= sum_j p_j |eta_j| |c_j - r| + |m - r| eta <= sum_j p_j (|eta_j| + eta) |c_j - r|``:
    if all weights grow alike, or all values are equal, nothing changes. ``spread_j`` is
    ``(|eta_j| + eta) / (1 - eta)``; where eta is below ``NO_SPREAD``, the largest value of that bound is part of the
    error. kappa adds h times the largest value, underflow n nu of it; then come the roundings of
    ``pattern @ values`` and of ``W_O``. For the reals all of this is what float64 rounds.

    Take a key with a token whose score is more than ``FAR`` below a score that some position reaches with every token.
    It weighs at most ``far = exp(-FAR (1 - u)) (1 + g) (1 + h)`` in every problem, and its w is stored as zero. n such
    keys take at most n far from the weights of the others, and write as much: 2 n far times the largest value.

    Cost: some 10^5 scores, 0.1 s.
    """
    cells = [(j, token) for j, allowed in enumerate(adder.layout.tokens) for token in allowed]
    no_ids = torch.zeros(len(adder.layout.tokens), 0, dtype=torch.int64)
    read = TokenTables(adder.model.config, adder.stored, arithmetic, cells, no_ids, None)
    known = zip(read.v.mid, read.v.rad, adder.W_O, strict=True)
    written = [REAL.linear(Enclosure.of(mid, rad), TrimmedMatrix.of(torch.from_numpy(W_O))) for mid, rad, W_O in known]
    mid, rad = (torch.stack([getattr(x, part) for x in written]) for part in ("mid", "rad"))
    return attention_of_keys(adder, arithmetic, cells, (read.q, read.k, read.v), Enclosure.of(mid, rad))


def attention_of_keys(
    adder: AdderWeights,
    arithmetic: Rounding,
    cells: list[tuple[int, int]],
    vectors: tuple[Enclosure, Enclosure, Enclosure],
    written: Enclosure,
) -> RatioAttention:
    """The terms of every query and token at it, from queries, keys and values, [head, cell, e], at each of the cells
    (position, token), and what each head writes of a value, [head, cell, d]."""
    layout, (q, k, v) = adder.layout, vectors
    tokens = tuple(layout.tokens[query] for query in layout.queries)
    position, token = np.array(cells).T
    basis, coords, off = _on_basis(written)
    every = np.zeros((len(coords), len(layout.tokens), token.max() + 1, len(basis)))
    every[:, position, token] = coords
    queries: dict[tuple[int, int], QueryTerms] = {}
    for n, (query, own) in enumerate(cells):
        for target in (target for target, at in enumerate(layout.queries) if at == query):
            rows = np.flatnonzero((position < query) | ((position == query) & (token == own)))
            scores = arithmetic.scores_of_one(q[:, [n]], k[:, rows], adder.model.config.score_scale)
            found = _weights(arithmetic, scores, torch.from_numpy(position[rows]))
            if found is None:
                return RatioAttention(basis, every, {}, tokens, "attention scores are too far apart")
            weights, spread = np.zeros((2, *every.shape[:3]))
            weights[:, position[rows], token[rows]], spread[:, position[rows], token[rows]] = found[:2]
            error, spreads, seen, eta = np.zeros(basis.shape[1]), False, query + 1, found[2].numpy()
            standing = [token[rows[position[rows] == j]].tolist() for j in range(seen)]
            for h in np.flatnonzero(~(eta < NO_SPREAD)):
                fixed, loose = of_positions(weights[h], spread[h], every[h], standing)
                if fixed.sum() < loose.sum() / 16:
                    spread[h] = 0.0
                    error += fixed @ np.abs(basis) * UP
                else:
                    spreads = True
            left = torch.where(found[2] < NO_SPREAD, 2 * found[2], 0.0) + arithmetic.growth(seen + 2)
            left = left + seen * UNDERFLOW_OF_WEIGHTS
            left = left + 2 * seen * _far(arithmetic, seen) * (found[0] == 0).any(1)
            lost = off[:, rows].amax(1) + left[:, None] * written.size[:, rows].amax(1)
            values = (1 + left[:, None]) * v.size[:, rows].amax(1)
            error += up(lost.sum(0) + _rounding_of_sums(arithmetic, values, adder.W_O, seen), len(rows)).numpy()
            queries[target, own] = QueryTerms(weights, spread if spreads else None, error * UP)
            if not np.isfinite(error).all():
                return RatioAttention(basis, every, {}, tokens, "attention may overflow")
    return RatioAttention(basis, every, queries, tokens)


def _weights(arithmetic: Rounding, scores: Enclosure, position: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Each head's weights and spreads [head, key], and the lemma's largest eta [head]; None if scores are too far
    apart."""
    least = torch.full((len(scores.mid), int(position.max()) + 1), torch.inf, dtype=torch.float64)
    least = least.scatter_reduce(1, position.expand_as(scores.mid), scores.low, "amin")
    out = scores.high < least.amax(1, keepdim=True) - FAR
    if not bool(((scores.high - scores.low.masked_fill(out, torch.inf).amin(1, keepdim=True)) < MOST_SPREAD).all()):
        return None
    top = scores.mid.argmax(1, keepdim=True)  # in place of what is left out, so that the spread is that of the others
    kept = Enclosure.apart(*(torch.where(out, part.gather(1, top), part) for part in (scores.mid, scores.rad)))
    below, wide = arithmetic.exponents(kept)
    eta = up(torch.expm1(wide)).masked_fill(out, 0.0)
    largest = eta.amax(1, keepdim=True)
    if not bool((largest < 0.25).all()):
        return None
    return below.exp().masked_fill(out, 0.0), up((eta + largest) / (1 - largest)).masked_fill(out, 0.0), largest[:, 0]


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


def _far(arithmetic: Rounding, keys: int) -> float:
    """The largest weight, as computed, of a key that is left out, apart from underflow."""
    return math.exp(-FAR * (1 - arithmetic.growth(1))) * (1 + arithmetic.growth(2 * EXP_ULPS + keys + 3)) * UP


def _on_basis(written: Enclosure) -> tuple[Float[np.ndarray, "r d"], Float[np.ndarray, "head cell r"], Tensor]:
    """Directions that heads write along, coordinates on them (any would be valid), and bounds of what is off them."""
    known = written.mid.nan_to_num()
    _, sizes, directions = np.linalg.svd(known.flatten(0, 1).numpy(), full_matrices=False)
    basis = torch.from_numpy(directions[: max(1, int((sizes > OFF_BASIS * sizes[0]).sum()))])
    coords, n = known @ basis.T, len(basis)
    slack = roundings(n + 4) * (coords.abs() @ basis.abs() + written.mid.abs())
    return basis.numpy(), coords.numpy(), up((written.mid - coords @ basis).abs() + slack + written.rad, n)


def _rounding_of_sums(
    arithmetic: Rounding, size: Float[Tensor, "head e"], W_O: Float[np.ndarray, "head e d"], keys: int
) -> Float[Tensor, " d"]:
    """What rounding adds to ``(pattern @ values) W_O``, where ``size`` bounds ``sum_j |a_j v_j|``.

    Masked keys weigh exactly zero, so that they add no rounding.
    """
    flat, of_row = torch.from_numpy(np.abs(W_O)).flatten(0, 1), size.flatten()
    own = arithmetic.growth(keys) * of_row + UNDERFLOW_OF_WEIGHTS
    return own @ flat + arithmetic.growth(len(flat)) * ((of_row + own) @ flat) + UNDERFLOW_OF_WEIGHTS
