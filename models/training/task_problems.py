"""Training problems that the task itself draws: those that it does not hold out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from models.counter import row_keys
from models.errors import UserError
from models.tasks.base import Task
from models.training.data import ProblemSource


@dataclass(frozen=True)
class TaskProblems(ProblemSource):
    """Uniform problems of the task outside its test set, a share ``hard`` of them with long carries, if it has any."""

    for_task: ClassVar[type[Task]] = Task

    hard: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.hard <= 1:
            raise UserError(f"hard is a share between 0 and 1, not {self.hard}.")

    def of(self, task: Task) -> ProblemSource:
        """The source of this task's problems."""
        return _Drawn(task, self.hard)

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        raise UserError("Problems that a task draws need that task; ask the source that of(task) gives.")


@dataclass(frozen=True)
class _Drawn(ProblemSource):
    task: Task
    hard: float

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        return self.task.training_problems(row_keys(seed, step, rows, device), self.hard)
