"""The exact range of a sum over columns, in every class of inputs with one right answer.

A query that predicts answer digit i sees the operands, and the answer up to digit i - 1. Its *class* is what decides
the right answer and the query's own token: the previous answer digit z_{i-1}, the carry into column i, and x_i + y_i
(the borrow and x_i - y_i, where the second number is subtracted: :mod:`models.tasks.column_rule`). Over all 10^20 sums
of ten-digit numbers, 3,440 classes are not empty, and two more ask for EOS (after a last answer digit 0 or 1).

``s = sum_j T_j(d_j)`` is additive over columns once the carry into a column is known: a dynamic programme over columns,
with the carry as its state, finds its least and largest value in a class, and a problem that attains it. Terms are
integers, so that this is exact. That no borrow comes out of the last column is the same programme from above: of the
columns above a class's own, only those choices count that take its carry on to an end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.token_layout import Layout
from models.tasks.column_rule import ColumnRule

_LARGEST = np.int64(2**62)  # stands for the value of what cannot occur


@dataclass(frozen=True, eq=False)
class Classes:
    """All classes of inputs, and the range of the sum over each.

    Attributes:
        rule: what a column does.
        target: 0 to 10 for an answer digit, 11 for EOS (with ten digits and a carry out of the last column).
        previous: the answer digit before (-1 at target 0). carry: the carry or borrow into the target's column, or out
            of the last one.
        total: the sum of the digits x_i + y_i, or their difference (-1 where no column is left).
        token: the query's own token. answer: the right token.
        ends: least and largest value of the sum; empty for a method that does not bound such a sum.
        witnesses: two operands that attain each end or, without ends, were found to have a small margin.
    """

    rule: ColumnRule
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
        rule = self.rule
        right = rule.holds(*np.moveaxis(pairs, -1, 0))
        a, b = np.moveaxis(np.where(right[..., None], pairs, 0), -1, 0)
        target = self.target[:, None]
        column = np.minimum(target, rule.digits)
        power = 10**column
        carry = rule.carry_into(a, b, column)
        total = np.where(target < rule.digits, rule.total(a // power % 10, b // power % 10), -1)
        previous = np.where(target > 0, rule.total(a, b) // 10 ** np.maximum(column - 1, 0) % 10, -1)
        previous = np.where(target > rule.digits, carry, previous)
        same = (carry == self.carry[:, None]) & (total == self.total[:, None])
        return right & same & (previous == self.previous[:, None])


def all_classes(layout: Layout, terms: Int[np.ndarray, "query pos token"]) -> Classes:
    """The range of ``sum_j terms[query, j, d_j]`` over every class, with problems that attain its ends.

    Precondition: |terms| below 2^57, so that sums of 33 are exact. Postcondition: for every problem and every query,
    the sum lies within the ends of its class, and each end is the sum of its witness, which belongs to the class.

    Lemma (Bellman): ``F_{j+1}(c') = min over (x, y, c) with carry-out c' of F_j(c) + T(x) + T(y) + T(z)`` is the least
    sum of columns 0..j over all their digits with carry-out c'. In the same way ``G_j(c) = min over (x, y) of T(x) +
    T(y) + G_{j+1}(c')`` is that of the columns after the query's own, with carry c into column j and one of the rule's
    ends out of the last. Maxima are minima of the negated terms.

    Cost: queries x columns x 200 additions, about 20 ms.
    """
    low, high = (_minima(layout, sign * terms) for sign in (1, -1))
    keys = np.array(low[0], dtype=np.int64)
    target, previous, carry, total, token, answer = keys.T
    ends = np.stack((low[1], -high[1]), 1)
    return Classes(layout.rule, target, previous, carry, total, token, answer, ends, np.stack((low[2], high[2]), 1))


def numbers_of_problems(classes: Classes) -> list[int]:
    """How many problems each class holds, exactly: for every target they add up to all (10^20, or the half of it that
    :meth:`models.tasks.column_rule.ColumnRule.free` gives)."""
    rule = classes.rule
    _, into_column, out, written = rule.columns
    column = np.zeros((10, 2, 2), dtype=int)  # digit pairs by digit written, carry out, carry in
    np.add.at(column, (written, out, into_column), 1)
    ways = column.tolist()
    before, into = [], [1, 0]  # [column][digit written][carry out]; by the carry into a column
    for _ in range(rule.digits):
        before.append([[sum(ways[z][out][c] * into[c] for c in (0, 1)) for out in (0, 1)] for z in range(10)])
        into = [sum(before[-1][z][out] for z in range(10)) for out in (0, 1)]
    found = []
    rows = (classes.target, classes.previous, classes.carry, classes.total)
    for target, previous, carry, total in zip(*(x.tolist() for x in rows), strict=True):
        if target > rule.digits:
            found.append(into[carry])
            continue
        below = before[target - 1][previous][carry] if target else 1
        if target < rule.digits:
            own = sum(rule.total(x, y) == total for x in range(10) for y in range(10))
            below *= own * rule.free(rule.digits - 1 - target)[rule.out(total, carry)]
        found.append(below)
    return found


def _minima(layout: Layout, terms: np.ndarray) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
    """Keys, least sums [n] and the operands that attain them [n, 2]; the order does not depend on the terms."""
    keys: list[tuple[int, ...]] = []
    least: list[int] = []
    digits: list[np.ndarray] = []
    rule, digit_count = layout.rule, layout.rule.digits
    for target, query in enumerate(layout.queries):
        t = terms[target]
        prefix = _Prefix(rule)
        written = None
        for column in range(min(target, digit_count)):
            # The last column of the prefix is split by the digit that it writes, which is the query's own token.
            prefix, written = prefix.extend(_column(layout, t, column))
        delimiters = [j for j, allowed in enumerate(layout.tokens) if len(allowed) == 1 and j not in layout.answers]
        fixed = sum(int(t[j, layout.tokens[j][0]]) for j in delimiters)
        rest, rest_digits = _free(layout, t, range(target + 1, digit_count))
        eos = -1 if layout.eos is None else layout.eos
        if target == digit_count + 1:
            position = layout.answers[digit_count]
            for carry in rule.ends:
                keys.append((target, carry, carry, -1, carry, eos))
                least.append(fixed + int(prefix.value[carry]) + int(t[position, carry]))
                digits.append(prefix.digits[carry])
            continue
        own = _pairs_of_total(layout, t, target) if target < digit_count else [(-1, 0, (0, 0))]
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
                out = rule.out(total, carry) if target < digit_count else carry
                if rest[out] == _LARGEST:
                    continue
                answer = rule.digit(total, carry) if target < digit_count else carry
                answer = eos if target == rule.written else answer
                keys.append((target, previous, carry, total, token, answer))
                least.append(fixed + int(rest[out]) + value + cost)
                found = before + rest_digits[out]
                if target < digit_count:
                    found[target] = pair
                digits.append(found)
    powers = 10 ** np.arange(digit_count, dtype=np.int64)
    return keys, np.array(least), np.einsum("ncd,c->nd", np.stack(digits), powers)


class _Prefix:
    """Least sums over columns before some column, by the carry into it, and their digits [carry, column, operand]."""

    def __init__(self, rule: ColumnRule) -> None:
        self.rule = rule
        self.value = np.array([0, _LARGEST])
        self.digits = np.zeros((2, rule.digits, 2), dtype=np.int64)
        self.length = 0

    def extend(self, cost: Int[np.ndarray, " 200"]) -> tuple[_Prefix, _Written]:
        """The sums with one more column, by carry, and the same sums also by the digit written there."""
        pair, into, out, digit = self.rule.columns
        value = np.where(self.value[into] < _LARGEST, self.value[into] + cost, _LARGEST)
        written = _Written(self.rule)
        for z in range(10):
            for carry in (0, 1):
                choices = np.flatnonzero((z == digit) & (carry == out))
                best = choices[value[choices].argmin()]
                written.value[z, carry] = value[best]
                written.digits[z, carry] = self.digits[into[best]]
                written.digits[z, carry, self.length] = divmod(pair[best], 10)
        extended = _Prefix(self.rule)
        extended.length = self.length + 1
        for carry in (0, 1):
            z = int(written.value[:, carry].argmin())
            extended.value[carry], extended.digits[carry] = written.value[z, carry], written.digits[z, carry]
        return extended, written


class _Written:
    """As :class:`_Prefix`, for each [digit written in the last column, carry out of it]."""

    def __init__(self, rule: ColumnRule) -> None:
        self.value = np.full((10, 2), _LARGEST)
        self.digits = np.zeros((10, 2, rule.digits, 2), dtype=np.int64)


def _column(layout: Layout, t: np.ndarray, column: int) -> Int[np.ndarray, " 200"]:
    """The terms of a column whose answer digit is read, summed for each choice of two digits and a carry."""
    a, b = layout.operands[:, column]
    pair, _, _, written = layout.rule.columns
    return t[a, pair // 10] + t[b, pair % 10] + t[layout.answers[column], written]


def _pairs_of_total(layout: Layout, t: np.ndarray, column: int) -> list[tuple[int, int, tuple[int, int]]]:
    """(total, least term, digits) for a column whose answer digit is asked for."""
    a, b = layout.operands[:, column]
    both = t[a, :10, None] + t[b, None, :10]
    found = []
    for total in layout.rule.totals:
        pairs = ((x, layout.rule.sign * (total - x)) for x in range(10))
        x, y = min((pair for pair in pairs if 0 <= pair[1] < 10), key=lambda p: both[p])
        found.append((total, int(both[x, y]), (x, y)))
    return found


def _free(
    layout: Layout, t: np.ndarray, columns: range
) -> tuple[Int[np.ndarray, " carry"], Int[np.ndarray, "carry column 2"]]:
    """Least sums over the columns whose answer digits come after the query, by the carry into the lowest of them (the
    largest number where it leads to no end), and their digits."""
    rule = layout.rule
    pair, into, out, _ = rule.columns
    value = np.array([0 if carry in rule.ends else _LARGEST for carry in (0, 1)])
    digits = np.zeros((2, rule.digits, 2), dtype=np.int64)
    for column in reversed(columns):
        a, b = layout.operands[:, column]
        cost = np.where(value[out] < _LARGEST, t[a, pair // 10] + t[b, pair % 10] + value[out], _LARGEST)
        best = [np.flatnonzero(into == carry)[cost[into == carry].argmin()] for carry in (0, 1)]
        value, digits = cost[best], digits[out[best]]
        for carry in (0, 1):
            digits[carry, column] = divmod(pair[best[carry]], 10)
    return value, digits
