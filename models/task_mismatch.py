"""Whether a task that somebody gave a model is the model's own: :func:`task_mismatch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from models.errors import UserError
from models.number_format import in_percent
from models.tasks.check_task import made_with
from models.tasks.formats.formatted_task import FormattedTask, formatted
from models.tasks.formats.guess_from_texts import Guess, guess
from models.tasks.task import Task

TRIED = 200  # problems of the task, and of one that is proposed
#: :func:`models.evaluation.predict`, which asks here in turn.
Predict = Callable[..., torch.Tensor]
_AT_ONCE, _MOST = 4, 32  # examples that a proposal must fit, and how many are looked at


def task_mismatch(model: Any, task: Task, predict: Predict) -> str:
    """A sentence that the task may not be the model's, with what :func:`models.tasks.guess` makes of what the model
    writes; empty where the model answers half of :data:`TRIED` problems, or was made with the task and not given it.

    Cost: one forward pass of the problems; for a model that answers fewer, greedy decoding of 32 and one more.
    """
    if made_with(model, task) or task.selected_by == "loss" or _share(model, task, predict) >= 0.5:
        return ""
    if (found := proposal(model, task, predict)) is None:
        return (
            "The task may not be the model's: it answers less than half of it. models.guess, or interp load, tries "
            "other formats."
        )
    said, share = found
    by_that = f"By that it answers {in_percent(share)} of {TRIED} problems."
    return f"The task may not be the model's: {said} {by_that}"


def proposal(model: Any, task: Task, predict: Predict) -> tuple[Guess, float] | None:
    """What fits the problems and answers that the model writes, and the share that it answers by that; None if nothing
    fits, or the model answers less than half by what does."""
    if not isinstance(task, FormattedTask):
        return None
    texts = written(model, task, predict)
    for first in range(0, len(texts) - _AT_ONCE + 1, _AT_ONCE):  # as some of its answers may be wrong
        try:
            found = guess(texts[first : first + _AT_ONCE])
            own = formatted(**{**(found.task.definition or {}), "vocabulary": list(task.vocabulary)})
            share = _share(model, own, predict)
        except UserError:
            continue
        if share >= 0.5:
            return found, share
    return None


def written(model: Any, task: FormattedTask, predict: Predict) -> list[str]:
    """Problems of the task, each with what the model writes after it, as text."""
    problems = _problems(task, _MOST)
    answers = predict(model, problems, "greedy", task=task).cpu()
    known = list(task.vocabulary)
    apart = " " if any(len(text) > 1 and text.isdigit() for text in known) else ""  # each number is one token
    rows: Sequence[list[int]] = torch.cat((task.encode_prompt(problems).cpu(), answers), 1).tolist()
    return [apart.join(known[token] for token in row) for row in rows if min(row) >= 0 and max(row) < len(known)]


def _problems(task: Task, n: int) -> Any:
    return task.sample(n, torch.Generator().manual_seed(0))


def _share(model: Any, task: Task, predict: Predict) -> float:
    problems = _problems(task, TRIED)
    right = predict(model, problems, task=task).cpu() == task.targets(problems).cpu()
    return float(right.all(1).double().mean())
