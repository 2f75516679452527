"""All problems of a task in one shape, in a fixed order, so that they can be run one by one if they are few."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.task import Task, domain_of


@dataclass(frozen=True, eq=False)
class ProblemSpace:
    """The problems of ``task``'s own distribution, each once: operands of exactly as many digits as the shape says.

    They are numbered in their natural order, in which the first operand's highest digit changes last: the pair (a, b)
    of two-digit numbers has number 100 a + b. Bits for parity are written from the left: the first is the highest.
    """

    task: Task
    domain: Domain

    @classmethod
    def of(cls, task: Task) -> ProblemSpace:
        """The space of a task. Raises UserError if the task does not define its domain."""
        return cls(task, domain_of(task))

    @property
    def _bits(self) -> bool:
        """Whether problems are strings of bits and not numbers."""
        return self.domain.base == 2 and self.domain.n_operands == 1 and self.domain.n_columns is not None

    @property
    def size(self) -> int:
        """How many problems there are."""
        return self.domain.size

    @property
    def what(self) -> str:
        """A word for the problems, in the plural: "pairs", "strings of 8 bits", "problems T_M(2 x 3 digits)"."""
        if self._bits:
            return f"strings of {self.domain.width()} bits"
        if not self.task.shape:
            if self.domain.base == 2 and len(self.domain) == self.domain.n_operands > 2:
                return f"strings of {len(self.domain)} bits"
            return "pairs" if self.domain.n_operands == 2 else "problems"
        return f"problems {getattr(self.task, 'shape_text', '')}"

    def problems(self, index: Int[Tensor, " n"]) -> Int[Tensor, "n *operands"]:
        """The problems with these numbers, from 0 to ``size - 1``, in the form that the task takes."""
        if self.domain.numbering is not None:
            return self.domain.numbering(index)
        if self.domain.where is not None:
            index = self.domain.kept[index]
        digits = self.domain.numbered(index)
        return self.domain.problems(digits.flip(1) if self._bits else digits)

    def find(self, text: str) -> Int[Tensor, "1 *operands"]:
        """The problem with this :meth:`text`. Raises UserError if the domain has none."""
        if self._bits or self.task.shape or type(self.task).problem_text is not Task.problem_text:
            return self.task.as_problems([text])
        parts = [part.strip() for part in text.split(self.task.operator)]
        if len(parts) == self.domain.n_operands and all(part.isascii() and part.isdigit() for part in parts):
            problem = torch.tensor([[min(int(part), 2**62) for part in parts]])
            if self.domain.holds(problem).all():
                return self.task.as_problems(problem)
        raise UserError(f"{text!r} is not a problem of {self.task.name}.")

    def text(self, problem: Int[Tensor, "1 *operands"]) -> str:
        """How a problem is written: "47 + 85", "0101"."""
        return self.task.problem_text(self.task.numbers(problem)[0])
