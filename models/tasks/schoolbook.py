"""Column addition with carries, subtraction with borrows: the symbolic algorithm that labels every task's columns."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def signals(
    total: Int[Tensor, "*n column"], base: int = 10, borrows: bool = False
) -> dict[str, Int[Tensor, "*n column"]]:
    """What goes from column to column, from the digits' sums, or with ``borrows`` their differences, units first.

    digit_sum or digit_difference: the totals. carry_in, carry_out (or borrow_in, borrow_out): what comes into a column
    and goes on from it: 0 or 1 for two numbers. s: answer digit. generate: the column sends a carry on whatever comes
    in; propagate: it passes one on. chain: the number of columns that the carry into a column has travelled (0 without
    one). The answer digits include the last carry only if the last column leaves room for it.
    """
    sign, word, name = (-1, "borrow", "digit_difference") if borrows else (1, "carry", "digit_sum")
    generate = (total < 0 if borrows else total >= base).long()
    propagate = (total == (0 if borrows else base - 1)).long()
    signal, travelled = [torch.zeros_like(total[..., 0])], [torch.zeros_like(total[..., 0])]
    for column in range(total.shape[-1]):
        past = (travelled[-1] + 1) * signal[-1]
        travelled.append(torch.where(propagate[..., column] == 1, past, generate[..., column]))
        signal.append(sign * ((total[..., column] + sign * signal[-1]) // base))
    into, out = torch.stack(signal[:-1], -1), torch.stack(signal[1:], -1)
    return {
        name: total,
        f"{word}_in": into,
        f"{word}_out": out,
        "s": (total + sign * into) % base,
        "generate": generate,
        "propagate": propagate,
        "chain": torch.stack(travelled[:-1], -1),
    }


def schoolbook(
    a: Int[Tensor, "*n column"], b: Int[Tensor, "*n column"], base: int = 10
) -> dict[str, Int[Tensor, "*n column"]]:
    """Every intermediate value of adding two numbers given as digits of a base, least significant first: a and b, the
    digits, and :func:`signals`."""
    return {"a": a, "b": b} | signals(a + b, base)
