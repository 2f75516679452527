"""Pairs of problems that differ in one chosen intermediate value of any task's symbolic algorithm.

Pairs of problems are drawn that differ in little (one digit of one operand), and those are kept in which the
chosen value differs and the named others do not. This is rejection sampling, so uniform over all such pairs. In parity,
digits are bits; sums of several numbers and products have steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.calls.argument_kinds import Count, Index, Seed
from models.calls.checked_calls import checked
from models.errors import UserError, unknown_name
from models.tasks.check_task import domain_of
from models.tasks.columns.variable_text import variable_text, variable_values
from models.tasks.domain import Domain
from models.tasks.paired.pair_constraint import PairConstraint, changed_variables
from models.tasks.paired.pair_space import CellBlock, PairSpace
from models.tasks.paired.problem_pairs import KINDS, ProblemPairs
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike

PROBES = 512  # one-digit pairs that tell in which of several targets a variable shows most
FEW_PROBES = 32  # and whether it shows in a target at all
AMONG = ", of those with one different digit"


def _one_digit(domain: Domain) -> list[list[CellBlock]]:
    """The candidates: pairs that differ in one digit of one operand."""
    return [[CellBlock.cell(domain, cell, different=True)] for cell in range(len(domain))]


def draw_variable_pairs(
    task: Task,
    domain: Domain,
    products: Sequence[Sequence[CellBlock]],
    constraint: PairConstraint,
    target: int,
    n: int | None,
    seed: int,
    what: str,
    among: str = "",
) -> ProblemPairs:
    """Draw ``n`` pairs (None: all) of a space that keep a constraint; what changes is recorded and checked."""
    accept = lambda one, other: constraint.holds(task, one, other, target)  # noqa: E731
    space = PairSpace(task, domain, products, accept, what, among)
    clean, corrupted, exhaustive = space.draw(n, seed)
    return checked_pairs(task, clean, corrupted, target, what, seed, constraint, exhaustive)


def checked_pairs(
    task: Task,
    clean: Tensor,
    corrupted: Tensor,
    target: int,
    what: str,
    seed: int,
    constraint: PairConstraint,
    exhaustive: bool,
) -> ProblemPairs:
    """Pairs with a record of what changes in each, after a check that they keep their constraint."""
    changed = changed_variables(task, clean, corrupted)
    return ProblemPairs(task, clean, corrupted, target, what, seed, changed, constraint, exhaustive).check()


@checked
def variable_pairs(
    task: TaskLike,
    variable: str,
    column: Index | tuple[Index, ...],
    n: Count | None,
    seed: Seed = 0,
    keep: Sequence[str] = (),
    target: Index | None = None,
    answer: str | None = "different",
) -> ProblemPairs:
    """Pairs in which ``variable`` differs in ``column``, and what ``keep`` names does not.

    Args:
        variable: a key of ``task.variables``.
        column: (step, column) for a variable with steps; steps count from 0.
        n: how many; None for all, if they are few enough to list.
        keep: variables, or columns of them, that are equal: ``["carry_in", "s[:3]", "product[1,2]"]``.
        target: the task's target that the pairs are about; by default the one with the variable's column (and step, if
            targets have steps), if it changes with the variable. If it does not, or there are several, it is the one
            that changes most often with the variable.
        answer: whether the right answer there is "equal" or "different"; None allows both.

    Cost: candidates are drawn until there are enough, some millions at most; each needs the task's variables.

    Raises:
        UserError: a variable (with the closest one), column, place or target that does not exist, or fewer pairs than
            ``n`` (or none, if the value cannot differ without the kept ones).
    """
    domain = domain_of(task)
    index = (column,) if isinstance(column, int) else tuple(column)
    probe = task.variables(task.sample(2, torch.Generator().manual_seed(0)))
    if variable not in probe:
        raise unknown_name("variable", variable, probe)
    dims = probe[variable].ndim - 1
    if len(index) != dims:
        shape = " x ".join(map(str, probe[variable].shape[1:]))
        given = "column=(step, column)" if dims == 2 else "one column"
        raise UserError(f"{variable!r} of {task.name} has {dims} axes ({shape}); give {given}, not {column!r}.")
    where = variable_text(variable, index)
    for text in (where, *([keep] if isinstance(keep, str) else keep)):
        if not variable_values(probe, text).shape[1]:
            raise UserError(f"{text!r} has no column in it, so that nothing would be kept equal.")
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    if target is None:
        target = _target_of(task, domain, variable, index)
    elif not 0 <= target < len(task.query_positions):
        raise UserError(f"There is no target {target!r}; there are {len(task.query_positions)}, counted from 0.")
    constraint = PairConstraint((where,), kept, {}, answer)
    wanted = [f"{', '.join(kept)} kept"] if kept else []
    wanted += [f"the answer {answer}"] if answer else []
    what = where + (f", with {' and '.join(wanted)}" if wanted else "")
    among = f"{AMONG}, at the target {task.target_roles[target].label}"
    return draw_variable_pairs(task, domain, _one_digit(domain), constraint, target, n, seed, what, among)


def _target_of(task: Task, domain: Domain, variable: str, index: tuple[int, ...]) -> int:
    """The default target for pairs that differ in a variable; see :func:`variable_pairs`."""
    written = [(i, role) for i, role in enumerate(task.target_roles) if role.kind in ("answer", "scratchpad")]
    found = [(i, role) for i, role in written if role.column == index[-1]]
    found = [(i, role) for i, role in found if len(index) < 2 or role.index == index[0] + 1] or found
    answers = [(i, role) for i, role in written if role.kind == "answer"]
    found = found or answers
    where = variable_text(variable, index)
    candidates = PairSpace(
        task, domain, _one_digit(domain), lambda a, b: PairConstraint((where,)).holds(task, a, b, 0), where
    )
    few = PROBES if len(found) > 1 else FEW_PROBES
    try:
        clean, corrupted, _ = candidates.draw(None if candidates.size <= few else few, 0)
    except UserError:  # no single digit changes it: the column is all that is known
        return found[0][0]
    changes = (task.targets(clean) != task.targets(corrupted)).sum(0).tolist()
    if not any(changes[i] for i, _ in found):
        found = answers or found
    return max(found, key=lambda target: changes[target[0]])[0]


KINDS["variable"] = variable_pairs
