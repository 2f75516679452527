"""Column addition with carries: the symbolic algorithm with which every addition task labels its columns."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def schoolbook(
    a: Int[Tensor, "*n column"], b: Int[Tensor, "*n column"], base: int = 10
) -> dict[str, Int[Tensor, "*n column"]]:
    """Every intermediate value of adding two numbers given as digits of a base, least significant first.

    a, b: digits. digit_sum: a + b. carry_in, carry_out: 0 or 1. s: answer digit. generate: a + b >= base;
    propagate: a + b = base - 1. chain: number of columns that the carry into a column has travelled (0 without one).
    The answer digits include the last carry only if the last column leaves room for it.
    """
    digit_sum = a + b
    generate, propagate = (digit_sum >= base).long(), (digit_sum == base - 1).long()
    carry, travelled = [torch.zeros_like(digit_sum[..., 0])], [torch.zeros_like(digit_sum[..., 0])]
    for column in range(digit_sum.shape[-1]):
        past_nine = (travelled[-1] + 1) * carry[-1]
        travelled.append(torch.where(propagate[..., column] == 1, past_nine, generate[..., column]))
        carry.append((digit_sum[..., column] + carry[-1] >= base).long())
    carry_in, carry_out = torch.stack(carry[:-1], -1), torch.stack(carry[1:], -1)
    return {
        "a": a,
        "b": b,
        "digit_sum": digit_sum,
        "carry_in": carry_in,
        "carry_out": carry_out,
        "s": (digit_sum + carry_in) % base,
        "generate": generate,
        "propagate": propagate,
        "chain": torch.stack(travelled[:-1], -1),
    }
