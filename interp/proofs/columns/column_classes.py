"""The classes of inputs of a task that adds or subtracts column by column.

A query that predicts answer digit i sees the operands, and the answer up to digit i - 1. Its *class* is what decides
the right answer and the query's own token: the previous answer digit z_{i-1}, the carry into column i, and x_i + y_i
(the borrow and x_i - y_i, where the second number is subtracted: :mod:`interp.proofs.columns.column_rule`). Over all
10^20 sums of ten-digit numbers, 3,440 classes are not empty, and two more ask for EOS (after a last answer digit 0
or 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.digit_layout import TokenLayout


@dataclass(frozen=True, eq=False)
class Classes:
    """All classes that have a problem.

    Attributes:
        rule: what a column does.
        target: 0 to 10 for an answer digit, 11 for EOS (with ten digits and a carry out of the last column).
        previous: the answer digit before (-1 at target 0). carry: the carry or borrow into the target's column, or out
            of the last one.
        total: the sum of the digits x_i + y_i, or their difference (-1 where no column is left).
        token: the query's own token. answer: the right token.
        numbers: how many problems each class holds, exactly: for every target they add up to all of them.
        witnesses: two operands that were found to have a small margin; zeros where none were looked for.
    """

    rule: ColumnRule
    target: Int[np.ndarray, " n"]
    previous: Int[np.ndarray, " n"]
    carry: Int[np.ndarray, " n"]
    total: Int[np.ndarray, " n"]
    token: Int[np.ndarray, " n"]
    answer: Int[np.ndarray, " n"]
    numbers: tuple[int, ...]
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


def all_classes(layout: TokenLayout) -> Classes:
    """All classes of a layout, by target, previous digit, carry and total, with their numbers of problems.

    The digits below a query's column are counted column by column, by the digit written and the carry; those above it
    by :meth:`interp.proofs.columns.column_rule.ColumnRule.free`.
    """
    rule, eos = layout.rule, -1 if layout.eos is None else layout.eos
    _, into, out, written = rule.columns
    column = np.zeros((10, 2, 2), dtype=int)  # digit pairs by digit written, carry out, carry in
    np.add.at(column, (written, out, into), 1)
    ways = column.tolist()
    pairs = {total: sum(rule.total(x, y) == total for x in range(10) for y in range(10)) for total in rule.totals}
    before, below = [], [1, 0]  # digits below by (digit written last, carry), and by the carry
    rows: list[tuple[int, ...]] = []
    numbers: list[int] = []
    for target, query in enumerate(layout.queries):
        if target > rule.digits:
            found = [(carry, carry, carry, below[carry]) for carry in rule.ends]
        elif target:
            found = [(z, carry, z, before[z][carry]) for z in range(10) for carry in (0, 1)]
        else:
            found = [(-1, 0, layout.tokens[query][0], 1)]
        for previous, carry, token, number in found:
            for total in rule.totals if target < rule.digits else (-1,):
                answer, last = carry, number * (carry in rule.ends)
                if target < rule.digits:
                    answer = int(rule.digit(total, carry))
                    last = number * pairs[total] * rule.free(rule.digits - 1 - target)[int(rule.out(total, carry))]
                if last:
                    answer = eos if target == rule.written or target > rule.digits else answer
                    rows.append((target, previous, carry, total, token, answer))
                    numbers.append(last)
        if target < rule.digits:
            before = [[sum(ways[z][c][into] * below[into] for into in (0, 1)) for c in (0, 1)] for z in range(10)]
            below = [sum(by_digit[c] for by_digit in before) for c in (0, 1)]
    target, previous, carry, total, token, answer = np.array(rows, dtype=np.int64).T
    none = np.zeros((len(rows), 1, 2), dtype=np.int64)
    return Classes(rule, target, previous, carry, total, token, answer, tuple(numbers), none)
