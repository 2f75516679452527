"""Methods 2 to 4: attention that depends on digits, as a ratio of two sums over positions.

Fix a target, and the token at its query. Then the query's vector is fixed, and in a model of one layer the scores, keys
and values at another position depend on the token there alone. With ``w_hj(t) = exp(score_hj(t) - shift_h)`` and
``c_hj(t) = v_hj(t) W_O`` attention writes

    sum_h N_h / D_h,    N_h = sum_j w_hj(t_j) c_hj(t_j),    D_h = sum_j w_hj(t_j),

whatever token and position embeddings are made of: N and D are additive over positions, and a dynamic programme over
columns finds the extremes of ``u . N - level D`` for any direction u (see :mod:`interp.certificates.leaves`).

Here the terms are read off the weights: stored floats that stand for themselves, exactly, and one error for all else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import flint
import numpy as np
from flint import arb
from jaxtyping import Float

from interp.certificates.balls import EXP_ULPS, Arithmetic, Ball, hull, upper
from interp.certificates.constant_attention import UNDERFLOW_OF_WEIGHTS, attention_rounding, matrices, project
from interp.certificates.normed_stream import normed_stream
from interp.certificates.one_layer import OneLayerAdder

#: Directions that attention writes along by less than this share of the first one's are left to the error.
OFF_BASIS = 2.0**-16
#: Scores of one query further apart than this leave weights that float64 cannot hold beside each other.
MOST_SPREAD = 600.0
_PRECISION = 80  # bits, while terms are enclosed


@dataclass(frozen=True, eq=False)
class QueryTerms:
    """One query, with the token at it: weights (positive, at most about 1; zero where masked), and the error."""

    weights: Float[np.ndarray, "head pos token"]
    error: Float[np.ndarray, " d"]


@dataclass(frozen=True, eq=False)
class RatioAttention:
    """``attn_out = sum_h (sum_j w_hj(t_j) coords_hj(t_j)) / (sum_j w_hj(t_j)) @ basis + e``, ``|e| <= error``.

    Before ``b_O``. ``w`` and ``error`` are those of the query and its token, ``queries[target, token]``; all numbers
    are exact as stored.

    Attributes:
        basis: r vectors, nearly orthonormal.
        coords: zero for tokens that cannot stand at a position.
        tokens: the tokens that can stand at the query of each target.
        obstacle: why there are no terms, in words; None if there are.
    """

    basis: Float[np.ndarray, "r d"]
    coords: Float[np.ndarray, "head pos token r"]
    queries: dict[tuple[int, int], QueryTerms]
    tokens: tuple[tuple[int, ...], ...]
    obstacle: str | None = None


def read_ratio_attention(adder: OneLayerAdder, arithmetic: Arithmetic) -> RatioAttention:
    """Terms of every query and token at it, and what they leave out.

    Precondition: finite weights. Postcondition: for every problem and every target, what ``arithmetic`` makes of the
    attention output (before ``b_O``) at the query is the ratio of the stored terms on ``basis``, and e within the
    error.

    Lemma: let scores lie in balls, and let every ``exp(score - shift)`` be within a share rho of the stored weight w.
    Then weights of the pattern are ``p (1 + eta_j) + nu_j``, p being the ratio of stored weights, with
    ``1 + |eta_j| <= (1 + rho) / (1 - rho) exp(2 u spread) (1 + g)``: scores less the largest are off by u times their
    spread, exponentials by EXP_ULPS (2 u each), twice; the sum sees one rounding a key, the quotient at most two more
    (all of it g); nu_j is what underflow leaves. As p adds up to 1 over positions,
    ``|sum_j (p (1 + eta_j) + nu_j) c_j - sum_j p stored_j| <= max |c - stored| + (eta + n nu) max |c|``, component by
    component; then the roundings of ``pattern @ values`` and of ``W_O``. For the reals u, g and nu are zero.

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
    # Largest values, written vectors and parts of these off the basis, over tokens at each position: [pos][head][..]
    size, written, off = ([[[arb(0)] * n for _ in range(heads)] for _ in normed] for n in (width, d, d))
    for h in range(heads):
        keys.append([{t: project(arithmetic, x, w_k[h], adder.b_K[h]) for t, x in xs.items()} for xs in normed])
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

    tokens = tuple(layout.tokens[query] for query in layout.queries)
    flat_w_o = [row for head in w_o for row in head]
    queries: dict[tuple[int, int], QueryTerms] = {}
    for target, query in enumerate(layout.queries):
        seen = range(query + 1)
        most = [[_columnwise(part[j][h] for j in seen) for h in range(heads)] for part in (size, written, off)]
        for token in tokens[target]:
            weights = np.zeros((heads, layout.n_positions, n_tokens))
            error, sizes = [arb(0)] * d, []
            for h in range(heads):
                own = project(arithmetic, normed[query][token], w_q[h], adder.b_Q[h])
                standing = [{token: keys[h][query][token]} if j == query else keys[h][j] for j in seen]
                found = _weights(arithmetic, own, standing, adder.score_scale, weights[h])
                if found is None:
                    return RatioAttention(basis, coords, {}, tokens, "attention scores are too far apart")
                left = len(seen) * arb(UNDERFLOW_OF_WEIGHTS) if arithmetic.unit else arb(0)
                error = [e + o + (found + left) * c for e, o, c in zip(error, most[2][h], most[1][h], strict=True)]
                sizes += [(1 + found + left) * v for v in most[0][h]]
            error = [
                upper(e + attention_rounding(arithmetic, sizes, flat_w_o, i, len(seen))) for i, e in enumerate(error)
            ]
            queries[target, token] = QueryTerms(weights, np.array([above(e) for e in error]))
            if not np.isfinite(queries[target, token].error).all():
                return RatioAttention(basis, coords, {}, tokens, "attention may overflow")
    return RatioAttention(basis, coords, queries, tokens)


def _weights(
    arithmetic: Arithmetic,
    query: list[Ball],
    keys: list[dict[int, list[Ball]]],
    scale: float,
    weights: Float[np.ndarray, "pos token"],
) -> Ball | None:
    """Fill in one head's weights; returns eta of the lemma, or None where scores are too far apart."""
    scores = [
        {
            t: arithmetic.rounded(arithmetic.dot([q * k for q, k in zip(query, key, strict=True)]) / arb(scale), 3)
            for t, key in at.items()
        }
        for at in keys
    ]
    everything = hull([s for at in scores for s in at.values()])
    spread = upper(2 * everything.rad())
    if not spread < MOST_SPREAD:
        return None
    shift = everything.upper()
    rho = arb(0)
    for j, at in enumerate(scores):
        for t, score in at.items():
            weights[j, t] = math.exp(float((score - shift).mid()))
            rho = rho.max(upper((score - shift).exp() / arb(weights[j, t]) - 1))
    if not rho < 0.5:
        return None
    rounding = (2 * arithmetic.growth(1) * spread).exp() * (1 + arithmetic.growth(4 * EXP_ULPS + len(keys) + 2))
    return upper((1 + rho) / (1 - rho) * rounding - 1)


def _columnwise(rows: object) -> list[Ball]:
    """The largest of each entry."""
    first, *rest = rows  # pyright: ignore[reportGeneralTypeIssues]
    for row in rest:
        first = [a.max(b) for a, b in zip(first, row, strict=True)]
    return first


def _basis(adder: OneLayerAdder, n_tokens: int) -> tuple[Float[np.ndarray, "r d"], np.ndarray]:
    """Directions that attention writes along, and coordinates [head, pos, token, r]: in float64, any would be valid."""
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
    """A float that is at least an exact ball; NaN stays NaN."""
    return math.nextafter(float(x), math.inf)
