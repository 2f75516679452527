"""Constraints that hold for each clean/corrupted pair: which variables of the symbolic algorithm differ, which do not.

A *place* is a variable, or some columns of it, written as one would index the array: ``"carry_in"``,
``"carry_in[3]"``, ``"s[:3]"``, ``"product[1,2]"`` (step 1, column 2).
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
from models.errors import unknown_name
from models.tasks.columns.variable_text import place
from models.tasks.task import Task

TOKEN_RULES = ("equal", "different")


@dataclass(frozen=True)
class PairConstraint:
    """What holds for each pair of a kind.

    differ: places in which at least one value differs. keep: places in which no value differs. values: place -> its
    values in the clean and in the corrupted problem. own_token: whether the token at the query, from which the answer
    is predicted, is "equal" or "different" in the two teacher-forced sequences. answer: the same for the right answer.
    None allows both.
    """

    differ: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    values: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    own_token: str | None = None
    answer: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for what in ("own_token", "answer"):
            rule = getattr(self, what)
            if rule is not None and rule not in TOKEN_RULES:
                raise unknown_name(f"rule for {what}", rule, TOKEN_RULES)

    def broken(self, task: Task, clean: Any, corrupted: Any, target: int) -> dict[str, Bool[Tensor, " n"]]:
        """For each clause, in words, the pairs that break it."""
        return self._of_variables(task, clean, corrupted) | self._of_tokens(task, clean, corrupted, target)

    def holds(self, task: Task, clean: Tensor, corrupted: Tensor, target: int) -> Bool[Tensor, " n"]:
        """Which pairs keep the whole promise. Cost: the variables of all pairs, and the tokens of those still left."""
        fine = torch.ones(len(clean), dtype=torch.bool)
        for wrong in self._of_variables(task, clean, corrupted).values():
            fine = fine & ~wrong
        left = fine.nonzero()[:, 0]
        if len(left):
            for wrong in self._of_tokens(task, clean[left], corrupted[left], target).values():
                fine[left[wrong]] = False
        return fine

    def _of_variables(self, task: Task, clean: Any, corrupted: Any) -> dict[str, Tensor]:
        one, other = task.variables(clean), task.variables(corrupted)
        found: dict[str, Tensor] = {}
        for text in self.differ:
            found[f"{text} differs"] = (place(one, text) == place(other, text)).all(1)
        for text in self.keep:
            found[f"{text} is equal"] = (place(one, text) != place(other, text)).any(1)
        for text, (first, second) in self.values.items():
            wrong = (place(one, text) != first).any(1) | (place(other, text) != second).any(1)
            found[f"{text} is {first} in the clean problem and {second} in the corrupted one"] = wrong
        return found

    def _of_tokens(self, task: Task, clean: Any, corrupted: Any, target: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.answer is not None:
            same = task.targets(clean)[:, target] == task.targets(corrupted)[:, target]
            found[f"the answers are {self.answer}"] = same if self.answer == "different" else ~same
        if self.own_token is not None:
            query = task.query_positions[target]
            same = task.encode(clean)[:, query] == task.encode(corrupted)[:, query]
            found[f"the query's own tokens are {self.own_token}"] = same if self.own_token == "different" else ~same
        return found

    def swapped(self) -> PairConstraint:
        """The promise of the pairs with clean and corrupted exchanged."""
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
