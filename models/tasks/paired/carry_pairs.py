"""Pairs of sums (or differences) that differ in a carry (or borrow), a digit, or the length of a chain.

Draws are uniform over the pairs of a kind (pairs that differ only in order count as one), so that a few of them are a
fair sample of all. Where carries are both made and passed on, each gets half. Columns count from the units, 0; the
carry into column k is made in column k - 1, or passed on by it. In another base, read the base for ten and its highest
digit for nine. In a subtraction, read borrows for carries, and for the sum of two digits that of the second one and the
first one's complement, ``b + 9 - a``: it is 10 or more where the column borrows, and 9 where it passes a borrow on.

    carry_pairs       the carry into a column, its own digits and all above equal
    same_carry_pairs  their controls: the same carries into the column
    digit_pairs       one operand digit, every carry equal
    chain_pairs       how far the carry into a column has travelled
    variable_pairs    any variable of any task (:mod:`models.tasks.paired.variable_pairs`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from models.calls.argument_kinds import Count, Index, Seed
from models.calls.checked_calls import checked
from models.errors import UserError, known_name
from models.tasks.check_task import domain_of
from models.tasks.columns.schoolbook import Column
from models.tasks.domain import Domain
from models.tasks.paired.pair_constraint import PairConstraint
from models.tasks.paired.pair_space import CellBlock
from models.tasks.paired.problem_pairs import KINDS, ProblemPairs, column_of
from models.tasks.paired.variable_pairs import checked_pairs, draw_variable_pairs
from models.tasks.task import Task
from models.tasks.task_definitions import TaskLike

SIDES = ("clean", "mixed")
MADE, PASSED = "made", "passed"
WAYS = (MADE, PASSED)


class _Columns(NamedTuple):
    """A task that adds or subtracts two numbers in one step, and a column of its answer."""

    task: Task
    domain: Domain
    rule: Column
    column: int
    target: int  # the answer's digit in the column

    @classmethod
    def of(cls, task: Task, column: int, lowest: int, highest: int | None = None) -> _Columns:
        """Raises UserError for another task, or a column that has no such pair."""
        domain = domain_of(task)
        written = [(role.column, i) for i, role in enumerate(task.target_roles) if role.kind == "answer"]
        answers = {column: i for column, i in written if column is not None}
        rule = column_of(task)
        if domain.n_operands != 2 or domain.width(0) != domain.width(1) or not answers or rule is None:
            raise UserError(
                f"These pairs are for tasks that add or subtract two numbers in one step and know their carries or "
                f"borrows, and {task.name} is none; variable_pairs takes any variable of any task."
            )
        top = min(domain.width(), max(answers)) if highest is None else highest
        if lowest > top:
            raise UserError(f"The task {task.name} has too few columns for such pairs.")
        if not lowest <= column <= top:
            raise UserError(f"Such pairs exist for columns {lowest} to {top} of {task.name}, not for {column!r}.")
        return cls(task, domain, rule, column, answers[column])

    def equal_digits(self, column: int, of_total: Callable[[Tensor], Tensor]) -> CellBlock:
        """A column with equal digits in both problems, whose total passes a test."""
        total = self.rule.total
        return CellBlock.column(self.domain, column, lambda a, b, c, d: of_total(total(a, b)) & (a == c) & (b == d))

    def draw(
        self, blocks: Sequence[CellBlock], constraint: PairConstraint, n: int | None, seed: int, what: str
    ) -> ProblemPairs:
        return draw_variable_pairs(self.task, self.domain, [blocks], constraint, self.target, n, seed, what)


@checked
def carry_pairs(
    task: TaskLike, column: Index, n: Count | None, seed: Seed = 0, way: str | None = None, side: str = "clean"
) -> ProblemPairs:
    """Pairs that differ in the carry into ``column``, with equal digits in that column and in all above.

    Args:
        n: how many; None for all that exist (two-digit sums).
        way: "made": the previous column has a sum s < 9 in one problem and s + 10 in the other, everything below it is
            equal, and so is the digit written there. "passed": the previous column has equal digits of sum 9 and passes
            on a carry that arrives in only one of the problems; the digits below may all differ, and the digit written
            there is 0 or 9. None: half of each, where both exist (``n`` None: all of both).
        side: which problem of a pair has the carry: the "clean" one always, so that the difference of means over clean
            and corrupted problems is the carry's direction; or "mixed", either of them equally likely, where such a
            difference is near zero and says nothing. The pairs are the same.

    The target is the answer's digit in ``column``.

    Raises:
        UserError: another way or side, a task that does not add two numbers, a column without such pairs, or fewer
            pairs than ``n``.
    """
    known_name("side", side, SIDES)
    at = _Columns.of(task, column, 2 if way == PASSED else 1)
    found = _by_way(at, n, seed, way, {MADE: _made, PASSED: _passed}, _flipped)
    if side == "mixed":
        return found
    has = task.variables(found.clean)[at.rule.name_in][:, column].bool()
    has = has.view(-1, *[1] * (found.clean.ndim - 1))
    sides = torch.where(has, found.clean, found.corrupted), torch.where(has, found.corrupted, found.clean)
    assert found.constraint is not None
    constraint = replace(found.constraint, values={**found.constraint.values, f"{at.rule.name_in}[{column}]": (1, 0)})
    return checked_pairs(task, *sides, found.target, found.what, seed, constraint, found.exhaustive)


@checked
def same_carry_pairs(
    task: TaskLike, column: Index, n: Count | None, seed: Seed = 0, way: str | None = None
) -> ProblemPairs:
    """The controls of :func:`carry_pairs`, with the same carries into the column: the previous column has other digits
    of the same sum ("made"), or is the same 9 with the same carry into it and other digits below ("passed").

    The arguments, and what is refused, are those of :func:`carry_pairs`.
    """
    at = _Columns.of(task, column, 2 if way == PASSED else 1)
    return _by_way(at, n, seed, way, {MADE: _same_made, PASSED: _same_passed}, _same)


_Draw = Callable[[_Columns, int | None, int], ProblemPairs]


def _by_way(
    at: _Columns,
    n: int | None,
    seed: int,
    way: str | None,
    draws: dict[str, _Draw],
    both: Callable[[_Columns], tuple[PairConstraint, str]],
) -> ProblemPairs:
    """Pairs of one way, or half of each where the column has both; ``both`` says what they then have in common."""
    if way is not None:
        return draws[known_name("way of a carry", way, WAYS)](at, n, seed)
    if at.column < 2:
        return draws[MADE](at, n, seed)
    if n == 1:
        return draws[MADE if seed % 2 else PASSED](at, n, seed)
    shares = (None, None) if n is None else (n - n // 2, n // 2)
    each = [draws[way](at, share, seed) for way, share in zip(WAYS, shares, strict=True)]
    order = torch.randperm(sum(map(len, each)), generator=torch.Generator().manual_seed(seed))
    clean, corrupted = (torch.cat([getattr(pairs, side) for pairs in each])[order] for side in ("clean", "corrupted"))
    constraint, what = both(at)
    exhaustive = all(pairs.exhaustive for pairs in each)
    return checked_pairs(at.task, clean, corrupted, at.target, what, seed, constraint, exhaustive)


def _flipped(at: _Columns, keep: Sequence[str] = (), differ: Sequence[str] = ()) -> tuple[PairConstraint, str]:
    """What all pairs with another carry into the column keep, and their name."""
    column, carry = at.column, f"{at.rule.name_in}[{at.column}]"
    kept = (f"a[{column}:]", f"b[{column}:]", *keep)
    return PairConstraint((*differ, carry), kept, {}, "different"), f"the {at.rule.carry} into column {column}"


def _made(at: _Columns, n: int | None, seed: int) -> ProblemPairs:
    """Sums of the previous column that are ten apart, and everything below equal."""
    below, rule = at.column - 1, at.rule
    block = CellBlock.column(
        at.domain, below, lambda a, b, c, d: (rule.total(a, b) - rule.total(c, d)).abs() == at.domain.base
    )
    constraint, what = _flipped(at, (f"s[{below}]", f"a[:{below}]", f"b[:{below}]", f"{rule.name_in}[:{at.column}]"))
    return at.draw([block], constraint, n, seed, f"{what}, made in column {below}")


def _passed(at: _Columns, n: int | None, seed: int) -> ProblemPairs:
    """The same nine in the previous column, and any digits below it."""
    below, rule = at.column - 1, at.rule
    constraint, what = _flipped(at, (f"a[{below}]", f"b[{below}]"), (f"s[{below}]",))
    constraint = replace(constraint, values={f"{rule.total_name}[{below}]": (rule.passing, rule.passing)})
    return at.draw(_below_a_nine(at), constraint, n, seed, f"{what}, passed on by column {below}")


def _below_a_nine(at: _Columns) -> list[CellBlock]:
    """Any digits below the previous column, which is the same nine in both problems."""
    below, domain = at.column - 1, at.domain
    blocks = [CellBlock.cell(domain, domain.cell(i, k)) for k in range(below) for i in (0, 1)]
    return [*blocks, at.equal_digits(below, lambda total: total == at.rule.passing)]


def _same(at: _Columns, keep: Sequence[str] = (), where: str | None = None) -> tuple[PairConstraint, str]:
    """What all pairs with the same carries into the column keep, and their name."""
    column, rule = at.column, at.rule
    kept = (f"a[{column}:]", f"b[{column}:]", f"{rule.name_in}[{column}:]", f"s[{column}:]", *keep)
    where = f"the digits below column {column}" if where is None else where
    return PairConstraint((), kept, {}, "equal"), f"{where}, with the same {rule.carry} into column {column}"


def _same_made(at: _Columns, n: int | None, seed: int) -> ProblemPairs:
    """Other digits of the same sum in the previous column."""
    below, rule = at.column - 1, at.rule
    block = CellBlock.column(at.domain, below, lambda a, b, c, d: (rule.total(a, b) == rule.total(c, d)) & (a != c))
    keep = (f"a[:{below}]", f"b[:{below}]", rule.total_name, rule.name_in, "s")
    constraint, what = _same(at, keep, f"the digits of column {below}")
    return at.draw([block], constraint, n, seed, f"{what}, made in column {below}")


def _same_passed(at: _Columns, n: int | None, seed: int) -> ProblemPairs:
    """The same nine in the previous column with the same carry into it, and other digits below."""
    below, rule = at.column - 1, at.rule
    keep = (f"a[{below}]", f"b[{below}]", f"s[{below}]", f"{rule.name_in}[{below}]")
    constraint, what = _same(at, keep, f"the digits below column {below}")
    constraint = replace(constraint, values={f"{rule.total_name}[{below}]": (rule.passing, rule.passing)})
    return at.draw(_below_a_nine(at), constraint, n, seed, f"{what}, passed on by column {below}")


@checked
def digit_pairs(task: TaskLike, column: Index, n: Count | None, seed: Seed = 0) -> ProblemPairs:
    """Pairs that differ in one operand digit of ``column`` and in no carry, so that the answer differs only there.

    ``n`` None: all pairs.

    Raises:
        UserError: as for :func:`carry_pairs`.
    """
    at = _Columns.of(task, column, 0, domain_of(task).width() - 1)
    keep = [at.rule.name_in, at.rule.name_out, f"s[:{column}]", f"s[{column + 1}:]"]
    keep += [f"{name}[{part}]" for name in "ab" for part in (f":{column}", f"{column + 1}:")]
    products = [[CellBlock.cell(at.domain, at.domain.cell(i, column), different=True)] for i in (0, 1)]
    constraint = PairConstraint((f"s[{column}]",), tuple(keep), {}, "different")
    what = f"an operand's digit in column {column}, with every {at.rule.carry} kept"
    return draw_variable_pairs(task, at.domain, products, constraint, at.target, n, seed, what)


@checked
def chain_pairs(
    task: TaskLike, column: Index, n: Count | None, seed: Seed = 0, lengths: tuple[Index, Index] = (0, 1)
) -> ProblemPairs:
    """Pairs in which the carry into ``column`` has travelled ``lengths[0]`` columns (clean) and ``lengths[1]``.

    0 is no carry, 1 a carry made in the previous column, 1 + k one that k nines have passed on. Only the digits of one
    column differ. With a length of 0 it is the column in which the other problem's chain starts, whose sum is s and
    s + 10, so that nines stand above it in both. Otherwise it is the first column of the shorter chain, which makes a
    carry by itself in one problem and is a nine that passes one on in the other, so that every carry is equal, and the
    answer there too. The digit written before, the query's own token, differs where the shorter length is 1, and for 0
    against 2 or more.

    Raises:
        UserError: as for :func:`carry_pairs`; or lengths that are equal or reach below the units.
    """
    at = _Columns.of(task, column, 1)
    domain, rule = at.domain, at.rule
    if not max(lengths) <= column or lengths[0] == lengths[1]:
        raise UserError(f"Two different lengths of 0 to {column} reach column {column}; not {lengths!r}.")
    short, long = sorted(lengths)
    changed = column - (short or long)
    swap, base = lengths[0] > lengths[1], domain.base

    def start(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        one, other = rule.total(a, b), rule.total(c, d)
        one, other = (other, one) if swap else (one, other)  # in the shorter and the longer chain
        return rule.sign * (other - one) == base if not short else rule.makes(one) & (other == rule.passing)

    passing = [k for k in range(column - long + 1, column) if k != changed]
    blocks = [CellBlock.column(domain, changed, start)]
    blocks += [at.equal_digits(k, lambda total: total == rule.passing) for k in passing]
    if short:
        blocks.append(at.equal_digits(column - long, rule.makes))
    keep = [f"{name}[{part}]" for name in "ab" for part in (f":{changed}", f"{changed + 1}:")]
    keep += [rule.name_in, rule.name_out, f"s[{column}:]"] if short else [f"{rule.name_in}[:{changed + 1}]"]
    differ = () if short else (f"{rule.name_in}[{column}]",)
    values = {f"chain[{column}]": (lengths[0], lengths[1])}
    constraint = PairConstraint(differ, tuple(keep), values, "equal" if short else "different")
    what = f"the length of the {rule.carry} chain into column {column}, {lengths[0]} or {lengths[1]}"
    return at.draw(blocks, constraint, n, seed, what)


for _word in ("carry", "borrow"):
    KINDS[_word] = carry_pairs
    KINDS[f"made {_word}"] = partial(carry_pairs, way=MADE)
    KINDS[f"passed {_word}"] = partial(carry_pairs, way=PASSED)
    KINDS[f"same {_word}"] = same_carry_pairs
KINDS["digit"], KINDS["chain"] = digit_pairs, chain_pairs
