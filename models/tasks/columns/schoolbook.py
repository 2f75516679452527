"""Column addition with carries, subtraction with borrows: what one column does, and what goes from column to column."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


@dataclass(frozen=True)
class Column:
    """Two digits are added, or the second is subtracted from the first.

    With sign = 1 or -1, a column with the digits x and y has the *total* ``x + sign y``. Into it comes a carry of 0 or
    1 (a borrow, where one subtracts), none into the units. It writes ``(total + sign carry) mod base``, and sends a
    carry on where ``total + sign carry`` is not a digit. Sums of more digits have larger totals, and carries above 1.

    Attributes:
        base: of the digits. subtracts: whether the second digit is subtracted.
    """

    base: int = field(default=10, kw_only=True)
    subtracts: bool = field(default=False, kw_only=True)

    @property
    def sign(self) -> int:
        return -1 if self.subtracts else 1

    @property
    def carry(self) -> str:
        """The word for what a column sends on: "carry" or "borrow"."""
        return "borrow" if self.subtracts else "carry"

    @property
    def total_name(self) -> str:
        """What a task calls the total among its variables."""
        return "digit_difference" if self.subtracts else "digit_sum"

    @property
    def name_in(self) -> str:
        """And what comes into a column."""
        return f"{self.carry}_in"

    @property
    def name_out(self) -> str:
        """And what it sends on."""
        return f"{self.carry}_out"

    def total(self, x: Any, y: Any) -> Any:
        """``x + sign y``, of arrays of digits or of numbers."""
        return x + self.sign * y

    def out(self, total: Any, carry: Any) -> Any:
        """The carry out of a column."""
        return self.sign * ((total + self.sign * carry) // self.base)

    def digit(self, total: Any, carry: Any) -> Any:
        """The digit that a column writes."""
        return (total + self.sign * carry) % self.base

    def makes(self, total: Any) -> Any:
        """Whether a column sends a carry on whatever comes in."""
        return total < 0 if self.subtracts else total >= self.base

    @property
    def passing(self) -> int:
        """The total with which a column sends on a carry if one comes in, and only then."""
        return 0 if self.subtracts else self.base - 1

    @cached_property
    def totals(self) -> range:
        """All totals of a column."""
        most = self.base - 1
        return range(-most, most + 1) if self.subtracts else range(2 * most + 1)

    @cached_property
    def columns(self) -> tuple[Int[np.ndarray, " n"], ...]:
        """All columns, 2 base^2 of them: ``base x + y``, carry in, carry out and the digit written."""
        pair, carry = (v.reshape(-1) for v in np.meshgrid(range(self.base**2), range(2), indexing="ij"))
        total = self.total(pair // self.base, pair % self.base)
        return pair, carry, self.out(total, carry), self.digit(total, carry)

    def along(self, total: Int[Tensor, "*n column"]) -> tuple[Int[Tensor, "*n column"], Int[Tensor, "*n end"]]:
        """Columns one after the other, the units first: the digits written, and the carry into each column and, at the
        end, out of the last."""
        carry, digits = [torch.zeros_like(total[..., 0])], []
        for column in total.unbind(-1):
            digits.append(self.digit(column, carry[-1]))
            carry.append(self.out(column, carry[-1]))
        return torch.stack(digits, -1), torch.stack(carry, -1)


def signals(total: Int[Tensor, "*n column"], rule: Column) -> dict[str, Int[Tensor, "*n column"]]:
    """What goes from column to column, from the digits' totals, units first.

    digit_sum or digit_difference: the totals. carry_in, carry_out (or borrow_in, borrow_out): what comes into a column
    and goes on from it: 0 or 1 for two numbers. s: answer digit. generate: the column sends a carry on whatever comes
    in; propagate: it passes one on. chain: the number of columns that the carry into a column has travelled (0 without
    one). The answer digits include the last carry only if the last column leaves room for it.
    """
    digits, carry = rule.along(total)
    generate, propagate = rule.makes(total).long(), (total == rule.passing).long()
    travelled = [torch.zeros_like(total[..., 0])]
    for column in range(total.shape[-1] - 1):
        past = (travelled[-1] + 1) * carry[..., column]
        travelled.append(torch.where(propagate[..., column] == 1, past, generate[..., column]))
    return {
        rule.total_name: total,
        rule.name_in: carry[..., :-1],
        rule.name_out: carry[..., 1:],
        "s": digits,
        "generate": generate,
        "propagate": propagate,
        "chain": torch.stack(travelled, -1),
    }


def schoolbook(
    a: Int[Tensor, "*n column"], b: Int[Tensor, "*n column"], base: int = 10
) -> dict[str, Int[Tensor, "*n column"]]:
    """Every intermediate value of adding two numbers given as digits of a base, least significant first: a and b, the
    digits, and :func:`signals`."""
    return {"a": a, "b": b} | signals(a + b, Column(base=base))
