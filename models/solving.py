"""A model's own answers to problems that somebody types: :func:`solve`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from models.calls.argument_kinds import GivenProblems
from models.calls.checked_calls import checked
from models.errors import UserError
from models.evaluation import Model, predict
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike


@dataclass(frozen=True)
class Solved:
    """A problem as it was given, the number that a model answers (None if its tokens spell none) and the right one,
    whether all tokens are right, and both answers as a person writes them."""

    problem: Any
    answer: int | None
    expected: int
    right: bool
    answer_text: str
    expected_text: str

    def __str__(self) -> str:
        return f"{self.problem} = {self.answer_text}{'' if self.right else f'   wrong: it is {self.expected_text}'}"


class Solutions(tuple[Solved, ...]):
    """The answers to several problems, in their order; ``str`` has a line for each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


@partial(checked, finite=True)
def solve(model: Model, problems: GivenProblems, task: TaskLike | None = None) -> Solutions:
    """Let a model answer problems, decoded greedily: ``solve(adder, "57+48")``, or a list of problems.

    Args:
        model: one of this project's models, or a callable from tokens to logits with a ``task``.
        problems: one problem or a list, in any form that the task takes; sums of several numbers may differ in shape.

    Raises:
        UserError: no problem, or one that the task does not take.
    """
    if (own := task or getattr(model, "task", None)) is None:
        raise UserError("This model does not carry a task; give one as task=.")
    rows = problems.tolist() if isinstance(problems, (torch.Tensor, np.ndarray)) else problems
    listed = [rows] if isinstance(rows, (str, tuple, int)) else list(rows)
    if not listed:
        raise UserError("There is no problem to solve: the list is empty.")
    return Solutions(_solved(model, own, listed))


def _solved(model: Model, own: Task, listed: list[Any]) -> Iterator[Solved]:
    for given in listed:
        task = own.for_problems([given])
        problem = task.as_problems([given])
        tokens, wanted = predict(model, problem, method="greedy", task=task).cpu(), task.targets(problem).cpu()
        (answer,), (expected,) = task.decode(tokens), task.decode(wanted)
        said = given if isinstance(given, str) else task.problem_text(task.numbers(problem)[0])
        right = torch.equal(tokens, wanted)
        yield Solved(said, answer, expected, right, task.answer_text(tokens[0]), task.answer_text(wanted[0]))
