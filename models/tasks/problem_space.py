"""All problems of a task in one shape, in a fixed order: to be run one by one where there are few of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.base import Task
from models.tasks.pair_space import Cells
from models.tasks.sequences import SequenceTask


@dataclass(frozen=True, eq=False)
class ProblemSpace:
    """The problems of ``task``'s own distribution, each once: operands of exactly as many digits as the shape says.

    They are numbered as numbers are, the first operand's highest digit changing last: pair (a, b) of two-digit numbers
    has number 100 a + b.
    """

    cells: Cells

    @classmethod
    def of(cls, task: Task) -> ProblemSpace:
        """The space of a task. Raises UserError if its problems are not made of digits."""
        return cls(Cells.of(task))

    @property
    def task(self) -> Task:
        return self.cells.task

    @cached_property
    def _order(self) -> list[int]:
        """Cells, slowest first; a parity's bits are written from the left, so its first one is the highest."""
        rising = isinstance(self.task, SequenceTask) and self.task.base == 2
        worth = [column if rising else -column for column in self.cells.column]
        return sorted(range(len(self.cells)), key=lambda i: (self.cells.operand[i], worth[i]))

    @cached_property
    def size(self) -> int:
        """How many problems there are."""
        return prod(len(self.cells.digits(cell)) for cell in range(len(self.cells)))

    @property
    def what(self) -> str:
        """What the problems are, in the plural: "pairs", "strings of 8 bits", "problems T_M(2 x 3 digits)"."""
        if not isinstance(self.task, SequenceTask):
            return "pairs" if self.cells.n_operands == 2 else "problems"
        if self.task.base == 2:
            return f"strings of {self.cells.width()} bits"
        return f"problems {self.task.shape_text}"

    def problems(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n *operands"]:
        """The problems of these numbers, from 0 to ``size - 1``, as the task takes them."""
        digits = torch.empty(len(index), len(self.cells), dtype=torch.uint8)
        for cell in reversed(self._order):
            allowed = self.cells.digits(cell)
            digits[:, cell] = (index % len(allowed) + allowed.start).to(torch.uint8)
            index = index // len(allowed)
        return self.cells.problems(digits)

    def text(self, problem: Int[Tensor, "1 *operands"]) -> str:
        """How a problem is written: "47 + 85", "0101"."""
        return problem_text(self.task, self.task.numbers(problem)[0])


def problem_text(task: Task, numbers: tuple[Any, ...]) -> str:
    """A problem of these operands (of a parity: bits) as text, as :meth:`Task.as_problems` reads it."""
    operator = task.operator if isinstance(task, SequenceTask) else "+"
    return (f" {operator} " if operator else "").join(str(number) for number in numbers)
