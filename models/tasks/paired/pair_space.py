"""The space of all pairs of problems of one kind, to draw from: at random if there are many, from a list if few.

A problem is its digits, one per *cell* (operand, column) of the task's domain. A :class:`CellBlock` gives the digits
that a few cells may have in the two problems together; cells outside all blocks have equal, uniform digits. A space is
a union of such products, with a rule that says which of their pairs count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod

import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from models.errors import UserError
from models.tasks.domain import Domain
from models.tasks.paired.pair_constraint import first_of_each
from models.tasks.task import Task

ENUMERABLE = 2**21  # up to this many candidates are listed one by one: seconds
MOST_PAIRS_LISTED = 2**23  # the same limit where all pairs are asked for
MOST_DIGITS, LARGEST_BASE = 2048, 32  # limits up to which pairs of digits, and of columns, fit in memory
CHUNK = 2**16
MOST_DRAWN = 2**22  # the most candidates before giving up
MOST_VALUES = 2**27  # the most values of variables computed for them


@dataclass(frozen=True, eq=False)
class CellBlock:
    """The digits that a few cells may have: ``rows[i, :, 0]`` in one problem and ``rows[i, :, 1]`` in the other."""

    cells: tuple[int, ...]
    rows: Integer[Tensor, "row cell 2"]

    @classmethod
    def equal(cls, domain: Domain, cell: int) -> CellBlock:
        """The same digit in both problems."""
        digits = torch.tensor(domain.digits(cell), dtype=domain.dtype)
        return cls((cell,), digits[:, None, None].expand(-1, 1, 2))

    @classmethod
    def cell(cls, domain: Domain, cell: int, different: bool = False) -> CellBlock:
        """Any two digits in one cell, or any two different ones.

        Raises:
            UserError: so many digits that their pairs cannot be listed.
        """
        if len(domain.digits(cell)) > MOST_DIGITS:
            raise UserError(f"Pairs are made of digits of at most {MOST_DIGITS:,} values, not {domain.base:,}.")
        digits = torch.tensor(domain.digits(cell), dtype=domain.dtype)
        rows = torch.cartesian_prod(digits, digits)
        return cls((cell,), (rows[rows[:, 0] != rows[:, 1]] if different else rows)[:, None])

    @classmethod
    def column(
        cls, domain: Domain, column: int, allowed: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    ) -> CellBlock:
        """Two operands' digits in a column, where ``allowed(a, b, a', b')`` is true; it gets tensors that broadcast.

        Raises:
            UserError: a base with too many pairs of columns.
        """
        if domain.base > LARGEST_BASE:
            raise UserError(f"Pairs of columns are listed in bases up to {LARGEST_BASE}, not in base {domain.base}.")
        where = domain.cell(0, column), domain.cell(1, column)
        one, two = (torch.tensor(domain.digits(cell)) for cell in where)
        a, b, c, d = torch.meshgrid(one, two, one, two, indexing="ij")
        kept = allowed(a, b, c, d)
        rows = torch.stack((torch.stack((a[kept], c[kept]), 1), torch.stack((b[kept], d[kept]), 1)), 1)
        return cls(where, rows.to(domain.dtype))


@dataclass(frozen=True, eq=False)
class PairSpace:
    """Pairs in the union of ``products`` (disjoint lists of blocks) that ``accept`` takes and whose problems differ.

    ``accept(one, other)`` gets problems. ``what`` and ``among`` (which pairs the products are) are for messages.
    """

    task: Task
    domain: Domain
    products: Sequence[Sequence[CellBlock]]
    accept: Callable[[Tensor, Tensor], Bool[Tensor, " n"]]
    what: str
    among: str = ""

    def _free(self, blocks: Sequence[CellBlock]) -> list[int]:
        """The cells that are in none of the blocks."""
        held = {cell for block in blocks for cell in block.cells}
        return [cell for cell in range(len(self.domain)) if cell not in held]

    @cached_property
    def _sizes(self) -> list[int]:
        return [
            prod(len(block.rows) for block in blocks)
            * prod(len(self.domain.digits(cell)) for cell in self._free(blocks))
            for blocks in self.products
        ]

    @property
    def size(self) -> int:
        """How many candidates there are, in both orders, whether they count or not."""
        return sum(self._sizes)

    def draw(self, n: int | None, seed: int) -> tuple[Tensor, Tensor, bool]:
        """(clean [n, ...], corrupted [n, ...], whether these are all pairs), uniform, without repeats in any order.

        ``n`` None: all. Cost: a few chunks of candidates, or all candidates if there are few.

        Raises:
            UserError: fewer pairs than asked for, or all of too many.
        """
        size = self.size
        few = size <= ENUMERABLE
        if n is None and size > MOST_PAIRS_LISTED:
            raise UserError(f"There are too many pairs to list all that differ in {self.what}; say how many.")
        # kinds and columns of one seed are drawn independently, so that they can be pooled
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
            raise UserError(f"{there} in {self.what}{self.among}{tried}{wanted}.")
        kept = found[:n]
        clean, corrupted = (self.domain.problems(kept[..., i]) for i in (0, 1))
        return clean, corrupted, listed and len(kept) == len(found)

    def _counted(self, candidates: Integer[Tensor, "n cell 2"]) -> Integer[Tensor, "k cell 2"]:
        """The candidates that count."""
        candidates = candidates[(candidates[..., 0] != candidates[..., 1]).any(1)]
        if (where := self.domain.where) is not None:
            one, other = (self.domain.problems(candidates[..., i]) for i in (0, 1))
            candidates = candidates[where(one) & where(other)]
        if not len(candidates):
            return candidates
        one, other = (self.domain.problems(candidates[..., i]) for i in (0, 1))
        return candidates[self.accept(one, other)]

    def _listed(self, generator: torch.Generator) -> Tensor:
        """All pairs that count, in random order, each in the one of its two orders that comes first."""
        found = []
        for blocks, size in zip(self.products, self._sizes, strict=True):
            parts = [*blocks, *(CellBlock.equal(self.domain, cell) for cell in self._free(blocks))]
            for start in range(0, size, CHUNK):
                index = torch.arange(start, min(start + CHUNK, size))
                out = torch.empty(len(index), len(self.domain), 2, dtype=self.domain.dtype)
                for part in parts:
                    out[:, list(part.cells)] = part.rows[index % len(part.rows)]
                    index = index // len(part.rows)
                found.append(self._counted(out))
        everything = torch.cat(found)
        return _distinct(iter([everything[torch.randperm(len(everything), generator=generator)]]), len(everything))

    @cached_property
    def most_drawn(self) -> int:
        """How many candidates are drawn before giving up, so that computing their variables takes some seconds."""
        problem = self.task.sample(1, torch.Generator().manual_seed(0))
        values = sum(values.numel() for values in self.task.variables(problem).values())
        most = max(CHUNK, min(MOST_DRAWN, MOST_VALUES // values))
        return most if self.size > ENUMERABLE else min(most, self.size // 4)  # which may be listed instead

    def _drawn(self, n: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield uniform pairs that count, from ever larger chunks of candidates while few of them do."""
        share = torch.tensor([size / self.size for size in self._sizes], dtype=torch.float64)
        lowest = torch.tensor(self.domain.lowest)
        choices = torch.tensor([len(self.domain.digits(cell)) for cell in range(len(self.domain))])
        drawn, rows = 0, min(CHUNK, max(1024, 4 * n))
        while drawn < self.most_drawn:
            rows = min(rows, self.most_drawn - drawn)
            uniform = torch.rand(rows, len(self.domain), generator=generator, dtype=torch.float64)
            equal = lowest + (uniform * choices).long()
            out = equal.to(self.domain.dtype)[..., None].repeat(1, 1, 2)
            product = torch.multinomial(share, rows, replacement=True, generator=generator)
            for i, blocks in enumerate(self.products):
                where = (product == i).nonzero()[:, 0]
                for block in blocks if len(where) else ():
                    index = torch.randint(len(block.rows), (len(where),), generator=generator)
                    out[where[:, None], torch.tensor(block.cells)] = block.rows[index]
            yield self._counted(out)
            drawn, rows = drawn + rows, min(CHUNK, 2 * rows)


def _distinct(chunks: Iterator[Integer[Tensor, "n cell 2"]], n: int) -> Integer[Tensor, "k cell 2"]:
    """The first ``n`` distinct pairs in their order, where (x, y) and (y, x) are one pair."""
    found: Tensor | None = None
    for chunk in chunks:
        found = chunk if found is None else torch.cat((found, chunk))
        if len(found):
            found = found[first_of_each(found[..., 0], found[..., 1])]
        if len(found) >= n:
            break
    assert found is not None
    return found
