"""The problems of any arithmetic task as digits that a search may change: [problem, operand, column], units first.

What a digit may be is read off the task's own distribution: a digit that none of :data:`LOOKED_AT` of its problems has
in some place (a leading zero, where a shape means numbers of exactly so many digits; anything above the shorter
operand) is not put there, so that what is found is a problem of the task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.problems import draw
from models.errors import UserError
from models.tasks.addition import to_digits
from models.tasks.base import Task

LOOKED_AT = 2_000
CARRY_RICH = 0.5  # share of what is drawn, where a task has carries
#: Draws that bring nothing new after which a domain counts as exhausted.
PATIENCE = 20

Digits = Int[Tensor, "n operand column"]


@dataclass(frozen=True, eq=False)
class ProblemSpace:
    """The problems of ``task``: ``allowed`` says which digits may stand in which place."""

    task: Task
    allowed: Bool[Tensor, "operand column base"]
    from_numbers: bool  # the task's problems are integers, not digits

    @property
    def n_operands(self) -> int:
        return self.allowed.shape[0]

    @property
    def n_columns(self) -> int:
        return self.allowed.shape[1]

    @property
    def base(self) -> int:
        return self.allowed.shape[2]

    @cached_property
    def size(self) -> int:
        """How many problems there are."""
        return prod(self.allowed.sum(2).flatten().tolist())

    def digits(self, problems: Int[Tensor, "n *operands"]) -> Digits:
        """Digits of problems as the task has them."""
        if not self.from_numbers:
            return problems
        return torch.stack([to_digits(column, self.n_columns) for column in problems.unbind(1)], 1)

    def problems(self, digits: Digits) -> Int[Tensor, "n *operands"]:
        """The task's problems of these digits."""
        return (digits * 10 ** torch.arange(self.n_columns)).sum(2) if self.from_numbers else digits

    def contains(self, digits: Digits) -> Bool[Tensor, " n"]:
        """Whether every digit is one that may stand where it stands."""
        inside = (digits >= 0) & (digits < self.base)
        found = self.allowed.expand(len(digits), -1, -1, -1).gather(3, digits.clamp(0, self.base - 1)[..., None])
        return (inside & found[..., 0]).flatten(1).all(1)

    def keys(self, digits: Digits) -> list[bytes]:
        """What tells problems apart."""
        rows = digits.flatten(1).to(torch.uint8).numpy()
        return [row.tobytes() for row in rows]

    def digit_sums(self, digits: Digits) -> Digits | None:
        """For every operand's digit, what its column adds up to with the digit it is added to; None without carries.

        From the symbolic algorithm: ``digit_sum`` of two operands, or of operand i and the running sum before it.
        """
        found = self.task.variables(self.problems(digits))
        if not {"digit_sum", "propagate"} <= found.keys():
            return None
        sums = found["digit_sum"]
        if sums.ndim == 2 and self.n_operands == 2:
            sums = sums[:, None].expand(-1, 2, -1)
        if sums.ndim != 3 or sums.shape[1] != self.n_operands or sums.shape[2] < self.n_columns:
            return None
        return sums[..., : self.n_columns]

    def fresh(self, n: int, rng: np.random.Generator, seen: set[bytes]) -> Digits:
        """Up to ``n`` problems that were not seen, half of them rich in carries where the task has carries.

        Fewer only where :data:`PATIENCE` draws in a row brought nothing new. They count as seen from here on.
        """
        kept: list[Tensor] = []
        missing, idle = n, 0
        while missing > 0 and idle < PATIENCE:
            sample = draw(self.task, None, max(2, missing), int(rng.integers(2**31)), CARRY_RICH)
            drawn = self.digits(sample.problems)
            drawn = drawn[torch.from_numpy(rng.permutation(len(drawn)))]
            kept.append(unseen(self, drawn[self.contains(drawn)], seen)[:missing])
            seen.update(self.keys(kept[-1]))
            missing -= len(kept[-1])
            idle = 0 if len(kept[-1]) else idle + 1
        return torch.cat(kept) if kept else torch.zeros(0, self.n_operands, self.n_columns, dtype=torch.int64)


def unseen(space: ProblemSpace, digits: Digits, seen: set[bytes]) -> Digits:
    """Those that were not seen, each once, in their order."""
    taken: set[bytes] = set()
    rows = []
    for row, key in enumerate(space.keys(digits)):
        if key not in seen and key not in taken:
            taken.add(key)
            rows.append(row)
    return digits[rows]


def problem_space(task: Task) -> ProblemSpace:
    """The space of a task's problems.

    Raises:
        UserError: a task without operands, or whose sequences have no fixed places.
    """
    columns = [role.column for role in task.roles if role.kind == "operand" and role.column is not None]
    if not columns:
        raise UserError(f"The attack changes the digits of operands, and problems of {task.name} have none.")
    problems = task.sample(LOOKED_AT, torch.Generator().manual_seed(0))
    base, from_numbers = getattr(task, "base", 10), problems.ndim == 2
    if problems.ndim not in (2, 3):
        raise UserError(f"Problems of {task.name} are neither integers [n, operand] nor digits [n, operand, column].")
    n_columns = 1 + max(columns) if from_numbers else problems.shape[2]
    space = ProblemSpace(task, torch.ones(problems.shape[1], n_columns, base, dtype=torch.bool), from_numbers)
    digits = space.digits(problems)
    if not torch.equal(space.problems(digits), problems):
        raise UserError(f"The operands of {task.name} have more digits than its roles say.")
    allowed = torch.zeros_like(space.allowed)
    for digit in range(base):
        allowed[..., digit] = (digits == digit).any(0)
    return ProblemSpace(task, allowed, from_numbers)


def batches(n: int, size: int) -> Iterator[slice]:
    """0..n in slices of at most ``size``."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))
