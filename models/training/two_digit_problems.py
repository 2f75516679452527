"""ToyGPT's training distribution: the 9,500 pairs outside the test set, drawn with replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks.base import Task
from models.tasks.counter_rng import row_keys, uniform
from models.tasks.two_digit import TwoDigitAddition, training_problems
from models.training.data import ProblemSource


@dataclass(frozen=True)
class TwoDigitProblems(ProblemSource):
    """Uniform draws from :func:`models.tasks.two_digit.training_problems`.

    minGPT shuffles the pairs instead and goes through them; a thousand batches of 64 are seven passes.
    """

    for_task: ClassVar[type[Task]] = TwoDigitAddition

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row 2"]:
        """The problems of one seed at one step, which depend only on these two."""
        pool = training_problems().to(device)
        return pool[(uniform(row_keys(seed, step, rows, device), 0) * len(pool)).long()]
