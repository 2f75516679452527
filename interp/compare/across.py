"""Ask models of different formats the same questions: one row per model, one column per question.

    interp.compare_models([models.load("microadder-57"), models.load("toygpt-learned-pre")]).figure()

:func:`interp.compare` compares two models of *one* format token by token and head by head. Here nothing is matched:
every question is phrased in what all formats of addition share (:mod:`interp.compare.subject`), and a question that
makes no sense for a model says so instead of giving a number. The questions are in :mod:`interp.compare.questions`; a
further one is one function there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import models
from interp.compare.answers import Question
from interp.compare.known_questions import find_questions
from interp.compare.model_table import ModelRow, ModelTable
from interp.compare.subject import CARRY_HEAVY, Subject, subject
from interp.core.answers import Answer, DoesNotApply
from interp.core.model import HookedModel
from interp.core.probe import probe
from interp.core.results import Provenance
from models.errors import UserError
from models.tasks.base import Task
from models.tasks.sequences import SequenceTask

PROBLEMS = 1000


@probe("Models of any formats, asked the same questions")
def compare_models(
    models: Sequence[HookedModel],
    *,
    tasks: Task | Sequence[Any] | None = None,
    questions: Sequence[str] | None = None,
    n: int = PROBLEMS,
    seed: int = 0,
    progress: bool = False,
) -> ModelTable:
    """Ask models of any formats the same questions.

    Args:
        models: models with TransformerLens hooks.
        tasks: what each model's tokens mean (None for its own), or one task for all. By default each model's own, with
            two operands for sums of many, so that every format adds two numbers.
        questions: names of the questions to ask; default all that are registered.
        n: problems per sampled question, by default 1,000, as there are many questions (interchange, resampling and
            corrupted digits take fewer and say how many).
        seed: draws problems, untrained twins and shuffles.
        progress: write a line per question to stderr.

    Cost: 2 s for an adder of one head, some 15 s for one of 800,000 parameters, on one core.

    Raises:
        UserError: no model, something that is not a hooked model with a task, an unknown question, or n below 20.
    """
    models = list(models)
    if not models:
        raise UserError("There is no model to compare: the list is empty.")
    tasks = [tasks] * len(models) if isinstance(tasks, Task) else tasks
    if tasks is not None and len(tasks) != len(models):
        raise UserError(f"Give one task per model (or None for its own): {len(models)} models and {len(tasks)} tasks.")
    if n < 20:
        raise UserError(f"Questions need at least 20 problems, not n = {n}.")
    chosen = find_questions(questions)
    given = [None] * len(models) if tasks is None else list(tasks)
    subjects: list[Subject] = []
    for model, task in zip(models, given, strict=True):
        asked = subject(model, task, None, n, seed)
        taken = [one.name for one in subjects]
        copies = sum(name == asked.name or name.startswith(f"{asked.name} (") for name in taken)
        subjects.append(subject(model, task, f"{asked.name} ({copies + 1})", n, seed) if copies else asked)
    rows = []
    while subjects:
        rows.append(ask(subjects.pop(0), chosen, progress))  # popping frees what the subject has cached
    return ModelTable(tuple(question for question, _ in chosen), tuple(rows), provenance(n, seed))


def provenance(n: int, seed: int) -> Provenance:
    """A table's provenance: what a question rests on unless its answer says otherwise."""
    heavy = round(n * CARRY_HEAVY)
    return Provenance(n, seed, f"problems a question ({n - heavy:,} uniform, {heavy:,} rich in carry chains)")


def ask(asked: Subject, chosen: Sequence[tuple[Question, Callable[[Subject], Answer]]], progress: bool) -> ModelRow:
    """One model's row. If a question refuses the model, the cell has the reason."""
    answers: dict[str, Answer | DoesNotApply] = {}
    for question, function in chosen:
        try:
            answers[question.name] = function(asked)
        except UserError as refused:
            answers[question.name] = DoesNotApply(str(refused))
        if progress:
            print(f"{asked.name}: {question.heading}", file=sys.stderr)
    cfg = asked.model.cfg
    units = cfg.n_layers * (cfg.d_mlp or 0)
    return ModelRow(asked.name, _described(asked.task), _made(asked.model), cfg.n_layers, cfg.n_heads, units, answers)


def _described(task: Task) -> str:
    """The format with its shape, such as "multi-operand-addition, T_A(4 digits, 2 operands)"."""
    shape = getattr(task, "shape_text", None) if isinstance(task, SequenceTask) else None
    return f"{task.name}, {shape}" if shape else task.name


def _made(model: HookedModel) -> str:
    name = str(getattr(model, "name_or_path", ""))
    if name not in models.names(sweeps=True):
        return ""
    return "by hand" if models.get_spec(name).recipe is None else "trained"
