"""Intermediate values of arithmetic column by column, by the name of a family: addition, subtraction, complement (a
difference in ten's complement), multiplication, comparison, max.

A family computes them from the operands' digits [n, column] (units first), all in as many columns as the answer has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.columns.schoolbook import Column, schoolbook, signals

#: Digits of one operand, [n, column].
DigitRows = Int[Tensor, "n column"]
Variables = dict[str, Int[Tensor, "n column"]]


def _addition(digits: Sequence[DigitRows], base: int) -> Variables:
    """:func:`models.tasks.columns.schoolbook.schoolbook` for two operands, without what is always zero in a single
    column; for more operands ``digit_sum``, carries (which may pass 1) and the answer's digits ``s``."""
    if len(digits) == 2:
        found = schoolbook(digits[0], digits[1], base)
        alone = digits[0].shape[1] == 1
        return {name: found[name] for name in ("a", "b", "digit_sum", "carry_out", "s")} if alone else found
    found = signals(torch.stack(list(digits)).sum(0), Column(base=base))
    return {name: found[name] for name in ("digit_sum", "carry_in", "carry_out", "s")}


def _subtraction(digits: Sequence[DigitRows], base: int) -> Variables:
    """The smaller operand is taken from the larger. a, b: digits. negative: 1 where a < b. digit_difference: the larger
    operand's digit minus the smaller's. borrow_in, borrow_out: 0 or 1. generate: a negative digit difference;
    propagate: one of 0. s: answer digit. chain: columns that the borrow into a column has travelled (0 without one)."""
    a, b = digits
    difference, negative = a - b, torch.zeros_like(a[:, 0])
    for column in range(a.shape[1]):
        own = difference[:, column]
        negative = torch.where(own == 0, negative, (own < 0).long())
    difference = torch.where(negative[:, None] == 1, -difference, difference)
    return {"a": a, "b": b, "negative": negative[:, None]} | signals(difference, Column(base=base, subtracts=True))


def _complement(digits: Sequence[DigitRows], base: int) -> Variables:
    """The second operand is taken from the first, whichever is larger: the variables of subtraction without
    ``negative``. The answer has one column more than the operands, and in it the borrow that is left: 1 where a < b."""
    a, b = digits
    found = signals(a - b, Column(base=base, subtracts=True))
    return {"a": a, "b": b} | found | {"s": torch.cat((found["s"][:, :-1], found["borrow_in"][:, -1:]), 1)}


def _comparison(digits: Sequence[DigitRows], base: int) -> Variables:
    """a, b: digits. digit_order: the sign of a - b in a column. order: the sign of a - b over this column and all below
    it; in the highest column it is the answer. chain: how many of the columns from the highest down are equal."""
    a, b = digits
    own = (a - b).sign()
    order, chain = [torch.zeros_like(own[:, 0])], torch.zeros_like(own[:, 0])
    for column in range(own.shape[1]):
        order.append(torch.where(own[:, column] == 0, order[-1], own[:, column]))
        chain = torch.where(own[:, column] == 0, chain + 1, 0)
    return {
        "a": a,
        "b": b,
        "digit_order": own,
        "order": torch.stack(order[1:], 1),
        "chain": chain[:, None].expand_as(own),
    }


def _max(digits: Sequence[DigitRows], base: int) -> Variables:
    """The variables of comparison. s: the digits of the larger number."""
    found = _comparison(digits, base)
    return found | {"s": torch.where(found["order"][:, -1:] < 0, found["b"], found["a"])}


def _multiplication(digits: Sequence[DigitRows], base: int) -> Variables:
    """a, b: digits. digit_sum: the sum of the products of digits that belong into a column. carry_in, carry_out: what
    comes into it and goes on, which may pass 1. s: answer digit. chain: of the carry into a column, how many columns
    before it have sent one on without a break."""
    a, b = digits
    columns = range(a.shape[1])
    total = torch.stack(
        [sum((a[:, i] * b[:, k - i] for i in range(k + 1)), torch.zeros_like(a[:, 0])) for k in columns], 1
    )
    found, chain = signals(total, Column(base=base)), [torch.zeros_like(a[:, 0])]
    for column in columns:
        chain.append(torch.where(found["carry_out"][:, column] > 0, chain[-1] + 1, 0))
    named = {name: found[name] for name in ("digit_sum", "carry_in", "carry_out", "s")}
    return {"a": a, "b": b} | named | {"chain": torch.stack(chain[:-1], 1)}


def _spelt(found: Variables, answers: Int[Tensor, " n"], base: int) -> bool:
    """Whether the digits ``s`` are those of the answers and, where there is a sign, ``negative`` is theirs."""
    powers = base ** torch.arange(found["s"].shape[1])
    digits = torch.equal(answers.abs()[:, None] // powers % base, found["s"])
    return digits and ("negative" not in found or torch.equal(found["negative"][:, 0], (answers < 0).long()))


def _ordered(found: Variables, answers: Int[Tensor, " n"], base: int) -> bool:
    """Whether the answer depends on the order of the two numbers alone."""
    order = found["order"][:, -1]
    return all(len(answers[order == sign].unique()) <= 1 for sign in (-1, 0, 1)) and len(answers.unique()) > 1


@dataclass(frozen=True)
class ColumnFamily:
    """``explains(variables, answers, base)``: whether these are the variables of those answers. ``complement``: what
    travels here travels far where one digit of a column is replaced by base - 1 minus it, in problems of addition with
    long carries."""

    variables: Callable[[Sequence[DigitRows], int], Variables]
    operands: int | None  # how many it takes; None: two or more
    explains: Callable[[Variables, Tensor, int], bool]
    complement: bool = False
    as_wide_as_answer: bool = False  # whether there are as many columns as the answer has, and no more
    long_carries: bool = True  # whether they travel far here where those of addition do


FAMILIES: Mapping[str, ColumnFamily] = {
    "addition": ColumnFamily(_addition, None, _spelt, as_wide_as_answer=True),
    "subtraction": ColumnFamily(_subtraction, 2, _spelt, complement=True),
    "complement": ColumnFamily(_complement, 2, _spelt, complement=True),
    "multiplication": ColumnFamily(_multiplication, 2, _spelt, as_wide_as_answer=True, long_carries=False),
    "comparison": ColumnFamily(_comparison, 2, _ordered, complement=True),
    "max": ColumnFamily(_max, 2, _spelt, complement=True),
}


def require_operands(name: str, n: int) -> None:
    """Raise UserError if a family does not take ``n`` operands."""
    wanted = FAMILIES[name].operands
    if n < 2 or (wanted is not None and n != wanted):
        raise UserError(f"The variables of {name!r} are of {wanted or 'two or more'} operands, and the task has {n}.")
