"""Training problems of subtraction, made of those of addition: x + y is taken apart again.

Let x and y be uniform below 10^10. Where x + y stays below 10^10, (x + y) - x is uniform among the problems a - b with
a >= b; a larger sum s gives x - (s - 10^10), which is uniform as well (never zero). Where x + y carries, (x + y) - x
borrows: the share of carry-rich problems is one of borrow-rich ones, and the curriculum of digits stays what it is.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.tasks.base import Task
from models.training.addition_problems import MOST_DIGITS, AdditionProblems, native_rows
from models.training.data import Batch, SeedNumbers

Digits = Integer[Tensor, "seed _ row"]


@dataclass(frozen=True)
class SubtractionProblems(AdditionProblems):
    """Pairs a >= b of up to ten digits: the operands' digits grow as those of the addition they are made of."""

    def fits(self, task: Task) -> bool:
        return getattr(task, "families", ()) == ("subtraction",)

    def _of_keys(self, keys: Int[Tensor, " n"], step: int) -> Int[Tensor, "n 2"]:
        """The problems of these keys. :meth:`native_batch` gives the same."""
        x, y = super()._of_keys(keys, step).T
        below = x + y - 10**MOST_DIGITS
        return torch.where((below < 0)[:, None], torch.stack((x + y, x), 1), torch.stack((x, below), 1))

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """Encoded batches by the C sampler, or None if it cannot be built or the task is not made of ten digits."""
        if any(role.column is not None and role.column >= MOST_DIGITS for role in task.roles):
            return None
        share = ctypes.c_double(self.share_at(step))
        batch = native_rows("batch", seeds, step, rows, self.max_digits_at(step), share)
        return None if batch is None else _encoded(task, *_taken_apart(*batch))


def _taken_apart(tokens: Digits, targets: Digits) -> tuple[Digits, Digits, Digits]:
    """Digits of a, b and a - b, units first, from an addition's tokens (x in 0-9, y in 11-20) and targets."""
    x, y, z = tokens[:, :10], tokens[:, 11:21], targets[:, :10]
    large = targets[:, 10:11] > 0
    # 10^10 - y, digit by digit: zeros stay until the first digit that is not zero, which is taken from ten.
    past = (y > 0).cumsum(1) - (y > 0).long() > 0
    rest = torch.where(past, 9 - y, (10 - y) % 10)
    return torch.where(large, x, z), torch.where(large, z, x), torch.where(large, rest, y)


def _encoded(task: Task, a: Digits, b: Digits, s: Digits) -> Batch:
    """The digits where the task writes them, between what stands between them in each of its problems."""
    written = torch.cat([table[:, 0] for table in task.encode_rows(torch.zeros(1, 2, dtype=torch.int64))])
    n_input, of = task.input_length, {"operand": (a, b), "answer": (s,)}
    rows = []
    for role, token in zip((*task.roles[:n_input], *task.target_roles), written.tolist(), strict=True):
        digits = of.get(role.kind)
        rows.append(torch.full_like(a[:, 0], token) if digits is None else digits[role.index or 0][:, role.column])
    return torch.stack(rows[:n_input], 1), torch.stack(rows[n_input:], 1)
