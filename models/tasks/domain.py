"""The domain of a task: all its problems, as the combinations of digits that its operands may have.

The domain belongs to the task (:attr:`models.tasks.task.Task.domain`). Code that goes through all problems, changes one
digit, or draws pairs of problems gets it from here, and assumes nothing if a task does not define one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import torch
from jaxtyping import Bool, Int, Integer
from torch import Tensor

from models.calls.bound_arguments import typed
from models.errors import UserError
from models.tasks.refusals import TooManyToCount

COUNTED = 2**24  # of at most this many combinations of digits, those that a rule allows are counted one by one


@dataclass(frozen=True)
class Domain:
    """The product of the values that its *cells* may have. Cell i is the digit of operand ``operand[i]`` that counts
    ``base ** column[i]``; it goes from ``lowest[i]`` to ``base - 1``, or to ``highest[i]`` where that is given.

    ``where`` narrows the domain to the problems for which it is true; ``allowed`` is how many these are, if that is
    known. If ``n_columns`` is None, problems are numbers, [n, operand]; else digits, [n, operand, n_columns]. A
    number that is one token, such as a residue modulo p, is one digit in base p: ``Domain.of((1, 1), base=p)``.

    ``numbering`` gives the problems that ``where`` allows by their numbers, 0 to ``allowed`` - 1, where no list of them
    is needed for that. With ``from_left``, as of a string of bits, column 0 is the first one and changes last.
    """

    base: int
    operand: tuple[int, ...]
    column: tuple[int, ...]
    lowest: tuple[int, ...]
    n_columns: int | None = None
    highest: tuple[int, ...] | None = None
    where: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    allowed: int | None = None
    numbering: Callable[[Tensor], Tensor] | None = field(default=None, compare=False)
    from_left: bool = False

    @classmethod
    @typed
    def of(
        cls,
        lengths: Sequence[int],
        base: int = 10,
        leading_zeros: bool = True,
        n_columns: int | None = None,
    ) -> Domain:
        """The domain of operands of ``lengths`` digits.

        Args:
            leading_zeros: whether the highest of several digits may be zero.
            n_columns: for problems that are digits, how many columns their tensors have.

        Raises:
            UserError: no operand, no digit, or fewer than two values per digit.
        """
        if not lengths or min(lengths) < 1:
            raise UserError(f"A domain has one operand or more, each of one digit or more, not {tuple(lengths)}.")
        if base < 2:
            raise UserError(f"Digits have two values or more, not {base}.")
        cells = [(i, column) for i, length in enumerate(lengths) for column in range(length)]
        least = tuple(int(not leading_zeros and 0 < column == lengths[i] - 1) for i, column in cells)
        return cls(base, tuple(i for i, _ in cells), tuple(column for _, column in cells), least, n_columns)

    def __len__(self) -> int:
        return len(self.operand)

    @property
    def n_operands(self) -> int:
        return max(self.operand) + 1

    @property
    def dtype(self) -> torch.dtype:
        """The smallest integer dtype that holds a digit."""
        return torch.uint8 if self.base <= 256 else torch.int32

    @property
    def combinations(self) -> int:
        """How many combinations of digits there are, whether ``where`` allows them or not."""
        return prod(len(self.digits(cell)) for cell in range(len(self)))

    @cached_property
    def size(self) -> int:
        """How many problems there are. With ``where`` they are counted one by one, unless ``allowed`` says it.

        Raises:
            TooManyToCount: more combinations than :data:`COUNTED`.
        """
        if self.where is None:
            return self.combinations
        return len(self.kept) if self.allowed is None else self.allowed

    @cached_property
    def kept(self) -> Int[Tensor, " n"]:
        """The numbers, in the order of :meth:`numbered`, of the combinations that ``where`` allows.

        Raises:
            TooManyToCount: more combinations than :data:`COUNTED`.
        """
        if self.combinations > COUNTED:
            raise TooManyToCount(self.combinations)
        numbers = torch.arange(self.combinations)
        if self.where is None:
            return numbers
        parts = numbers.split(2**20)
        return torch.cat([part[self.where(self.problems(self.numbered(part)))] for part in parts])

    @cached_property
    def order(self) -> list[int]:
        """The cells in the order of numbers, the slowest first: by operand, and the highest digit first."""
        sign = 1 if self.from_left else -1
        return sorted(range(len(self)), key=lambda i: (self.operand[i], sign * self.column[i]))

    def numbered(self, numbers: Int[Tensor, " n"]) -> Int[Tensor, "n cell"]:
        """The combinations of digits with these numbers, from 0 on: the pair (a, b) below 100 has 100 a + b."""
        digits = torch.empty(len(numbers), len(self), dtype=torch.int64)
        for cell in reversed(self.order):
            allowed = self.digits(cell)
            digits[:, cell] = numbers % len(allowed) + allowed.start
            numbers = numbers // len(allowed)
        return digits

    def width(self, operand: int = 0) -> int:
        """How many digits an operand has."""
        return self.operand.count(operand)

    def cell(self, operand: int, column: int) -> int:
        return next(
            i for i, place in enumerate(zip(self.operand, self.column, strict=True)) if place == (operand, column)
        )

    def digits(self, cell: int) -> range:
        return range(self.lowest[cell], self.base if self.highest is None else self.highest[cell] + 1)

    def problems(self, digits: Integer[Tensor, "n cell"]) -> Int[Tensor, "n *operands"]:
        """The problems with these digits, in the form that the task takes."""
        digits = digits.long()
        if self.n_columns is not None:
            out = torch.zeros(len(digits), self.n_operands, self.n_columns, dtype=torch.int64)
            out[:, list(self.operand), list(self.column)] = digits
            return out
        worth = torch.tensor([self.base**column for column in self.column])
        out = torch.zeros(len(digits), self.n_operands, dtype=torch.int64)
        return out.index_add_(1, torch.tensor(self.operand), digits * worth)

    def at(self, numbers: Int[Tensor, " n"]) -> Int[Tensor, "n *operands"]:
        """The problems with these numbers, 0 to ``size - 1``, in their natural order, in which the first operand's
        highest digit changes last. Raises TooManyToCount as :attr:`kept`."""
        if self.numbering is not None:
            return self.numbering(numbers)
        return self.problems(self.numbered(numbers if self.where is None else self.kept[numbers]))

    def every(self) -> Int[Tensor, "n *operands"]:
        """All problems, in the order of :meth:`at`. Raises TooManyToCount as :attr:`kept`."""
        if self.combinations > COUNTED and self.numbering is None:
            raise TooManyToCount(self.combinations)
        return self.at(torch.arange(self.size))

    def digits_of(self, problems: Int[Tensor, "n *operands"]) -> Int[Tensor, "n cell"]:
        """The digits of problems in the order of the cells: the inverse of :meth:`problems` on this domain."""
        if self.n_columns is not None:
            return problems[:, list(self.operand), list(self.column)]
        worth = torch.tensor([self.base**column for column in self.column])
        return problems[:, list(self.operand)] // worth % self.base

    def holds(self, problems: Int[Tensor, "n *operands"]) -> Bool[Tensor, " n"]:
        """Which problems belong to this domain."""
        shape = (self.n_operands,) if self.n_columns is None else (self.n_operands, self.n_columns)
        if tuple(problems.shape[1:]) != shape:
            return torch.zeros(len(problems), dtype=torch.bool)
        digits = self.digits_of(problems)
        highest = torch.tensor([self.digits(cell)[-1] for cell in range(len(self))])
        inside = (digits >= torch.tensor(self.lowest)) & (digits <= highest)
        good = inside.all(1) & (self.problems(digits) == problems).flatten(1).all(1)
        return good if self.where is None else good & self.where(problems)
