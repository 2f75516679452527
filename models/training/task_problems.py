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
from models.training.data import Batch, ProblemSource, SeedNumbers


@dataclass(frozen=True)
class TaskProblems(ProblemSource):
    """Uniform problems of the task outside its test set, a share ``hard`` of them with long carries, if it has any.

    With ``share`` below 1 only this share of the problems outside the test set is trained on, the same for every seed.
    Validation then has problems of both kinds: memorising stays at the share, and only grokking passes it.
    """

    for_task: ClassVar[type[Task]] = Task

    hard: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.hard <= 1:
            raise UserError(f"hard is a share between 0 and 1, not {self.hard}.")
        if not 0 < self.share <= 1:
            raise UserError(f"share lies above 0 and at most at 1, not at {self.share}.")

    def of(self, task: Task) -> ProblemSource:
        """The source of this task's problems."""
        return _Drawn(task, self)

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        raise UserError("Problems that a task draws need that task; ask the source that of(task) gives.")


@dataclass(frozen=True)
class _Drawn(ProblemSource):
    task: Task
    settings: TaskProblems

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        return self._problems(row_keys(seed, step, rows, device))

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """All seeds' problems in one draw, since a problem depends on its key alone."""
        tokens, targets = task.encode_rows(self._problems(row_keys(seeds, step, rows, seeds.device)))
        by_seed = lambda table: table.unflatten(1, (len(seeds), rows)).transpose(0, 1).contiguous()  # noqa: E731
        return by_seed(tokens), by_seed(targets)

    def _problems(self, keys: Int[Tensor, " row"]) -> Int[Tensor, "row operands"]:
        share = {} if self.settings.share == 1 else {"share": self.settings.share}
        return self.task.training_problems(keys, self.settings.hard, **share)
