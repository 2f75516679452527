"""The problems of any arithmetic task as digits that a search may change: [problem, operand, column], units first.

All moves from one problem to another (change a digit, move it between operands, let a run of columns pass carries on)
are here too. The task gives the answer that follows from them. It also says which digits are allowed
(:attr:`models.tasks.task.Task.domain`), so that whatever is found is a problem of the task.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.samples import draw
from models.tasks import Domain, Task, domain_of

CARRY_RICH = 0.5  # share of the draws that are rich in carries, where a task has carries
#: A domain counts as exhausted after this many draws in a row that bring nothing new.
PATIENCE = 20

Digits = Int[Tensor, "n operand column"]
OtherDigits = Int[Tensor, "k operand column"]  # of another number of problems


@dataclass(frozen=True, eq=False)
class DigitSpace:
    """The problems of ``task``: ``allowed`` says which digits may stand in which place."""

    task: Task
    domain: Domain

    @cached_property
    def allowed(self) -> Bool[Tensor, "operand column base"]:
        """Which digits may stand in which place. Where an operand has no digit, only zero may."""
        cells = zip(self.domain.operand, self.domain.column, strict=True)
        allowed = torch.zeros(self.n_operands, self.n_columns, self.base, dtype=torch.bool)
        allowed[..., 0] = True
        for cell, (operand, column) in enumerate(cells):
            allowed[operand, column, 0] = False
            allowed[operand, column, list(self.domain.digits(cell))] = True
        return allowed

    @property
    def n_operands(self) -> int:
        return self.domain.n_operands

    @property
    def n_columns(self) -> int:
        return self.domain.n_columns or 1 + max(self.domain.column)

    @property
    def base(self) -> int:
        return self.domain.base

    def digits(self, problems: Int[Tensor, "n *operands"]) -> Digits:
        """The digits of problems given as the task writes them."""
        if self.domain.n_columns is not None:
            return problems
        out = torch.zeros(len(problems), self.n_operands, self.n_columns, dtype=torch.int64)
        out[:, list(self.domain.operand), list(self.domain.column)] = self.domain.digits_of(problems)
        return out

    def problems(self, digits: Digits) -> Int[Tensor, "n *operands"]:
        """The task's problems with these digits."""
        if self.domain.n_columns is not None:
            return digits
        return (digits * self.base ** torch.arange(self.n_columns)).sum(2)

    def contains(self, digits: Digits) -> Bool[Tensor, " n"]:
        """Whether every digit is allowed where it stands, and the domain has the problem."""
        inside = ((digits >= 0) & (digits < self.base)).flatten(1).all(1)
        return inside & self.domain.holds(self.problems(digits))

    def keys(self, digits: Digits) -> list[bytes]:
        """One key per problem, which tells it from all others."""
        rows = digits.flatten(1).to(self.domain.dtype).numpy()
        return [row.tobytes() for row in rows]

    @cached_property
    def subtracts(self) -> bool:
        """Whether the second of two operands is subtracted from the first."""
        found = self.task.variables(self.task.sample(1, torch.Generator().manual_seed(0)))
        return self.n_operands == 2 and "digit_difference" in found

    def as_sum(self, digits: Int[Tensor, "*n operand column"]) -> Int[Tensor, "*n operand column"]:
        """Digits whose sum takes the place of a difference: the second operand's become base - 1 minus them, so that
        nines pass a borrow on as they pass a carry on. It is its own inverse, and changes nothing where one adds."""
        if not self.subtracts:
            return digits
        return torch.stack((digits[..., 0, :], self.base - 1 - digits[..., 1, :]), -2)

    def digit_sums(self, digits: Digits) -> Digits | None:
        """For every operand's digit, its sum with the digit that it is added to, both :meth:`as_sum`; None without
        carries.

        It is the symbolic algorithm's ``digit_sum``, of two operands or of operand i and the running sum before it.
        """
        if self.subtracts:
            return self.as_sum(digits).sum(1, keepdim=True).expand(-1, 2, -1)
        found = self.task.variables(self.problems(digits))
        if not {"digit_sum", "propagate"} <= found.keys():
            return None
        sums = found["digit_sum"]
        if sums.ndim == 2 and self.n_operands == 2:
            sums = sums[:, None].expand(-1, 2, -1)
        if sums.ndim != 3 or sums.shape[1] != self.n_operands or sums.shape[2] < self.n_columns:
            return None
        return sums[..., : self.n_columns]

    def fresh(self, n: int, rng: np.random.Generator, seen: set[bytes]) -> Digits:
        """Draw up to ``n`` problems that were not seen, half of them rich in carries where the task has carries.

        They are fewer only if :data:`PATIENCE` draws in a row brought nothing new. They count as seen from here on.
        """
        kept: list[Tensor] = []
        missing, idle = n, 0
        while missing > 0 and idle < PATIENCE:
            sample = draw(self.task, None, max(2, missing), int(rng.integers(2**31)), CARRY_RICH)
            drawn = self.digits(sample.problems)
            drawn = drawn[torch.from_numpy(rng.permutation(len(drawn)))]
            kept.append(unseen(self, drawn[self.contains(drawn)], seen)[:missing])
            seen.update(self.keys(kept[-1]))
            missing -= len(kept[-1])
            idle = 0 if len(kept[-1]) else idle + 1
        return torch.cat(kept) if kept else torch.zeros(0, self.n_operands, self.n_columns, dtype=torch.int64)


def unseen(space: DigitSpace, digits: Digits, seen: set[bytes]) -> OtherDigits:
    """The problems that were not seen yet, each once, in their order."""
    taken: set[bytes] = set()
    rows = []
    for row, key in enumerate(space.keys(digits)):
        if key not in seen and key not in taken:
            taken.add(key)
            rows.append(row)
    return digits[rows]


def digit_space(task: Task) -> DigitSpace:
    """The space of a task's problems.

    Raises:
        UserError: a task that does not say which problems it has, or whose sequences have no fixed places.
    """
    space = DigitSpace(task, domain_of(task))
    task.targets(task.sample(1, torch.Generator().manual_seed(0)))  # raises for formats without fixed places
    return space


# ---- moves


def changed_digits(space: DigitSpace, digits: Int[Tensor, "operand column"]) -> Digits:
    """Every problem that differs in one digit."""
    operand, column, digit = space.allowed.nonzero().T
    other = digits[operand, column] != digit
    operand, column, digit = operand[other], column[other], digit[other]
    found = digits.repeat(len(digit), 1, 1)
    found.index_put_((torch.arange(len(digit)), operand, column), digit)
    return found if space.domain.where is None else found[space.contains(found)]


def moved_digits(space: DigitSpace, digits: Int[Tensor, "operand column"]) -> Digits:
    """Every problem in which two operands split one column's sum differently; carries and answer stay the same."""
    found, digits = [], space.as_sum(digits)
    for first in range(space.n_operands):
        for second in range(first + 1, space.n_operands):
            value = torch.arange(space.base).expand(space.n_columns, -1)
            rest = (digits[first] + digits[second])[:, None] - value
            valid = (value != digits[first][:, None]) & (rest >= 0) & (rest < space.base)
            column, index = valid.nonzero().T
            rows = torch.arange(len(column))
            moved = digits.repeat(len(column), 1, 1)
            moved[rows, first, column] = value[column, index]
            moved[rows, second, column] = rest[column, index]
            found.append(moved)
    moved = space.as_sum(torch.cat(found) if found else digits[None][:0])
    return moved[space.contains(moved)]


def runs_of_nines(
    space: DigitSpace, digits: Int[Tensor, "operand column"], sums: Int[Tensor, "operand column"]
) -> Digits:
    """Every problem in which one operand's digits make a run of columns add up to nine, so that a carry passes.

    ``sums``: the sum that each digit takes part in, see :meth:`DigitSpace.digit_sums`.
    """
    columns, own = torch.arange(space.n_columns), space.as_sum(digits)
    low, high = torch.triu_indices(space.n_columns, space.n_columns)
    inside = (columns >= low[:, None]) & (columns <= high[:, None])  # [run, column]
    found = []
    for operand in range(space.n_operands):
        nine = own[operand] + space.base - 1 - sums[operand]
        made = own.repeat(len(inside), 1, 1)
        made[:, operand] = torch.where(inside, nine, own[operand])
        found.append(made)
    made = space.as_sum(torch.cat(found))
    made = made[space.contains(made)]
    return made[(made != digits).flatten(1).any(1)]


def crossed(space: DigitSpace, digits: Int[Tensor, "operand column"], other: Int[Tensor, "operand column"]) -> Digits:
    """Every problem with the low columns of one of the two and the high columns of the other."""
    columns = digits.shape[1]
    below = torch.arange(columns) < torch.arange(1, columns)[:, None]  # [cut, column]
    below = below[:, None].expand(-1, digits.shape[0], -1)
    found = torch.cat((torch.where(below, digits, other), torch.where(below, other, digits)))
    return found if space.domain.where is None else found[space.contains(found)]
