"""The targets that are digits of an answer, and the variables of the algorithm in their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from models.errors import UserError
from models.tasks import OWN, Task


@dataclass(frozen=True)
class AnswerColumns:
    """Targets that are answer digits: their indices, their columns, and the positions that predict them."""

    targets: list[int]
    columns: list[int]
    queries: list[int]


def answer_columns(task: Task, with_operands: bool = True) -> AnswerColumns:
    """The task's answer digits; ``with_operands``: only those in whose column an operand has a digit."""
    targets = [
        index
        for index, role in enumerate(task.target_roles)
        if role.kind == "answer"
        and role.column is not None
        and (not with_operands or task.relative_roles(index).get(OWN))
    ]
    columns = [task.target_roles[index].column for index in targets]
    return AnswerColumns(targets, [c for c in columns if c is not None], [task.query_positions[i] for i in targets])


def signal_columns(task: Task) -> AnswerColumns:
    """The answer digits that have signals: those in whose column an operand has a digit, or all if there are none.

    Raises:
        UserError: the task's answers have no columns.
    """
    places = answer_columns(task)
    places = places if places.columns else answer_columns(task, with_operands=False)
    if not places.columns:
        raise UserError(f"The answers of task {task.name!r} have no columns, so that no signal is one of a column.")
    return places


def column_variables(task: Task, problems: Any, columns: list[int]) -> dict[str, Int[np.ndarray, "n column"]]:
    """The symbolic algorithm's variables in these columns, as far as they have one value per column."""
    return {
        name: values[:, columns].numpy()
        for name, values in task.variables(problems).items()
        if values.ndim == 2 and values.shape[1] > max(columns)
    }
