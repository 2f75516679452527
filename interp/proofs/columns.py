"""The exact range of a sum over columns, in every class of inputs with one right answer.

A query that predicts answer digit i sees the operands, and the answer up to digit i - 1. Its *class* is what decides
the right answer and the query's own token: the previous answer digit z_{i-1}, the carry into column i, and x_i + y_i.
Over all 10^20 problems, 3,440 classes are not empty, and two more ask for EOS (after a last answer digit 0 or 1).

``s = sum_j T_j(d_j)`` is additive over columns once the carry into a column is known: a dynamic programme over columns,
with the carry as its state, finds its least and largest value in a class, and a problem that attains it. Terms are
integers, so that this is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.one_layer import Layout
from models.tasks.ten_digits import DIGITS, LIMIT

_A, _B, _CARRY = (x.reshape(-1) for x in np.meshgrid(range(10), range(10), range(2), indexing="ij"))  # 200 columns
_TOTAL = _A + _B + _CARRY
_OUT, _WRITTEN = _TOTAL // 10, _TOTAL % 10
_LARGEST = np.int64(2**62)  # stands for the value of what cannot occur


@dataclass(frozen=True, eq=False)
class Classes:
    """All classes of inputs, and the range of the sum over each.

    Attributes:
        target: 0 to 10 for an answer digit, 11 for EOS.
        previous: the answer digit before (-1 at target 0). carry: the carry into the target's column, or out of the
            last one.
        total: the sum of the digits x_i + y_i (-1 where no column is left).
        token: the query's own token. answer: the right token.
        ends: least and largest value of the sum; empty for a method that does not bound such a sum.
        witnesses: two operands that attain each end or, without ends, were found to have a small margin.
    """

    target: Int[np.ndarray, " n"]
    previous: Int[np.ndarray, " n"]
    carry: Int[np.ndarray, " n"]
    total: Int[np.ndarray, " n"]
    token: Int[np.ndarray, " n"]
    answer: Int[np.ndarray, " n"]
    ends: Int[np.ndarray, "n end"]
    witnesses: Int[np.ndarray, "n witness 2"]

    def __len__(self) -> int:
        return len(self.target)

    def hold(self, pairs: Int[np.ndarray, "n witness 2"]) -> Bool[np.ndarray, "n witness"]:
        """Which pairs are problems of the class in whose row they stand."""
        right = np.all((pairs >= 0) & (pairs < LIMIT), axis=-1)
        a, b = np.moveaxis(np.where(right[..., None], pairs, 0), -1, 0)
        target = self.target[:, None]
        column = np.minimum(target, DIGITS)
        power = 10**column
        carry = (a % power + b % power) // power
        total = np.where(target < DIGITS, a // power % 10 + b // power % 10, -1)
        previous = np.where(target > 0, (a + b) // 10 ** np.maximum(column - 1, 0) % 10, -1)
        previous = np.where(target > DIGITS, carry, previous)
        same = (carry == self.carry[:, None]) & (total == self.total[:, None])
        return right & same & (previous == self.previous[:, None])


def all_classes(layout: Layout, terms: Int[np.ndarray, "query pos token"]) -> Classes:
    """The range of ``sum_j terms[query, j, d_j]`` over every class, with problems that attain its ends.

    Precondition: |terms| below 2^57, so that sums of 33 are exact. Postcondition: for every problem and every query,
    the sum lies within the ends of its class, and each end is the sum of its witness, which belongs to the class.

    Lemma (Bellman): ``F_{j+1}(c') = min over (x, y, c) with carry-out c' of F_j(c) + T(x) + T(y) + T(z)`` is the least
    sum of columns 0..j over all their digits with carry-out c'; columns after the query's own are free, and add their
    own minima. Maxima are minima of the negated terms.

    Cost: queries x columns x 200 additions, about 20 ms.
    """
    low, high = (_minima(layout, sign * terms) for sign in (1, -1))
    keys = np.array(low[0], dtype=np.int64)
    target, previous, carry, total, token, answer = keys.T
    ends = np.stack((low[1], -high[1]), 1)
    return Classes(target, previous, carry, total, token, answer, ends, np.stack((low[2], high[2]), 1))


def numbers_of_problems(classes: Classes) -> list[int]:
    """How many of the 10^20 pairs each class holds, exactly: for every target they add up to 10^20."""
    column = np.zeros((10, 2, 2), dtype=int)  # digit pairs by digit written, carry out, carry in
    np.add.at(column, (_WRITTEN, _OUT, _CARRY), 1)
    ways = column.tolist()
    before, into = [], [1, 0]  # [column][digit written][carry out]; by the carry into a column
    for _ in range(DIGITS):
        before.append([[sum(ways[z][out][c] * into[c] for c in (0, 1)) for out in (0, 1)] for z in range(10)])
        into = [sum(before[-1][z][out] for z in range(10)) for out in (0, 1)]
    found = []
    rows = (classes.target, classes.previous, classes.carry, classes.total)
    for target, previous, carry, total in zip(*(x.tolist() for x in rows), strict=True):
        if target > DIGITS:
            found.append(into[carry])
            continue
        own = 10 - abs(total - 9) if target < DIGITS else 1
        below = before[target - 1][previous][carry] if target else 1
        found.append(below * own * 100 ** max(0, DIGITS - 1 - target))
    return found


def _minima(layout: Layout, terms: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
    """Keys, least sums [n] and the operands that attain them [n, 2]; the order does not depend on the terms."""
    keys: list[tuple[int, ...]] = []
    least: list[int] = []
    digits: list[np.ndarray] = []
    for target, query in enumerate(layout.queries):
        t = terms[target]
        prefix = _Prefix()
        written = None
        for column in range(min(target, DIGITS)):
            # The last column of the prefix is split by the digit that it writes, which is the query's own token.
            prefix, written = prefix.extend(_column(layout, t, column))
        fixed = sum(int(t[j, allowed[0]]) for j, allowed in enumerate(layout.tokens) if len(allowed) == 1)
        rest, rest_digits = _free(layout, t, range(target + 1, DIGITS))
        if target == DIGITS + 1:
            position = layout.answers[DIGITS]
            for carry in (0, 1):
                keys.append((target, carry, carry, -1, carry, int(layout.eos)))  # pyright: ignore[reportArgumentType]
                least.append(fixed + int(prefix.value[carry]) + int(t[position, carry]))
                digits.append(prefix.digits[carry])
            continue
        own = _pairs_of_sum(layout, t, target) if target < DIGITS else [(-1, 0, (0, 0))]
        starts = (
            [(-1, 0, layout.tokens[query][0], 0, prefix.digits[0])]
            if written is None
            else [
                (z, c, z, int(written.value[z, c]), written.digits[z, c])
                for z in range(10)
                for c in (0, 1)
                if written.value[z, c] < _LARGEST
            ]
        )
        for previous, carry, token, value, before in starts:
            for total, cost, pair in own:
                answer = carry if target == DIGITS else (total + carry) % 10
                keys.append((target, previous, carry, total, token, answer))
                least.append(fixed + rest + value + cost)
                found = before + rest_digits
                if target < DIGITS:
                    found[target] = pair
                digits.append(found)
    powers = 10 ** np.arange(DIGITS, dtype=np.int64)
    return keys, np.array(least), np.einsum("ncd,c->nd", np.stack(digits), powers)


class _Prefix:
    """Least sums over columns before some column, by the carry into it, and their digits [carry, column, operand]."""

    def __init__(self) -> None:
        self.value = np.array([0, _LARGEST])
        self.digits = np.zeros((2, DIGITS, 2), dtype=np.int64)
        self.length = 0

    def extend(self, cost: Int[np.ndarray, " 200"]) -> tuple[_Prefix, _Written]:
        """The sums with one more column, by carry, and the same sums also by the digit written there."""
        value = np.where(self.value[_CARRY] < _LARGEST, self.value[_CARRY] + cost, _LARGEST)
        written = _Written()
        for z in range(10):
            for carry in (0, 1):
                choices = np.flatnonzero((z == _WRITTEN) & (carry == _OUT))
                best = choices[value[choices].argmin()]
                written.value[z, carry] = value[best]
                written.digits[z, carry] = self.digits[_CARRY[best]]
                written.digits[z, carry, self.length] = _A[best], _B[best]
        extended = _Prefix()
        extended.length = self.length + 1
        for carry in (0, 1):
            z = int(written.value[:, carry].argmin())
            extended.value[carry], extended.digits[carry] = written.value[z, carry], written.digits[z, carry]
        return extended, written


class _Written:
    """As :class:`_Prefix`, for each [digit written in the last column, carry out of it]."""

    def __init__(self) -> None:
        self.value = np.full((10, 2), _LARGEST)
        self.digits = np.zeros((10, 2, DIGITS, 2), dtype=np.int64)


def _column(layout: Layout, t: np.ndarray, column: int) -> Int[np.ndarray, " 200"]:
    """The terms of a column whose answer digit is read, summed for each choice of two digits and a carry."""
    a, b = layout.operands[:, column]
    return t[a, _A] + t[b, _B] + t[layout.answers[column], _WRITTEN]


def _pairs_of_sum(layout: Layout, t: np.ndarray, column: int) -> list[tuple[int, int, tuple[int, int]]]:
    """(x + y, least term, digits) for a column whose answer digit is asked for."""
    a, b = layout.operands[:, column]
    both = t[a, :10, None] + t[b, None, :10]
    found = []
    for total in range(19):
        x, y = min(((x, total - x) for x in range(max(0, total - 9), min(9, total) + 1)), key=lambda p: both[p])
        found.append((total, int(both[x, y]), (x, y)))
    return found


def _free(layout: Layout, t: np.ndarray, columns: range) -> tuple[int, np.ndarray]:
    """Least sum over the columns whose answer digits come after the query, and their digits."""
    digits = np.zeros((DIGITS, 2), dtype=np.int64)
    value = 0
    for column in columns:
        for operand in (0, 1):
            row = t[layout.operands[operand, column], :10]
            digits[column, operand] = row.argmin()
            value += int(row.min())
    return value, digits
