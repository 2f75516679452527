"""The machine of any task: what the task derives, else what it may be, else all its problems (:func:`machine_of`)."""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.altered_tasks import altered, is_ours
from models.tasks.check_task import domain_of
from models.tasks.domain import COUNTED
from models.tasks.machines.listed_machines import machine_of_all
from models.tasks.machines.machine import Machine, NotAPath, sequences
from models.tasks.refusals import NoDomain, NoMachine, TooManyToCount
from models.tasks.task import Task

LOOKED_AT = 64  # drawn problems, and as many hard ones, on which every machine is compared with its task
_TRIED = 1_000  # as many, where nothing else is known of the task's answer


class Differs(UserError):
    """Raised for a task whose answer is not that of a machine; ``problem`` is the text of one."""

    def __init__(self, name: str, problem: str):
        super().__init__(f"{name} has another answer for {problem} than the machine that it is said to be.")
        self.problem = problem


def machine_of(task: Task) -> Machine:
    """The machine of a task. It is kept on a task of this package.

    It is derived from the task's definition where that has a derivation
    (:meth:`models.tasks.task.Task.derived_machine`), made by running all problems where they are few, and else compared
    with the task's answer on drawn problems (``Machine.checked_on`` says on how many).

    Raises:
        UserError: a task whose answer is not known to need a small memory, with the reason; one that answers a problem
            otherwise than the machine that it is said to be.
    """
    own = altered(task)  # a method that says something else than its class does
    if own is None and "machine" in task.kept:
        return task.kept["machine"]
    machine = _machine_of(task, own)
    if own is None:
        task.kept["machine"] = machine
    return machine


def _machine_of(task: Task, own: str | None) -> Machine:
    listed = _is_listed(task)
    try:
        if own is not None and is_ours(type(task).derived_machine):
            raise NoMachine(f"{own} is no method of this package")
        machine = _compared(task, task.derived_machine(), LOOKED_AT)
        return _settled(task, machine, listed) if own is not None or task.machine_is_said else machine
    except NoMachine as why:
        reason = str(why)
    for candidate in task.candidate_machines():
        try:
            machine = candidate()
            compare(task, machine, task.sample(LOOKED_AT, torch.Generator().manual_seed(0)))
        except (UserError, NoMachine):
            continue
        try:
            return _settled(task, machine, listed)
        except Differs as error:  # it is nearly this one
            reason = f"its answer is a function in Python, and another for {error.problem} than it seems to be"
    if listed:
        return machine_of_all(task)
    raise UserError(f"{task.name} is not known to need a small memory only ({reason}), and {_too_many(task)}.")


def _too_many(task: Task) -> str:
    """Why the problems of a task are not all run."""
    try:
        return f"its {domain_of(task).size:,} problems are too many to run all of them"
    except TooManyToCount:
        return "its problems are too many to count them"
    except NoDomain:
        return "it does not say which problems it has"


def _settled(task: Task, machine: Machine, listed: bool) -> Machine:
    """A machine that was not derived, after it was compared with its task on all problems or on thousands of them."""
    machine = _compared(task, machine, _TRIED)
    if not listed:
        return replace(machine, checked_on=2 * _TRIED)
    for part in task.domain.every().split(2**16):
        compare(task, machine, part)
    return machine


def _is_listed(task: Task) -> bool:
    try:
        domain = domain_of(task)
    except NoDomain:
        return False
    most = task.most_run
    return domain.combinations <= most or (domain.combinations <= COUNTED and domain.size <= most)


def _compared(task: Task, machine: Machine, n: int) -> Machine:
    """The machine, after it was compared with its task: on the number of problems, ``n`` uniform ones and ``n`` hard.

    Raises:
        UserError: it has fewer paths than the task has problems, as some have no answer that fits; or a problem that is
            none of them.
    """
    try:
        size = domain_of(task).size
    except TooManyToCount:  # a rule without a machine, of too many numbers to try it on all
        size = machine.count()
    if machine.count() != size:
        raise UserError(
            f"{task.name} has {size:,} problems, and {machine.count():,} of them have an answer that can be written."
        )
    draws = torch.Generator().manual_seed(n)
    compare(task, machine, torch.cat((task.sample(n, draws), _hard(task, machine, n, draws))))
    return machine


def compare(task: Task, machine: Machine, problems: Int[Tensor, "n *operands"]) -> None:
    """Raise Differs with the first of some problems that is no path of a machine."""
    try:
        paths = machine.run(sequences(task, problems))
        wrong = (machine.problems(paths) != problems).flatten(1).any(1).nonzero()[:, 0].tolist()
    except NotAPath as error:
        wrong = [error.row]
    if wrong:
        text = task.problem_text(task.numbers(problems[wrong[0] : wrong[0] + 1])[0])
        raise Differs(task.name, text)


def _hard(task: Task, machine: Machine, n: int, draws: torch.Generator) -> Int[Tensor, "n *operands"]:
    """Problems of which as many meet rare states, long carries, and what else the task names as hard, as far as it has
    such."""
    found = task.adversarial_problems(n, draws)
    if task.has_long_carries:
        found = [*found, task.sample(n, draws, long_carries=True)]
    found = [kind[: n // (len(found) + 1)] for kind in found]
    rare = n - sum(map(len, found))
    return torch.cat((*found, machine.problems(machine.sample(rare, draws, rare=True))))
