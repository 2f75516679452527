"""All pairs of problems of one kind, to draw from: uniformly where there are many, one by one where there are few.

A problem is its digits, one a *cell* (operand, column). A :class:`Block` gives the digits that a few cells may have in
the two problems together; cells in no block have equal digits, uniform. A space is a union of such products, and a
rule that says which of their pairs count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from models.errors import UserError
from models.tasks.base import Task
from models.tasks.pair_promise import first_of_each
from models.tasks.sequences import SequenceTask

ENUMERABLE = 2**21  # candidates that are gone through one by one: seconds
CHUNK = 2**16
MOST_DRAWN = 2**22  # candidates, before giving up
MOST_VALUES = 2**27  # values of variables computed for them


def require_count(n: Any) -> None:
    """Raise UserError unless ``n`` is a number of pairs, or None for all."""
    if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
        raise UserError(f"The number of pairs must be a whole number from 1 on, or None for all, not {n!r}.")


@dataclass(frozen=True, eq=False)
class Cells:
    """The digits that make up a task's problems: cell i is digit ``column[i]`` of operand ``operand[i]``, drawn from
    ``lowest[i]`` to ``base - 1`` (leading digits are not zero where the task's own problems have none)."""

    task: Task
    operand: tuple[int, ...]
    column: tuple[int, ...]
    lowest: tuple[int, ...]
    base: int

    @classmethod
    def of(cls, task: Task) -> Cells:
        """The cells of a task whose problems are numbers, [n, operand], or digits, [n, operand, column].

        Raises:
            UserError: a task whose problems are neither.
        """
        if isinstance(task, SequenceTask):
            lengths, base = task.operand_lengths, task.base
        else:
            columns: dict[int, int] = {}
            for role in task.roles:
                if role.kind == "operand" and role.index is not None and role.column is not None:
                    columns[role.index] = max(columns.get(role.index, 0), role.column + 1)
            lengths, base = tuple(columns[operand] for operand in sorted(columns)), 10
            if not lengths:
                raise UserError(f"The task {task.name} has no operand digits to make pairs of.")
        leading_zero = not isinstance(task, SequenceTask) or base == 2
        cells = [(i, column) for i, length in enumerate(lengths) for column in range(length)]
        lowest = (0 if leading_zero or column + 1 < lengths[i] or not column else 1 for i, column in cells)
        return cls(task, tuple(i for i, _ in cells), tuple(column for _, column in cells), tuple(lowest), base)

    def __len__(self) -> int:
        return len(self.operand)

    @property
    def n_operands(self) -> int:
        return max(self.operand) + 1

    def width(self, operand: int = 0) -> int:
        """How many digits an operand has."""
        return self.operand.count(operand)

    def cell(self, operand: int, column: int) -> int:
        return next(
            i for i, place in enumerate(zip(self.operand, self.column, strict=True)) if place == (operand, column)
        )

    def digits(self, cell: int) -> range:
        return range(self.lowest[cell], self.base)

    def problems(self, digits: UInt8[Tensor, "n cell"]) -> Int[Tensor, "n *operands"]:
        """Problems as the task takes them."""
        if isinstance(self.task, SequenceTask):
            out = torch.zeros(len(digits), self.n_operands, self.task.n_digits, dtype=torch.int64)
            out[:, list(self.operand), list(self.column)] = digits.long()
            return out
        worth = torch.tensor([10**column for column in self.column])
        operand = torch.tensor(self.operand)
        return torch.zeros(len(digits), self.n_operands, dtype=torch.int64).index_add_(
            1, operand, digits.long() * worth
        )


@dataclass(frozen=True, eq=False)
class Block:
    """What a few cells may hold: ``rows[i, :, 0]`` in one problem and ``rows[i, :, 1]`` in the other."""

    cells: tuple[int, ...]
    rows: UInt8[Tensor, "row cell 2"]

    @classmethod
    def equal(cls, cells: Cells, cell: int) -> Block:
        """The same digit in both problems."""
        return cls((cell,), torch.tensor([[[digit, digit]] for digit in cells.digits(cell)], dtype=torch.uint8))

    @classmethod
    def cell(cls, cells: Cells, cell: int, different: bool = False) -> Block:
        """Any two digits in one cell, or any two different ones."""
        rows = [((a, b),) for a in cells.digits(cell) for b in cells.digits(cell) if a != b or not different]
        return cls((cell,), torch.tensor(rows, dtype=torch.uint8).reshape(-1, 1, 2))

    @classmethod
    def column(cls, cells: Cells, column: int, allowed: Callable[[int, int, int, int], bool]) -> Block:
        """Two operands' digits in a column: ``allowed(a, b, a', b')``."""
        where = cells.cell(0, column), cells.cell(1, column)
        one, two = (cells.digits(cell) for cell in where)
        rows = [
            ((a, c), (b, d)) for a in one for b in two for c in one for d in two if allowed(a, b, c, d)
        ]  # fmt: skip
        return cls(where, torch.tensor(rows, dtype=torch.uint8).reshape(-1, 2, 2))


@dataclass(frozen=True, eq=False)
class PairSpace:
    """Pairs of the union of ``products`` (disjoint lists of blocks) that ``accept`` and whose problems differ.

    ``accept(one, other)`` takes problems. ``what`` is for messages.
    """

    cells: Cells
    products: Sequence[Sequence[Block]]
    accept: Callable[[Tensor, Tensor], Bool[Tensor, " n"]]
    what: str

    def _free(self, blocks: Sequence[Block]) -> list[int]:
        """The cells that none of the blocks holds."""
        held = {cell for block in blocks for cell in block.cells}
        return [cell for cell in range(len(self.cells)) if cell not in held]

    @cached_property
    def _sizes(self) -> list[int]:
        return [
            prod(len(block.rows) for block in blocks)
            * prod(len(self.cells.digits(cell)) for cell in self._free(blocks))
            for blocks in self.products
        ]

    @property
    def size(self) -> int:
        """How many candidates there are, in both orders, counting or not."""
        return sum(self._sizes)

    def draw(self, n: int | None, seed: int) -> tuple[Tensor, Tensor, bool]:
        """(clean [n, ...], corrupted [n, ...], whether these are all there are), uniform, no pair twice in any order.

        ``n`` None: all. Cost: a few chunks of candidates, or all of them where those are few.

        Raises:
            UserError: fewer pairs than asked for, or all of too many.
        """
        require_count(n)
        size = self.size
        few = size <= ENUMERABLE
        if n is None and not few:
            raise UserError(f"There are too many pairs to list all that differ in {self.what}; say how many.")
        # kinds and columns of one seed are drawn apart, so that they can be pooled
        seed = int.from_bytes(sha256(f"{seed} {self.what}".encode()).digest()[:7], "big")
        generator = torch.Generator().manual_seed(seed)
        if n is None or (few and size <= 64 * n):
            return self._finish(self._listed(generator), n, True)
        found = _distinct(self._drawn(n, generator), n)
        if len(found) < n and few:
            return self._finish(self._listed(torch.Generator().manual_seed(seed)), n, True)
        return self._finish(found, n, False)

    def _finish(self, found: Tensor, n: int | None, listed: bool) -> tuple[Tensor, Tensor, bool]:
        if not len(found) or (n is not None and len(found) < n):
            there = "No pair differs" if not len(found) else "Only 1 pair differs"
            there = there if len(found) < 2 else f"Only {len(found):,} pairs differ"
            tried = "" if listed else f" among {self.most_drawn:,} candidates drawn"
            wanted = "" if n is None else f"; {n:,} are asked for"
            raise UserError(f"{there} in {self.what}{tried}{wanted}.")
        kept = found[:n]
        clean, corrupted = (self.cells.problems(kept[..., i]) for i in (0, 1))
        return clean, corrupted, listed and len(kept) == len(found)

    def _counted(self, candidates: UInt8[Tensor, "n cell 2"]) -> UInt8[Tensor, "k cell 2"]:
        """Those that count."""
        candidates = candidates[(candidates[..., 0] != candidates[..., 1]).any(1)]
        if not len(candidates):
            return candidates
        return candidates[self.accept(*(self.cells.problems(candidates[..., i]) for i in (0, 1)))]

    def _listed(self, generator: torch.Generator) -> Tensor:
        """All pairs that count, in a random order; of the two orders of a pair the one that comes first."""
        found = []
        for blocks, size in zip(self.products, self._sizes, strict=True):
            parts = [*blocks, *(Block.equal(self.cells, cell) for cell in self._free(blocks))]
            for start in range(0, size, CHUNK):
                index = torch.arange(start, min(start + CHUNK, size))
                out = torch.empty(len(index), len(self.cells), 2, dtype=torch.uint8)
                for part in parts:
                    out[:, list(part.cells)] = part.rows[index % len(part.rows)]
                    index = index // len(part.rows)
                found.append(self._counted(out))
        everything = torch.cat(found)
        return _distinct(iter([everything[torch.randperm(len(everything), generator=generator)]]), len(everything))

    @cached_property
    def most_drawn(self) -> int:
        """How many candidates are drawn before giving up: such that some seconds go into their variables."""
        problem = self.cells.task.sample(1, torch.Generator().manual_seed(0))
        values = sum(values.numel() for values in self.cells.task.variables(problem).values())
        most = max(CHUNK, min(MOST_DRAWN, MOST_VALUES // values))
        return most if self.size > ENUMERABLE else min(most, self.size // 4)  # which may be listed instead

    def _drawn(self, n: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Chunks of uniform pairs that count, of ever more candidates while few of them do."""
        share = torch.tensor([size / self.size for size in self._sizes], dtype=torch.float64)
        lowest = torch.tensor(self.cells.lowest)
        drawn, rows = 0, min(CHUNK, max(1024, 4 * n))
        while drawn < self.most_drawn:
            rows = min(rows, self.most_drawn - drawn)
            uniform = torch.rand(rows, len(self.cells), generator=generator, dtype=torch.float64)
            equal = lowest + (uniform * (self.cells.base - lowest)).long()
            out = equal.to(torch.uint8)[..., None].repeat(1, 1, 2)
            product = torch.multinomial(share, rows, replacement=True, generator=generator)
            for i, blocks in enumerate(self.products):
                where = (product == i).nonzero()[:, 0]
                for block in blocks if len(where) else ():
                    index = torch.randint(len(block.rows), (len(where),), generator=generator)
                    out[where[:, None], torch.tensor(block.cells)] = block.rows[index]
            yield self._counted(out)
            drawn, rows = drawn + rows, min(CHUNK, 2 * rows)


def _distinct(chunks: Iterator[UInt8[Tensor, "n cell 2"]], n: int) -> UInt8[Tensor, "k cell 2"]:
    """The pairs in their order, without those that were there before in either order, until there are ``n``."""
    found: Tensor | None = None
    for chunk in chunks:
        found = chunk if found is None else torch.cat((found, chunk))
        if len(found):
            found = found[first_of_each(found[..., 0], found[..., 1])]
        if len(found) >= n:
            break
    assert found is not None
    return found
