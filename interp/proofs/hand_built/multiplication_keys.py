"""Where the hand-built multiplication transformer looks: the keys that match a query, in exact scores.

These are the first two steps of the proof in :mod:`interp.proofs.hand_built.multiplication_proof`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from flint import arb
from jaxtyping import Bool, Float, Int

from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.numbers.arb_balls import Ball, growth
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import DOUBLE, FUSED_EXP, TINY
from models.tasks import Multiplication
from models.tasks.named.position_coupling.multiplication import DOLLAR

#: The digits that a head may find, which a case gives values. Any other digits are a mixture of unknown ones.
VARIABLES = ("A[k]", "A[k-1]", "B[j]", "p_j[k]", "p_j[k-1]", "c_{j-1}[k]", "c_{j-1}[k-1]")
NOTHING, DELIMITER, MIXTURE, FIRST_VARIABLE = 0, 1, 2, 3
A, B, PRODUCT, SUM = range(4)  # kinds of numbers
BLOCK = 256  # queries whose scores are computed at once


@dataclass(frozen=True, eq=False)
class Places:
    """Where the tokens stand for one size. A delimiter is column -1 of the number after it; BOS has kind -1."""

    M: int
    N: int
    tokens: Int[np.ndarray, " pos"]  # for the problem 0 * 0
    right: Int[np.ndarray, " pos"]  # the right next tokens
    ids: Int[np.ndarray, "pos level"]
    kind: Int[np.ndarray, " pos"]
    number: Int[np.ndarray, " pos"]  # 1 ... N of products and sums, else 0
    column: Int[np.ndarray, " pos"]

    @classmethod
    def of(cls, task: Multiplication) -> Places:
        M, N = task.shape
        sequences = task.sequences(torch.zeros(1, 2, task.n_digits, dtype=torch.int64))
        ids = task.position_ids(sequences.inputs)[0].numpy()
        segment, column = (part[0, :-1].numpy() for part in (sequences.segment, sequences.column))
        segment = segment + ((column < 0) & (segment >= 0))
        kind = np.where(segment < 2, segment, np.where(segment < 2 + N, PRODUCT, SUM))
        number = np.where(kind == PRODUCT, segment - 1, np.where(kind == SUM, segment - 1 - N, 0))
        tokens, right = sequences.inputs[0].numpy(), sequences.targets[0].numpy()
        return cls(M, N, tokens, right, ids, kind, number, column)

    @cached_property
    def queries(self) -> Int[np.ndarray, " query"]:
        return np.flatnonzero(self.kind >= PRODUCT)

    @property
    def names(self) -> Int[np.ndarray, " pos"]:
        """One integer per token, made of kind, number and column."""
        return ((self.kind + 1) << 40) + (self.number << 20) + self.column + 1

    def within(self, largest: Places) -> Int[np.ndarray, " pos"]:
        """The places of these tokens among those of the largest size.

        Raises:
            NotSeparated: they do not occur there with the same ids and in the same order.
        """
        order = np.argsort(largest.names)
        at = order[np.searchsorted(largest.names, self.names, sorter=order).clip(max=len(order) - 1)]
        same = (largest.names[at] == self.names) & (largest.tokens[at] == self.tokens)
        same &= (largest.ids[at] == self.ids).all(1)
        if not same.all() or (np.diff(at) <= 0).any():
            raise NotSeparated(f"position ids of {self.M} x {self.N} digits are not those of the largest size")
        return at

    def exist(self) -> Bool[np.ndarray, "query which"]:
        """Which digits of OWN and PREVIOUS a query has: the first number's in columns k and k - 1, the second's."""
        q = self.queries
        k, j, stage = self.column[q] + 1, self.number[q], self.kind[q]
        shifted = np.where(stage == PRODUCT, k, k - (j - 1))
        width = np.where(stage == PRODUCT, self.M, self.M + 1)
        first = [(shifted - back >= 0) & (shifted - back < width) for back in (0, 1)]
        before = (stage == SUM) & (j > 1)
        second = [before & (k - back >= 0) & (k - back < self.M + self.N) for back in (0, 1)]
        return np.stack((*first, *second), 1)


@dataclass(frozen=True, eq=False)
class FoundKeys:
    """Where one head looks in the largest size.

    ``query`` and ``key`` are its matches other than BOS; ``label`` is a code for the key's part as seen from the query.
    """

    query: Int[np.ndarray, " match"]
    key: Int[np.ndarray, " match"]
    label: Int[np.ndarray, " match"]
    most: int  # the most matches of one query
    match: Ball  # the weight of one match, where BOS has 1
    rest: Ball  # the weight of all other keys together, for any query


def find_keys(
    places: Places,
    W_E: Float[np.ndarray, "token d_model"],
    placed: Float[np.ndarray, "pos d_model"],
    W_Q: Float[np.ndarray, "d_model d_head"],
    W_K: Float[np.ndarray, "d_model d_head"],
    near: float,
    arithmetic: Rounding,
) -> FoundKeys:
    """What one head finds. ``placed`` is what positions add to the residual stream. A match is a key whose score is
    less than ``near`` below that of BOS.

    Which keys are called matches decides how good the bounds are, and not whether they hold.

    Raises:
        NotSeparated: queries or keys depend on digits, or float64 may round a score.
    """
    ordinary = np.arange(len(W_E)) != DOLLAR
    x = placed + W_E[np.where(places.kind < 0, DOLLAR, 0)]
    q, k, error = x[places.queries] @ W_Q, x @ W_K, 0.0
    # For any token at any place: bounds of the sums of magnitudes, and a number that divides every term.
    reach, step = abs(placed).max(0) + abs(W_E).max(0), min(quantum(W_E), quantum(placed))
    q_size, k_size = reach @ abs(W_Q), reach @ abs(W_K)
    sums = (
        (float(q_size.max()), step * quantum(W_Q)),
        (float(k_size.max()), step * quantum(W_K)),
        (float(q_size @ k_size), step**2 * quantum(W_Q) * quantum(W_K)),
    )
    if not all(is_exact(*part, bits=53) for part in sums):
        raise NotSeparated("weights have too many binary digits to be multiplied exactly")
    for W, what in ((W_Q, "queries depend on the token"), (W_K, "keys depend on the digit")):
        of_token = (W_E @ W)[ordinary]
        if (of_token != of_token[0]).any():
            raise NotSeparated(what)
    if arithmetic.unit32 and not all(is_exact(*part, bits=24) for part in sums):
        size = float(q_size @ k_size)
        terms = sum(int((W != 0).sum(0).max()) for W in (W_Q, W_K)) + q.shape[1] + 8
        error = float(np.nextafter(float((2 * size * growth(arithmetic, terms)).upper()), np.inf))
    queries, keys, rest, tie = [], [], 0.0, 0.0
    for start in range(0, len(q), BLOCK):
        gap = q[start : start + BLOCK] @ k.T
        gap -= gap[:, :1].copy()
        at = places.queries[start : start + BLOCK]
        gap[np.arange(len(k)) > at[:, None]] = -np.inf
        matched = gap > -near
        matched[:, 0] = False  # BOS itself
        row, key = np.nonzero(matched)
        queries.append(at[row])
        keys.append(key)
        tie = max(tie, float(abs(gap[row, key]).max(initial=0.0)))
        weights = torch.from_numpy(np.where(matched, -np.inf, gap)).exp_()
        rest = max(rest, float(weights[:, 1:].sum(1).max()))
    query, key = np.concatenate(queries), np.concatenate(keys)
    # As float32 computes them: with the two scores' errors, the exponential's, and what underflow may add.
    wide = arb(error).exp() * (1 + growth(arithmetic, 2 * FUSED_EXP))
    tiny = len(k) * TINY if arithmetic.unit32 else 0.0
    tied = arb(tie * (1 + 4 * DOUBLE) + error).exp()
    return FoundKeys(
        query=query,
        key=key,
        label=labels(places, query, key),
        most=int(np.bincount(query, minlength=1).max(initial=0)),
        match=tied.union(1 / tied),
        rest=(arb(rest * (1 + (len(k) + 8) * 4 * DOUBLE)) * wide + tiny).upper(),
    )


def labels(at: Places, query: np.ndarray, key: np.ndarray) -> Int[np.ndarray, " match"]:
    """The code of each key's part as seen from its query: a variable, a delimiter, or a mixture."""
    k, j, stage = at.column[query] + 1, at.number[query], at.kind[query]
    kind, number, column = at.kind[key], at.number[key], at.column[key]
    product, second = stage == PRODUCT, stage == SUM
    of_variable = (
        product & (kind == A) & (column == k),
        product & (kind == A) & (column == k - 1),
        product & (kind == B) & (column == j - 1),
        second & (kind == PRODUCT) & (number == j) & (column == k - (j - 1)),
        second & (kind == PRODUCT) & (number == j) & (column == k - 1 - (j - 1)),
        second & (kind == SUM) & (number == j - 1) & (column == k),
        second & (kind == SUM) & (number == j - 1) & (column == k - 1),
    )
    label = np.full(len(query), MIXTURE)
    for i, chosen in enumerate(of_variable):
        label[chosen] = FIRST_VARIABLE + i
    label[column < 0] = DELIMITER
    return label


def quantum(x: np.ndarray) -> float:
    """The largest power of two that divides all entries; any power divides 0."""
    if not np.isfinite(x).all():
        raise NotSeparated("a weight is not a finite number")
    mantissa, exponent = np.frexp(x[x != 0])
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    return float(np.ldexp((whole & -whole).astype(np.float64), exponent - 53).min(initial=np.inf))


def is_exact(size: float, step: float, bits: int) -> bool:
    """Whether a sum is exact with this many bits, in any order. Its terms are multiples of ``step``, a power of two,
    and their magnitudes add up to at most ``size``, which may itself be rounded."""
    return size * (1 + 2.0**-20) <= 2.0**bits * step
