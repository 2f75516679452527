"""Batches for stacked seeds."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int, Integer
from torch import Tensor

from models.tasks.base import Task


@runtime_checkable
class ProblemSource(Protocol):
    """Where a recipe's problems come from; see :class:`models.training.addition_problems.AdditionProblems`.

    The problems of (seed, step) must depend on nothing else: resuming and stacking rest on that.
    """

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row operands"]:
        """The problems of one seed at one step."""
        ...

    def native_batch(
        self, task: Task, seeds: Int[Tensor, " seed"], step: int, rows: int
    ) -> tuple[Tensor, Tensor] | None:
        """The same, encoded for all seeds at once by compiled code; None where there is none."""
        ...


class TrainingStream:
    """Batches for a group of seeds: ``batch(step)`` is (tokens [seed, pos, row], targets [seed, target, row]).

    Rows come last because the position-only objective wants long contiguous rows of one feature.
    """

    def __init__(self, task: Task, source: ProblemSource, rows: int, seeds: list[int], device: torch.device):
        self.task, self.source, self.rows, self.device = task, source, rows, device
        self.seeds = torch.tensor(seeds, dtype=torch.int64)

    def batch(self, step: int) -> tuple[Integer[Tensor, "seed pos row"], Integer[Tensor, "seed target row"]]:
        if self.device.type == "cpu":
            encoded = self.source.native_batch(self.task, self.seeds, step, self.rows)
            if encoded is not None:
                return encoded
        drawn = (self.source.draw(seed, step, self.rows, self.device) for seed in self.seeds.tolist())
        tokens, targets = zip(*(self.task.encode_rows(problems) for problems in drawn), strict=True)
        return torch.stack(tokens), torch.stack(targets)
