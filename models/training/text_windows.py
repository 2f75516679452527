"""Training batches of text: windows that start anywhere in the training part, with replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.base import Task
from models.tasks.characters import N_CTX, TRAINING, CharacterLanguage
from models.tasks.counter_rng import row_keys, uniform
from models.training.data import ProblemSource


@dataclass(frozen=True)
class TextWindows(ProblemSource):
    """Uniform window starts in the first ``characters`` of the text; a window ends before that bound.

    A start depends only on (seed, step, row); see :mod:`models.tasks.counter_rng`.
    """

    for_task: ClassVar[type[Task]] = CharacterLanguage
    characters: int = TRAINING

    def __post_init__(self) -> None:
        if not N_CTX < self.characters <= TRAINING:
            raise UserError(f"characters lies between {N_CTX + 1} and {TRAINING:,}, not {self.characters}.")

    def draw(self, seed: int, step: int, rows: int, device: torch.device) -> Int[Tensor, "row 1"]:
        return (uniform(row_keys(seed, step, rows, device), 0) * (self.characters - N_CTX)).long()[:, None]
