"""Any task's own variables as a causal model, for tasks that the algorithms of column addition do not fit.

A task gives every intermediate value (:meth:`models.tasks.task.Task.variables`), but not how they depend on each other.
The hypothesis used instead: the answer in a column is a function of one variable (and of those that are ``given``,
which stay as they are). The function is looked up in all problems of the task, or in many, and refused if two problems
agree in these variables but differ in the answer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.bound_arguments import check_fields
from models.errors import UserError, unknown_name
from models.tasks.check_task import domain_of
from models.tasks.columns.addition_algorithms import Interventions, resolve_algorithm
from models.tasks.columns.column_places import ColumnPlaces, column_places
from models.tasks.columns.variable_text import variable_text, variable_values
from models.tasks.refusals import NoDomain
from models.tasks.task import Task

ALL_OF = 2**17  # up to this many problems are all looked up
MANY = 2**15  # this many are drawn if there are more


@dataclass(frozen=True)
class TaskVariables:
    """The task's variables as a causal model. ``given`` are variables, or columns of them, on which the answer depends
    in addition to the one that is set: ``("b", "carry_in[2]")``."""

    given: tuple[str, ...] = ()
    name: str = "the task's variables"

    def __post_init__(self) -> None:
        check_fields(self)


def looked_up_answers(
    known: Int[Tensor, "m key"], answers: Int[Tensor, "m column"], asked: Int[Tensor, "n key"]
) -> Int[Tensor, "n column"]:
    """The answers to keys that are ``asked``, from those of ``known`` ones: problems with one key are a group, and the
    answer is known where all of a group have the same. It is -1 elsewhere."""
    _, group = torch.unique(torch.cat((known, asked)), dim=0, return_inverse=True)
    none = torch.full((int(group.max()) + 1, answers.shape[1]), -1)
    least, most = (
        none.index_reduce(0, group[: len(known)], answers, how, include_self=False) for how in ("amin", "amax")
    )
    return torch.where(least == most, least, -1)[group[len(known) :]]


@dataclass(frozen=True, eq=False)
class TaskColumns(ColumnPlaces):
    """A :class:`ColumnPlaces` for any task: column k is the answer digit with that column (the last of several), or the
    k-th target if answers have no columns. Its algorithm is :class:`TaskVariables`."""

    def values(
        self, algorithm: Any, problems: Any, interventions: Interventions | None = None
    ) -> dict[str, Int[Tensor, "n column"]]:
        """The task's variables with one value per column, and "answer". Under an intervention on one variable, only the
        answers, -1 where they are not determined."""
        if not interventions:
            found = {name: values for name, values in self.task.variables(problems).items() if values.ndim == 2}
            return found | {"answer": self.task.targets(problems)[:, list(self.targets)]}
        (((name, column), value),) = interventions.items()
        own = self._keys(algorithm, name, column, problems)
        own = torch.cat((torch.as_tensor(value).expand(len(own))[:, None], own[:, 1:]), 1)
        known = self._keys(algorithm, name, column, self._looked_up)
        right = self.task.targets(self._looked_up)[:, list(self.targets)]
        return {"answer": looked_up_answers(known, right, own)}

    def _keys(self, algorithm: TaskVariables, name: str, column: int, problems: Any) -> Int[Tensor, "n key"]:
        variables = self.task.variables(problems)
        return torch.cat(
            [variable_values(variables, text) for text in (variable_text(name, column), *algorithm.given)], 1
        )

    @cached_property
    def _looked_up(self) -> Any:
        with suppress(NoDomain):
            if domain_of(self.task).size <= ALL_OF:
                return self.task.domain.every()
        return self.task.sample(MANY, torch.Generator().manual_seed(0))

    def answer_tokens(self, answer: Int[Tensor, "*place"]) -> Int[Tensor, "*place"]:
        return answer  # the targets themselves

    def require_variable(self, algorithm: Any, name: str, column: int | None = None) -> str:
        found = self.values(algorithm, self.task.sample(2, torch.Generator().manual_seed(0)))
        if name not in found:
            raise unknown_name(f"variable of the task {self.task.name!r}", name, found)
        if column is not None and column >= found[name].shape[1]:
            raise UserError(f"{name!r} of {self.task.name} has {found[name].shape[1]} columns, and none is {column}.")
        return name


def task_columns(task: Task) -> TaskColumns:
    """The layout of any task with something to predict.

    Raises:
        UserError: a task without answers, or without a variable of one value per column.
    """
    answers = [(i, role) for i, role in enumerate(task.target_roles) if role.kind in ("answer", "scratchpad")]
    asked = {order if role.column is None else role.column: i for order, (i, role) in enumerate(answers)}
    if sorted(asked) != list(range(len(asked))) or not asked:
        raise UserError(f"The answers of the task {task.name!r} have no columns that count from 0.")
    at: dict[int, list[int]] = {column: [] for column in asked}
    for position, role in enumerate(task.roles[: task.input_length]):
        if role.kind == "operand" and role.column in at:
            at[role.column].append(position)
    columns = range(len(asked))
    return TaskColumns(
        task,
        tuple(tuple(at[k]) for k in columns),
        tuple(task.query_positions[asked[k]] for k in columns),
        tuple(asked[k] for k in columns),
    )


def causal_model(task: Task, algorithm: Any) -> tuple[Any, ColumnPlaces]:
    """(algorithm, layout) of a hypothesis about a task. ``algorithm`` is an algorithm of column addition or its name,
    or :class:`TaskVariables`; None means "chained" if the task adds column by column ("look-ahead" if its answer starts
    with the highest digit), else the task's variables.

    Raises:
        UserError: an unknown name, or a task that the algorithm does not fit.
    """
    if algorithm is None:
        try:
            layout = column_places(task)
            return resolve_algorithm("look-ahead" if layout.highest_first else "chained"), layout
        except UserError:
            algorithm = TaskVariables()
    if isinstance(algorithm, TaskVariables):
        return algorithm, task_columns(task)
    return resolve_algorithm(algorithm), column_places(task)
