"""Constraints that hold for each clean/corrupted pair: which variables of the symbolic algorithm differ, which do not.

Variables, or columns of them, are texts (:mod:`models.tasks.columns.variable_text`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from models.calls.bound_arguments import check_fields
from models.errors import known_name
from models.tasks.columns.variable_text import variable_values
from models.tasks.task import Task

ANSWERS = ("equal", "different")


@dataclass(frozen=True)
class PairConstraint:
    """What holds for each pair of a kind.

    differ, keep: variables, or columns of them, that differ somewhere and that are equal. values: what a variable is in
    the clean problem and in the corrupted one. answer: whether the right answers at the target are "equal" or
    "different"; None allows both.
    """

    differ: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    values: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    answer: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.answer is not None:
            known_name("rule for the answer", self.answer, ANSWERS)

    def broken(self, task: Task, clean: Any, corrupted: Any, target: int) -> dict[str, Bool[Tensor, " n"]]:
        """For each clause, in words, the pairs that break it."""
        return self._of_variables(task, clean, corrupted) | self._of_answers(task, clean, corrupted, target)

    def holds(self, task: Task, clean: Tensor, corrupted: Tensor, target: int) -> Bool[Tensor, " n"]:
        """Which pairs keep the whole constraint. Cost: the variables of all pairs, and the answers of those left."""
        fine = torch.ones(len(clean), dtype=torch.bool)
        for wrong in self._of_variables(task, clean, corrupted).values():
            fine = fine & ~wrong
        left = fine.nonzero()[:, 0]
        if len(left):
            for wrong in self._of_answers(task, clean[left], corrupted[left], target).values():
                fine[left[wrong]] = False
        return fine

    def _of_variables(self, task: Task, clean: Any, corrupted: Any) -> dict[str, Tensor]:
        one, other = task.variables(clean), task.variables(corrupted)
        found: dict[str, Tensor] = {}
        for text in self.differ:
            found[f"{text} differs"] = (variable_values(one, text) == variable_values(other, text)).all(1)
        for text in self.keep:
            found[f"{text} is equal"] = (variable_values(one, text) != variable_values(other, text)).any(1)
        for text, (first, second) in self.values.items():
            wrong = (variable_values(one, text) != first).any(1) | (variable_values(other, text) != second).any(1)
            found[f"{text} is {first} in the clean problem and {second} in the corrupted one"] = wrong
        return found

    def _of_answers(self, task: Task, clean: Any, corrupted: Any, target: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.answer is not None:
            same = task.targets(clean)[:, target] == task.targets(corrupted)[:, target]
            found[f"the answers are {self.answer}"] = same if self.answer == "different" else ~same
        return found

    def swapped(self) -> PairConstraint:
        """The constraint of the pairs with clean and corrupted exchanged."""
        return replace(self, values={text: (two, one) for text, (one, two) in self.values.items()})


def changed_variables(task: Task, clean: Any, corrupted: Any) -> dict[str, Bool[Tensor, "n *place"]]:
    """For each variable of the task's algorithm, where the two problems of each pair differ."""
    one, other = task.variables(clean), task.variables(corrupted)
    return {name: values != other[name] for name, values in one.items()}


def first_of_each(one: Integer[Tensor, "n k"], other: Integer[Tensor, "n k"]) -> Int[Tensor, " distinct"]:
    """Rows of the first occurrence of each distinct pair, in order; (x, y) and (y, x) are one pair. Cost: a sort."""
    differs = one != other
    first = differs.byte().argmax(1, keepdim=True)
    swap = one.gather(1, first) > other.gather(1, first)
    both = torch.cat((torch.where(swap, other, one), torch.where(swap, one, other)), 1)
    return first_rows(both)


def first_rows(table: Integer[Tensor, "n k"]) -> Int[Tensor, " distinct"]:
    """Rows of the first occurrence of each distinct row, in order. Cost: a sort."""
    key = table.cpu().contiguous().numpy()
    _, rows = np.unique(key.view(np.dtype((np.void, key.shape[1] * key.itemsize)))[:, 0], return_index=True)
    return torch.from_numpy(np.sort(rows))
