"""Problems with many operands, of one shape: rich in carries, and with the extremes.

40% of a shape's problems are uniform, 20% have operands of any length, 30% are carry-heavy (most columns of every
running sum add up to exactly 9, so carries travel), and the last few are the extremes: all nines, all zeros, nines plus
one, and all ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks import propagate_carries


def grid_problems(n_operands: int, n_digits: int, n: int, seed: int) -> Int[Tensor, "n operand column"]:
    """``n`` problems of one shape, of the kinds above; the extremes come first, in case n is small."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + 1009 * n_operands + n_digits)
    draw = lambda *shape: torch.randint(10, shape, generator=generator)  # noqa: E731
    shape = (n_operands, n_digits)
    nines, zeros, ones = torch.full(shape, 9), torch.zeros(shape, dtype=torch.int64), torch.ones(shape).long()
    plus_one = zeros.clone()
    plus_one[0] = 9
    plus_one[min(1, n_operands - 1), 0] = 1 if n_operands > 1 else 9
    extremes = torch.stack((nines, plus_one, zeros, ones))[:n]
    left = n - len(extremes)
    heavy = carry_heavy(n_operands, n_digits, (3 * n + 9) // 10 if left > 3 else left, generator)[:left]
    left -= len(heavy)
    short = draw(n // 5, *shape)[:left]
    lengths = torch.randint(1, n_digits + 1, (*short.shape[:2], 1), generator=generator)
    short = short * (torch.arange(n_digits) < lengths)
    uniform = draw(left - len(short), *shape)
    uniform[..., -1] = torch.randint(1, 10, uniform.shape[:2], generator=generator)
    return torch.cat((extremes, heavy, short, uniform))


def carry_heavy(n_operands: int, n_digits: int, n: int, generator: torch.Generator) -> Int[Tensor, "n operand column"]:
    """Operands whose columns mostly complete the running sum to 9 each, so that a carry from the units goes far."""
    total = torch.zeros(n, n_digits + len(str(n_operands)), dtype=torch.int64)
    operands = []
    for _ in range(n_operands):
        complement = 9 - total[:, :n_digits]
        free = torch.randint(10, complement.shape, generator=generator)
        keep = torch.rand(complement.shape, generator=generator) < 0.85
        operand = torch.where(keep, complement, free)
        units = torch.randint(1, 10, (n,), generator=generator)  # makes a carry: more than completes to 9, if possible
        operand = torch.cat(((complement[:, 0] + units).clamp(max=9)[:, None], operand[:, 1:]), 1)
        operands.append(operand)
        total = propagate_carries(
            total + torch.nn.functional.pad(operand, (0, total.shape[1] - n_digits)), total.shape[1]
        )
    return torch.stack(operands, 1)
