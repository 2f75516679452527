"""Training problems that the task itself draws: those that it does not hold out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.counter_rng import row_keys
from models.tasks.task import Task
from models.training.training_batches import Batch, ProblemSource, SeedNumbers

#: A draw is hundreds of small operations, whatever its size, and a GPU waits for each.
AHEAD = 16


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
        return Drawn(task, self)

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        raise UserError("Problems that a task draws need that task; ask the source that of(task) gives.")


class Drawn(ProblemSource):
    """The problems of one task. A problem depends on its key alone, so that any number of them are one draw."""

    def __init__(self, task: Task, settings: TaskProblems, ahead: int | None = None):
        """``ahead``: how many steps are drawn at once; by default one on a CPU, and :data:`AHEAD` on a GPU."""
        self.task, self.settings, self.ahead = task, settings, ahead
        #: First step, seeds and rows of the batches that were drawn last, and these batches.
        self._window: tuple[tuple[int, SeedNumbers | None, int], list[Batch]] = ((-1, None, 0), [])

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        return self._problems(row_keys(seed, step, rows, device))

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """All seeds' problems in one draw."""
        ahead = self.ahead or (AHEAD if seeds.device.type == "cuda" else 1)
        first = step - step % ahead
        held, of, n_rows = self._window[0]
        if (held, n_rows) != (first, rows) or of is not seeds:  # comparing their numbers would wait for the GPU
            keys = [row_keys(seeds, first + i, rows, seeds.device) for i in range(ahead)]
            tables = task.encode_rows(self._problems(torch.cat(keys)))
            tokens, targets = (
                table.unflatten(1, (ahead, len(seeds), rows)).permute(1, 2, 0, 3).contiguous() for table in tables
            )
            self._window = (first, seeds, rows), list(zip(tokens, targets, strict=True))
        return self._window[1][step - first]

    def _problems(self, keys: Int[Tensor, " row"]) -> Int[Tensor, "row operands"]:
        share = {} if self.settings.share == 1 else {"share": self.settings.share}
        return self.task.held_out.training(keys, self.settings.hard, **share)
