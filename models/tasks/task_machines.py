"""Which machine a task has, by its class and its definition; :func:`models.tasks.machine.machine_of` is the call."""

from __future__ import annotations

from dataclasses import replace

import torch

from models.errors import UserError
from models.tasks.base import Task, domain_of
from models.tasks.domain import NotCountable
from models.tasks.equal_answers import NotDecided, altered
from models.tasks.format_machines import machine_of_format
from models.tasks.formatted_task import FormattedTask
from models.tasks.machine import Machine, NotAPath, sequences

_LOOKED_AT = 64  # drawn problems, and as many hard ones, on which every machine is compared with its task


def made(task: Task) -> Machine:
    """The machine of a task. Raises UserError with the reason why there is none."""
    try:
        if not isinstance(task, FormattedTask):
            raise NotDecided("it is no format")
        if changed := altered(task):
            raise NotDecided(f"{changed} is no method of this package")
        machine = machine_of_format(task)
    except NotDecided as why:
        raise UserError(f"{task.name} is not known to need a small memory only: {why}.") from None
    return checked(task, machine)


def checked(task: Task, machine: Machine) -> Machine:
    """The machine, after it was compared with its task: on the number of problems, and on some of them.

    Raises:
        UserError: it has another number of paths than the task has problems, so that some have no answer that fits;
            or a problem that is none of them.
    """
    try:
        size = domain_of(task).size
    except NotCountable:  # a rule such as a + b < 100, of too many numbers to try it on all
        size = machine.count()
    if machine.count() != size:
        raise UserError(
            f"{task.name} has {size:,} problems, and only {machine.count():,} have an answer that can be written."
        )
    draws = torch.Generator().manual_seed(0)
    drawn = [task.sample(_LOOKED_AT, draws), machine.problems(machine.sample(_LOOKED_AT, draws))]
    if (hard := getattr(task, "sample_carry_rich", None)) is not None:
        drawn.append(hard(_LOOKED_AT, draws))
    problems = torch.cat(drawn)
    compare(task, machine, problems)
    return machine


def compare(task: Task, machine: Machine, problems: torch.Tensor) -> None:
    """Raise UserError with the first of some problems that is no path of a machine."""
    try:
        paths = machine.run(sequences(task, problems))
        same = (machine.problems(paths) == problems).flatten(1).all(1)
    except NotAPath as error:
        same = torch.arange(len(problems)) != error.row
    if not same.all():
        wrong = task.problem_text(task.numbers(problems[~same][:1])[0])
        raise UserError(f"{task.name} is not the machine that it was said to be: {wrong} is written in another way.")


def tried(machine: Machine, n: int) -> Machine:
    """The machine, compared with its task on ``n`` problems and no more than that."""
    return replace(machine, tried=n)
