"""Pairs of problems that differ in one thing: the clean and the corrupted run of a causal experiment.

:func:`models.tasks.paired.problem_pairs.problem_pairs` makes them from a task's symbolic algorithm, :func:`pairs` of
problems that you type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.calls.argument_kinds import Index, Problems, shown
from models.calls.bound_arguments import check_fields, typed
from models.calls.checked_calls import checked
from models.errors import UserError, known_name
from models.number_format import counted
from models.tasks.check_task import domain_of, require_sound
from models.tasks.columns.schoolbook import Column
from models.tasks.paired.pair_constraint import PairConstraint, changed_variables, first_of_each, first_rows
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike


@dataclass(frozen=True, eq=False, repr=False)
class ProblemPairs:
    """Pairs ``clean[i]``, ``corrupted[i]`` that differ in what ``what`` says, for a question about target ``target``.

    ``target`` counts the task's targets (its ``query_positions``). ``changed`` says, for every variable of the task's
    symbolic algorithm, in which columns of which pair the two problems differ; ``constraint`` is what holds for all
    pairs of the kind. :meth:`check` compares both with the algorithm again. ``exhaustive`` says that these are all
    pairs of the kind, each in one order. Problems may be given in any form that the task takes, and are kept as
    tensors.

    Raises:
        UserError: problems that the task refuses, no pair, a pair that was given twice (which is no further evidence;
            a draw may have it twice), sides of different lengths, or a target that does not exist.
    """

    task: Task
    clean: Int[Tensor, "n *operands"]
    corrupted: Int[Tensor, "n *operands"]
    target: int
    what: str  # "the carry into column 3"
    seed: int | None = None
    changed: Mapping[str, Bool[Tensor, "n *place"]] = field(default_factory=dict)
    constraint: PairConstraint | None = None
    exhaustive: bool = False

    def __post_init__(self) -> None:
        check_fields(self, but=("clean", "corrupted", "changed"))
        require_sound(self.task)
        for side in ("clean", "corrupted"):  # on the CPU, where tasks compute
            given = getattr(self, side)
            problems = given if isinstance(given, Tensor) and given.ndim > 1 else self.task.as_problems(given)
            object.__setattr__(self, side, problems.cpu())
        if self.target not in range(len(self.task.query_positions)):
            raise UserError(
                f"There is no target {self.target!r} of {self.task.name}; there are {len(self.task.query_positions)}, "
                "counted from 0."
            )
        if len(self.clean) != len(self.corrupted) or not len(self.clean):
            raise UserError(
                f"Pairs need as many corrupted problems as clean ones and at least one: {len(self.clean):,} and "
                f"{len(self.corrupted):,} were given."
            )
        if self.clean_tokens.shape != self.corrupted_tokens.shape:
            raise UserError(
                f"A pair's problems must have equal length to be patched into each other: the clean ones have "
                f"{self.clean_tokens.shape[1]} tokens, the corrupted ones {self.corrupted_tokens.shape[1]}."
            )
        if self.seed is None:  # these are given; a draw may meet a pair of a small domain again
            distinct = len(first_rows(torch.cat((self.clean.flatten(1), self.corrupted.flatten(1)), 1)))
            if distinct < len(self):
                raise UserError(f"Only {distinct:,} of these {len(self):,} pairs are different; give each once.")

    def __len__(self) -> int:
        return len(self.clean)

    def __repr__(self) -> str:
        one, other = (self.task.problem_text(self.task.numbers(s[:1])[0]) for s in (self.clean, self.corrupted))
        return (
            f"<{len(self):,} pairs of {self.task.name} that differ in {self.what}: target "
            f"{self.task.target_roles[self.target].label}, first {one} and {other}>"
        )

    @cached_property
    def clean_tokens(self) -> Int[Tensor, "n pos"]:
        return self.task.encode(self.clean)

    @cached_property
    def corrupted_tokens(self) -> Int[Tensor, "n pos"]:
        return self.task.encode(self.corrupted)

    @cached_property
    def clean_targets(self) -> Int[Tensor, "n target"]:
        return self.task.targets(self.clean)

    @cached_property
    def corrupted_targets(self) -> Int[Tensor, "n target"]:
        return self.task.targets(self.corrupted)

    def swapped(self) -> ProblemPairs:
        """The same pairs with clean and corrupted exchanged."""
        return replace(
            self,
            clean=self.corrupted,
            corrupted=self.clean,
            constraint=self.constraint and self.constraint.swapped(),
        )

    def select(self, rows: Int[Tensor, " k"] | Bool[Tensor, " n"] | slice) -> ProblemPairs:
        """Some of the pairs, such as those that a model answers rightly.

        Raises:
            UserError: no pair is selected, or one is selected twice.
        """
        try:
            rows = rows if isinstance(rows, slice) else torch.as_tensor(rows).cpu()
            clean = self.clean[rows]
            numbers = torch.arange(len(self))[rows]
            if numbers.ndim != 1:
                raise IndexError
        except (IndexError, TypeError, ValueError, RuntimeError, OverflowError):
            said = f"rows must be numbers of these {len(self):,} pairs, a mask or a slice, not {shown(rows)}."
            raise UserError(said) from None
        if len(numbers.unique()) < len(numbers):
            raise UserError(f"Each of these {len(self):,} pairs can be selected once.")
        return replace(
            self,
            clean=clean,
            corrupted=self.corrupted[rows],
            changed={name: values[rows] for name, values in self.changed.items()},
            exhaustive=self.exhaustive and len(clean) == len(self),
        )

    def check(self) -> ProblemPairs:
        """These pairs, after a check that no pair occurs twice in any order, none has two equal problems, ``changed``
        is as recorded, and the promise is kept.

        Raises:
            UserError: what does not hold, and in how many pairs.
        """
        n = len(self)
        one, other = self.clean.reshape(n, -1), self.corrupted.reshape(n, -1)
        if same := int((one == other).all(1).sum()):
            raise UserError(f"{same:,} of {n:,} pairs are of two equal problems.")
        distinct = len(first_of_each(one, other))
        if distinct < n:
            raise UserError(f"{n - distinct:,} of {n:,} pairs are there already, in one order or the other.")
        if self.changed:
            found = changed_variables(self.task, self.clean, self.corrupted)
            for name in found.keys() | self.changed.keys():
                if name not in found or name not in self.changed:
                    known = "recorded" if name in self.changed else "computed"
                    raise UserError(f"The variable {name!r} is only {known}: recorded are {', '.join(self.changed)}.")
                if not torch.equal(found[name], self.changed[name]):
                    raise UserError(f"What is recorded as changed in {name!r} is not what the algorithm says.")
        if self.constraint is not None:
            for clause, wrong in self.constraint.broken(self.task, self.clean, self.corrupted, self.target).items():
                if wrong.any():
                    raise UserError(f"In {int(wrong.sum()):,} of {n:,} pairs it does not hold that {clause}.")
        return self


@typed
def pairs(
    task: TaskLike, clean: Problems, corrupted: Problems, target: Index | str | None = None, what: str | None = None
) -> ProblemPairs:
    """Pairs of problems that you type: ``pairs(task, clean=[(15, 27)], corrupted=[(15, 22)])``.

    Args:
        clean, corrupted: as many problems of the one as of the other, in any form that the task takes.
        target: the target that the pairs are about, as a number or by its label ("s1"). By default the first whose
            right answers differ in every pair; for one pair, all that is written before it is equal.
        what: what the pairs differ in, for sentences.

    Raises:
        UserError: problems that the task refuses, a pair of two equal problems, no target in which all pairs differ, or
            a target that does not exist.
    """
    require_sound(task)
    sides = [
        given if isinstance(given, Tensor) and given.ndim > 1 else task.as_problems(given)
        for given in (clean, corrupted)
    ]
    if not all(map(len, sides)):
        raise UserError("There is no pair: a side has no problems.")
    if what is None:
        said = [task.problem_text(task.numbers(side[:1])[0]) for side in sides]
        more = f", and {counted(len(sides[0]) - 1, 'pair')} more" if len(sides[0]) > 1 else ""
        what = f"the problem ({said[0]} or {said[1]}{more})"
    found = ProblemPairs(task, sides[0], sides[1], 0, what)
    if same := int((found.clean == found.corrupted).flatten(1).all(1).sum()):
        raise UserError(f"{same:,} of {len(found):,} pairs are of two equal problems.")
    labels = [role.label for role in task.target_roles]
    if isinstance(target, str):
        target = labels.index(known_name("target", target, labels))
    if target is None:
        differs = (found.clean_targets != found.corrupted_targets).all(0).nonzero()[:, 0]
        if not len(differs):
            raise UserError(
                f"There is no target whose right answers differ in every pair; name one: {', '.join(labels)}."
            )
        target = int(differs[0])
    changed = changed_variables(task, found.clean, found.corrupted)
    return replace(found, target=target, changed=changed)


def column_of(task: Task) -> Column | None:
    """What a column does of a task that knows the variables of addition or subtraction; None of another."""
    values, base = task.variables(task.sample(1, torch.Generator().manual_seed(0))), domain_of(task).base
    for rule in (Column(base=base), Column(base=base, subtracts=True)):
        needed = {"a", "b", rule.name_in, "s", rule.total_name, "chain"}
        if needed <= values.keys() and all(values[name].ndim == 2 for name in needed):
            return rule
    return None


#: What :func:`problem_pairs` makes: name -> function; the file of each kind adds its own.
KINDS: dict[str, Callable[..., ProblemPairs]] = {}


@checked
def problem_pairs(task: TaskLike, kind: str, **arguments: Any) -> ProblemPairs:
    """Pairs of a kind: "carry", "made carry", "passed carry", "same carry" (controls), "digit", "chain", "variable".
    In a subtraction, the first four may be called "borrow" and so on; a sum has no borrows.

    The arguments are those of the kind's function: ``problem_pairs(task, "made carry", column=3, n=256, seed=0)``.

    Raises:
        UserError: an unknown kind or argument (with the closest one), a missing one, borrows of a task that adds, or
            what the function refuses.
    """
    generator = KINDS[known_name("kind of pairs", kind, KINDS)]
    taken = inspect.signature(generator).parameters
    fixed = set(generator.keywords) if isinstance(generator, partial) else set()
    known = [name for name in taken if name != "task" and name not in fixed]
    for name in arguments:
        known_name(f"argument of {kind!r} pairs", name, known)
    missing = [name for name in known if taken[name].default is inspect.Parameter.empty and name not in arguments]
    if missing:
        raise UserError(f"{kind!r} pairs need {', '.join(missing)}.")
    if "borrow" in kind and (rule := column_of(task)) is not None and not rule.subtracts:
        raise UserError(f"{task.name} adds and has no borrows; ask for {kind.replace('borrow', 'carry')!r} pairs.")
    return generator(task, **arguments)
