"""Ask models of different formats the same questions: one row per model, one column per question.

    interp.compare_models([models.load("microadder-57"), models.load("toygpt-learned-pre")]).figure()

:func:`interp.compare` compares two models of *one* format token by token and head by head. Here nothing is matched:
every question is a probe that gives a number (``summary`` in :func:`interp.core.probe.probe`), asked of each model
about its own task, and a probe that does not apply to a model says so instead. The control of a number is the one that
its probe states, or else the same number of an untrained twin: the same architecture with fresh parameters (for a model
without parameters, Gaussian weights with the root mean square of each matrix).

Limits. Different formats have different problems: sums of two-digit numbers have no long chains.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import models
from interp.compare.model_table import ModelRow, ModelTable, TableQuestion
from interp.core.controls import untrained_twin
from interp.core.estimate import DoesNotApply, Estimate
from interp.core.probe import Probe, probe, with_number
from interp.core.results import Provenance
from interp.core.task_checks import resolve_task
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError
from models.tasks import MultiOperandAddition, SequenceTask, Task
from models.transformer import HookedModel, model_name

PROBLEMS = 1000
NAME = "compare_models"


@probe("Models of any formats, asked the same questions", least=20)
def compare_models(
    models: Sequence[HookedModel],
    *,
    tasks: Task | Sequence[Task | None] | None = None,
    questions: Sequence[str] | None = None,
    n: Count = PROBLEMS,
    seed: Seed = 0,
    progress: bool = False,
) -> ModelTable:
    """Ask models of any formats the same questions.

    Args:
        models: models with TransformerLens hooks.
        tasks: what each model's tokens mean (None for its own), or one task for all. By default each model's own, with
            two operands for sums of many, so that every format adds two numbers.
        questions: names of probes that give a number; default those that take seconds and apply to any of the models.
            ``"certify"``, for example, is asked by name.
        n: problems per sampled question, by default 1,000, as there are many questions (some take fewer, and say so).
        seed: draws problems and untrained twins.
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
    chosen = with_number(questions, NAME)
    given = [None] * len(models) if tasks is None else list(tasks)
    asked = [task_asked_about(model, task) for model, task in zip(models, given, strict=True)]
    if questions is None:  # what applies to none of them is no column
        pairs = list(zip(models, asked, strict=True))
        chosen = [each for each in chosen if not all(each.why_not(model, task) for model, task in pairs)]
    names: list[str] = []
    for name in map(model_name, models):
        copies = sum(taken == name or taken.startswith(f"{name} (") for taken in names)
        names.append(f"{name} ({copies + 1})" if copies else name)
    rows = [_row(*one, chosen, n, seed, progress) for one in zip(names, models, asked, strict=True)]
    return ModelTable(tuple(map(question_of, chosen)), tuple(rows), Provenance(n, seed, "problems a question"))


def question_of(each: Probe) -> TableQuestion:
    """The column of a probe that gives a number."""
    assert each.summary is not None
    return TableQuestion(each.name, each.summary.heading, each.question, each.summary.unit, each.summary.least)


def task_asked_about(model: HookedModel, task: Any) -> Task:
    """The given task, else the model's own, with two operands for sums of many.

    Raises:
        UserError: not a hooked model, no task, or a task that does not fit.
    """
    own = resolve_task(model, task)
    if task is None and isinstance(own, MultiOperandAddition) and own.n_operands > 2:
        return own.at(2, own.n_digits)
    return own


def _row(
    name: str,
    model: HookedModel,
    task: Task,
    chosen: Sequence[Probe],
    n: int,
    seed: int,
    progress: bool,
) -> ModelRow:
    """One model's row. If a question refuses the model, the cell has the reason."""
    twin, answers = untrained_twin(model, task, seed), {}
    for each in chosen:
        try:
            answers[each.name] = _with_control(each, each.number(model, task=task, n=n, seed=seed), twin, task, n, seed)
        except UserError as refused:
            answers[each.name] = DoesNotApply(str(refused))
        if progress:
            print(f"{name}: {each.question}", file=sys.stderr)
    cfg = model.cfg
    sizes = sum(p.numel() for p in model.parameters()), cfg.n_layers, cfg.n_heads, cfg.n_layers * (cfg.d_mlp or 0)
    return ModelRow(name, _described(task), _made(model), *sizes, answers)


def _with_control(each: Probe, answer: Estimate, twin: HookedModel, task: Task, n: int, seed: int) -> Estimate:
    """Missing controls are measured on an untrained copy, except for slow probes."""
    assert each.summary is not None
    if answer.control is not None or NAME not in each.summary.asked_by:
        return answer
    try:
        blank = each.number(twin, task=task, n=n, seed=seed).value
    except UserError:  # the twin has nothing to measure
        return answer
    return replace(answer, control=blank, control_note="an untrained twin")


def _described(task: Task) -> str:
    """The format with its shape, such as "multi-operand-addition, T_A(4 digits, 2 operands)"."""
    shape = getattr(task, "shape_text", None) if isinstance(task, SequenceTask) else None
    return f"{task.name}, {shape}" if shape else task.name


def _made(model: HookedModel) -> str:
    name = str(getattr(model, "name_or_path", ""))
    if name not in models.names(sweeps=True):
        return ""
    return models.get_spec(name).made
