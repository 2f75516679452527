"""Batches for stacked seeds."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.errors import UserError
from models.tasks.task import Task

#: (tokens [seed, pos, row], targets [seed, target, row]).
Batch = tuple[Integer[Tensor, "seed pos row"], Integer[Tensor, "seed target row"]]
SeedNumbers = Int[Tensor, " seed"]


@runtime_checkable
class ProblemSource(Protocol):
    """Where a recipe's problems come from; see :class:`models.training.ten_digit_problems.AdditionProblems`.

    The problems must depend only on (seed, step), as resuming and stacking rely on that.
    """

    def fits(self, task: Task) -> bool:
        """Whether these are problems of the task."""
        return True

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        """The problems of one seed at one step."""
        ...

    def native_batch(self, task: Task, seeds: SeedNumbers, step: int, rows: int) -> Batch | None:
        """The same problems, encoded for all seeds at once by compiled code; None if there is none."""
        return None

    def draw_all(self, seeds: SeedNumbers, step: int, rows: int) -> Int[Tensor, "seed_and_row operands"] | None:
        """The same problems of all seeds in one draw, those of the first seed first; None if there is none. On a GPU a
        draw is dozens of small operations, whatever its size, and so should not be one for each seed."""
        return None


@runtime_checkable
class AdaptiveSource(ProblemSource, Protocol):
    """A source whose problems also depend on a seed's accuracy."""

    def after(self, token_accuracy: float) -> ProblemSource:
        """The source for a seed with this token accuracy on the natural distribution at its last validation."""
        ...


def require_problems_of(task: Task, source: Any) -> None:
    """Raise UserError if a recipe's problems are for another kind of task."""
    if not source.fits(task):
        raise UserError(
            f"This recipe's problems ({type(source).__name__}) are not those of {task.name}; choose a recipe of a "
            "model with the same task."
        )


class TrainingStream:
    """Batches for a group of seeds.

    Rows come last because the position-only objective wants long contiguous rows of one feature.
    """

    def __init__(self, task: Task, source: ProblemSource, rows: int, seeds: list[int], device: torch.device):
        require_problems_of(task, source)
        if (bound := getattr(source, "of", None)) is not None:
            source = bound(task)  # problems that the task itself draws
        self.task, self.source, self.rows, self.device = task, source, rows, device
        self.seeds = seeds
        self.numbers = torch.tensor(seeds, dtype=torch.int64, device=device)  # the same; reading them waits for a GPU
        self.sources = [source] * len(seeds)

    def observe(self, token_accuracies: list[float]) -> None:
        """Adapt each seed's problems to its last validation, if the source does so."""
        if isinstance(self.source, AdaptiveSource):
            self.sources = [self.source.after(accuracy) for accuracy in token_accuracies]

    def batch(self, step: int) -> Batch:
        if len(set(self.sources)) == 1:
            return self._batch(self.sources[0], self.seeds, self.numbers, step)
        parts: list[tuple[Tensor, Tensor]] = [None] * len(self.seeds)  # type: ignore[list-item]
        for source in set(self.sources):
            rows = [i for i, own in enumerate(self.sources) if own == source]
            for i, *part in zip(
                rows, *self._batch(source, [self.seeds[i] for i in rows], self.numbers[rows], step), strict=True
            ):
                parts[i] = (part[0], part[1])
        tokens, targets = zip(*parts, strict=True)
        return torch.stack(tokens), torch.stack(targets)

    def _batch(self, source: ProblemSource, seeds: list[int], numbers: SeedNumbers, step: int) -> Batch:
        encoded = source.native_batch(self.task, numbers, step, self.rows)
        if encoded is not None:
            return encoded
        if (problems := source.draw_all(numbers, step, self.rows)) is not None:
            tables = self.task.encode_rows(problems)
            tokens, targets = (table.unflatten(1, (len(seeds), -1)).transpose(0, 1).contiguous() for table in tables)
            return tokens, targets
        drawn = (source.draw(seed, step, self.rows, self.device) for seed in seeds)
        tokens, targets = zip(*(self.task.encode_rows(problems) for problems in drawn), strict=True)
        return torch.stack(tokens), torch.stack(targets)
