"""Questions from a view and their answers: what runs behind the widget, without any of Jupyter in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from interp.site.explorer.frames import Frame, describe, frame
from interp.site.explorer.subject import METHODS, Subject
from models.errors import UserError, unknown_name
from models.tasks.base import Task
from models.tasks.problem_space import problem_text
from models.tasks.sequences import SequenceTask

#: Problems that a view of adders starts with and offers, and what each shows.
ADDITIONS = (
    ("57+48", "two carries, the second into an empty column"),
    ("1234+5432", "no carry anywhere"),
    ("9999999999+1", "a carry that travels through all ten columns"),
    ("9999989999+1", "a carry passed on by four nines and stopped by an eight"),
    ("5555555555+4444444445", "every column above the units sums to nine, and a carry comes in"),
    ("5555555555+4444444444", "every column sums to nine, and no carry comes in"),
)
SMALL_ADDITIONS = (
    ("57+48", "two carries, the second into an empty column"),
    ("12+34", "no carry anywhere"),
    ("99+1", "a carry that travels through both columns"),
    ("58+41", "the tens sum to nine, the units too, and nothing is carried"),
    ("58+42", "the tens sum to nine, and a carry comes in"),
)
OTHERS = {
    "multiplication": (("12*34", "a short product"), ("57*48", "carries in both stages"), ("99*99", "all nines")),
    "parity": (("0101", "two ones"), ("0111", "three ones"), ("1111", "all ones"), ("0000", "all zeros")),
    "multi-operand-addition": (
        ("57+48+96", "three numbers"),
        ("99+1+0", "a carry that travels"),
        ("12+34+51", "no carry"),
        ("57+48", "two numbers"),
    ),
}


def examples(subjects: Sequence[Subject]) -> list[tuple[str, str]]:
    """Problems that every one of the models takes, each with what it shows.

    Raises:
        UserError: there is none among the known ones.
    """
    known = list(OTHERS.get(subjects[0].task.name, ()))
    if all(isinstance(subject.task, SequenceTask) for subject in subjects):
        known = known or [(subject.task.example, "") for subject in subjects if isinstance(subject.task, SequenceTask)]
    else:
        known = [*ADDITIONS, *(e for e in SMALL_ADDITIONS if e not in ADDITIONS)]
        if any(subject.task.input_length < 20 for subject in subjects if not isinstance(subject.task, SequenceTask)):
            known = list(SMALL_ADDITIONS)
    taken = lambda known: [e for e in known if all(_takes(subject, e[0]) for subject in subjects)]  # noqa: E731
    found = taken(known) or taken(_drawn(subjects[0].task))
    if not found:
        names = " and ".join(subject.name for subject in subjects)
        raise UserError(
            f"There is no problem that {names} both take; they are about different tasks."
            if len(subjects) > 1
            else f"The task {subjects[0].task.name} reads no problem from text, as it would be typed."
        )
    return found[: len(ADDITIONS)]


def _drawn(task: Task) -> list[tuple[str, str]]:
    """Some problems of a task of one's own, as text."""
    problems = task.sample(len(ADDITIONS), torch.Generator().manual_seed(0))
    return list(dict.fromkeys((problem_text(task, numbers), "") for numbers in task.numbers(problems)))


def _takes(subject: Subject, problem: str) -> bool:
    try:
        subject.parse(problem)
    except UserError:
        return False
    return True


class Session:
    """One view's models. What was answered about the current problem is kept: putting a unit back costs nothing.

    Args:
        subjects: one model or two.
        problem: what to start with; the first of :func:`examples` by default.
        method: "zero" or "mean" ablation to start with.

    Raises:
        UserError: a problem that one of the models does not take, an unknown method, or no problem that all take.
    """

    def __init__(self, subjects: Sequence[Subject], problem: str | None = None, method: str = "zero"):
        if method not in METHODS:
            raise unknown_name("ablation method", method, METHODS)
        self.subjects = tuple(subjects)
        self._problem = ""
        self._whole: dict[int, Frame] = {}
        self._drawn: dict[Any, dict[str, Any]] = {}
        self.examples = examples(self.subjects)
        problem = self.examples[0][0] if problem is None else problem
        for subject in self.subjects:  # the means are computed now, so that the first click is as fast as the others
            subject.run(problem, ["L0H0"], "mean")
        self.start: dict[str, Any] = {
            "models": [describe(subject) for subject in self.subjects],
            "examples": [list(example) for example in self.examples],
            "methods": list(METHODS),
            "method": method,
            "problem": problem,
            "frames": self.frames(problem, [()] * len(self.subjects), method),
        }

    def frames(self, problem: str, ablated: Sequence[Sequence[str]], method: str) -> list[dict[str, Any]]:
        """A frame a model, as JSON."""
        if problem != self._problem:
            self._problem, self._whole, self._drawn = problem, {}, {}
        found = []
        for i, (subject, names) in enumerate(zip(self.subjects, ablated, strict=True)):
            try:
                found.append(self._frame(i, problem, tuple(names), method))
            except UserError as error:
                several = len(self.subjects) > 1 and subject.name not in str(error)
                raise UserError(f"{subject.name}: {error}" if several else str(error)) from None
        return found

    def _frame(self, i: int, problem: str, ablated: tuple[str, ...], method: str) -> dict[str, Any]:
        key = (i, ablated, method)
        if key not in self._drawn:
            if i not in self._whole:
                self._whole[i] = frame(self.subjects[i], problem)
            whole = self._whole[i]
            shown = frame(self.subjects[i], problem, ablated, method, whole=whole) if ablated else whole
            self._drawn[key] = shown.to_dict()
        return self._drawn[key]

    def reply(self, request: Any) -> dict[str, Any]:
        """The answer to a view's message {"id", "problem", "ablated": a list a model, "method"}.

        {"id", "frames"}, or {"id", "error"} with one sentence for what cannot be answered: the view keeps what it has.
        """
        request = request if isinstance(request, dict) else {}
        answer: dict[str, Any] = {"id": request.get("id")}
        problem, ablated = request.get("problem"), request.get("ablated", [[]] * len(self.subjects))
        try:
            if not isinstance(problem, str) or not problem.strip():
                raise UserError(f"Type a problem such as {self.examples[0][0]}.")
            if not (isinstance(ablated, list) and len(ablated) == len(self.subjects)):
                raise UserError(f"Say what to ablate in each of the {len(self.subjects)} models.")
            frames = self.frames(problem.strip(), ablated, request.get("method", "zero"))
        except UserError as error:
            return answer | {"error": str(error)}
        return answer | {"frames": frames}
