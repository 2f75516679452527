"""Pairs of sums (or differences) that differ in a carry (or borrow), a digit, or the length of a chain; and all kinds.

Draws are uniform over the pairs of a kind (pairs that differ only in order count as one), so that a few of them are a
fair sample of all. Where carries are both made and passed on, each gets half. Columns count from the units, 0; the
carry into column k is made in column k - 1, or passed on by it. In another base, read the base for ten and its highest
digit for nine. In a subtraction, read borrows for carries, and for the sum of two digits that of the second one and the
first one's complement, ``b + 9 - a``: it is 10 or more where the column borrows, and 9 where it passes a borrow on.

    carry_pairs     the carry into a column, its own digits and all above equal
    digit_pairs     one operand digit, every carry equal
    chain_pairs     how far the carry into a column has travelled
    variable_pairs  any variable of any task (:mod:`models.tasks.paired.variable_pairs`)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.calls.argument_kinds import Index
from models.calls.checked_calls import checked
from models.errors import UserError, known_name, unknown_name
from models.tasks.check_task import domain_of
from models.tasks.columns.schoolbook import Column
from models.tasks.domain import Domain
from models.tasks.paired.pair_constraint import PairConstraint
from models.tasks.paired.pair_space import CellBlock, require_count
from models.tasks.paired.problem_pairs import ProblemPairs
from models.tasks.paired.variable_pairs import checked_pairs, draw_variable_pairs, variable_pairs
from models.tasks.task import Task

SIDES = ("clean", "mixed")


def _of_columns(task: Task, column: int, lowest: int, highest: int | None = None) -> tuple[Domain, int, Column]:
    """(domain, target of the column, what a column does) of a task that adds or subtracts two numbers in one step.

    Raises:
        UserError: another task, or a column that has no such pair.
    """
    domain = domain_of(task)
    written = [(role.column, i) for i, role in enumerate(task.target_roles) if role.kind == "answer"]
    answers = {column: i for column, i in written if column is not None}
    rule = _rule_of(task, domain.base)
    if domain.n_operands != 2 or domain.width(0) != domain.width(1) or not answers or rule is None:
        raise UserError(
            f"These pairs are for tasks that add or subtract two numbers in one step and know their carries or "
            f"borrows, and {task.name} is none; variable_pairs takes any variable of any task."
        )
    top = min(domain.width(), max(answers)) if highest is None else highest
    if lowest > top:
        raise UserError(f"The task {task.name} has too few columns for such pairs.")
    if isinstance(column, bool) or not isinstance(column, int) or not lowest <= column <= top:
        raise UserError(f"Such pairs exist for columns {lowest} to {top} of {task.name}, not for {column!r}.")
    return domain, answers[column], rule


def _rule_of(task: Task, base: int) -> Column | None:
    values = task.variables(task.sample(1, torch.Generator().manual_seed(0)))
    for rule in (Column(base), Column(base, subtracts=True)):
        needed = {"a", "b", rule.name_in, "s", rule.total_name, "chain"}
        if needed <= values.keys() and all(values[name].ndim == 2 for name in needed):
            return rule
    return None


@checked
def carry_pairs(
    task: Task,
    column: Index,
    n: int | None,
    seed: int = 0,
    made: bool | None = None,
    flipped: bool = True,
    own_token: str | None = None,
    stops: bool = False,
    side: str = "clean",
) -> ProblemPairs:
    """Pairs that differ in the carry into ``column``, with equal digits in that column and in all above.

    Args:
        n: how many; None for all that exist (two-digit sums).
        made: True: the previous column has a sum s < 9 in one problem and s + 10 in the other, everything below it is
            equal, and so is the digit written there. False: the previous column has equal digits of sum 9 and passes on
            a carry that arrives in only one of the problems; the digits below may all differ, and the digit written
            there is 0 or 9. None: half of each, where both exist (``n`` None: all of both).
        flipped: False for the controls, with the same carries into the column: the previous column has other digits of
            the same sum (made), or is the same 9 with the same carry into it and other digits below (passed).
        own_token: "equal" or "different", for the query's own token under teacher forcing. If the answer starts with
            the units, this is the digit written in the previous column: it is equal where a carry is made, as above;
            with "different" the two sums of a made carry do not differ by ten; it always differs where a carry is
            passed on. In a task that writes another column before (the one above, or none), either may be asked for,
            and None leaves it as it comes.
        stops: the column's own digits do not add up to 9, so that the carry reaches no column above.
        side: which problem of a pair has the carry: the "clean" one always, so that the difference of means over clean
            and corrupted problems is the carry's direction; or "mixed", either of them equally likely, where such a
            difference is near zero and says nothing. The pairs are the same. (In controls both have it, or none.)

    The target is the answer's digit in ``column``.

    Raises:
        UserError: another side, a task that does not add two numbers, a column without such pairs, an own token that
            the kind cannot have, or fewer pairs than ``n``.
    """
    known_name("side", side, SIDES)
    found, rule = _carry_pairs(task, column, n, seed, made, flipped, own_token, stops)
    if side == "mixed" or not flipped:
        return found
    has = task.variables(found.clean)[rule.name_in][:, column].bool()
    has = has.view(-1, *[1] * (found.clean.ndim - 1))
    sides = torch.where(has, found.clean, found.corrupted), torch.where(has, found.corrupted, found.clean)
    assert found.promise is not None
    values = {**found.promise.values, f"{rule.name_in}[{column}]": (1, 0)}
    promise = replace(found.promise, values=values)
    return checked_pairs(task, *sides, found.target, found.what, seed, promise, found.exhaustive)


def _carry_pairs(
    task: Task,
    column: int,
    n: int | None,
    seed: int,
    made: bool | None,
    flipped: bool,
    own_token: str | None,
    stops: bool,
) -> tuple[ProblemPairs, Column]:
    """Carry pairs of mixed sides, and what a column does; errors as in :func:`carry_pairs`."""
    domain, target, rule = _of_columns(task, column, 2 if made is False else 1)
    require_count(n)
    PairConstraint(own_token=own_token)  # which refuses other rules
    reads_below = _reads(task, target, column - 1)
    if made is not None:
        if reads_below and not made and own_token not in (None, "different" if flipped else "equal"):
            state = "differs" if flipped else "is equal"
            raise UserError(f"Where a carry is passed on by a nine, the digit written there always {state}.")
        if reads_below and made and not flipped and own_token == "different":
            raise UserError("The controls of made carries have equal sums, and so equal digits written.")
        apart = reads_below and made and own_token == "different"
        return _carry_kind(task, domain, rule, target, column, n, seed, made, flipped, own_token, apart, stops), rule
    kinds = [way for way in (True, False) if _possible(way, column, flipped, own_token if reads_below else None)]
    if not kinds:
        raise UserError(f"There is no such pair: controls have the same digit written in column {column - 1}.")
    if len(kinds) == 1:
        return _carry_pairs(task, column, n, seed, kinds[0], flipped, own_token, stops)
    if n == 1:
        return _carry_pairs(task, column, n, seed, bool(seed % 2), flipped, own_token, stops)
    shares = (None, None) if n is None else (n - n // 2, n // 2)
    each = [
        _carry_pairs(task, column, share, seed, way, flipped, own_token, stops)[0]
        for way, share in zip(kinds, shares, strict=True)
    ]
    order = torch.randperm(sum(map(len, each)), generator=torch.Generator().manual_seed(seed))
    clean, corrupted = (torch.cat([getattr(pairs, side) for pairs in each])[order] for side in ("clean", "corrupted"))
    promise = _carry_promise(column, rule, None, flipped, own_token, None, stops)
    what = _carry_what(column, rule.carry, None, flipped)
    exhaustive = all(pairs.exhaustive for pairs in each)
    return checked_pairs(task, clean, corrupted, target, what, seed, promise, exhaustive), rule


def _reads(task: Task, target: int, column: int) -> bool:
    """Whether the query of a target has the answer's digit in ``column`` as its own token."""
    role = task.roles[task.query_positions[target]]
    return role.kind == "answer" and role.column == column


def _possible(made: bool, column: int, flipped: bool, own_token: str | None) -> bool:
    """Whether there are pairs of one way, by the rule for the digit written in the previous column."""
    if made:
        return flipped or own_token != "different"
    return column >= 2 and own_token in (None, "different" if flipped else "equal")


def _carry_what(column: int, word: str, made: bool | None, flipped: bool) -> str:
    way = {True: f", made in column {column - 1}", False: f", passed on by column {column - 1}", None: ""}[made]
    if flipped:
        return f"the {word} into column {column}{way}"
    where = f"the digits of column {column - 1}" if made else f"the digits below column {column - (made is False)}"
    return f"{where}, with the same {word} into column {column}{way}"


def _carry_promise(
    column: int,
    rule: Column,
    made: bool | None,
    flipped: bool,
    own_token: str | None,
    written: str | None,
    stops: bool,
) -> PairConstraint:
    """What carry pairs promise; ``written`` is the rule for the digit written in the previous column."""
    below = column - 1
    keep = [f"{name}[{column}:]" for name in "ab"]
    differ, values = [], {}
    if written is not None:
        (keep if written == "equal" else differ).append(f"s[{below}]")
    if flipped:
        differ += [f"{rule.name_in}[{column}]"]
    else:
        keep += [f"{rule.name_in}[{column}:]", f"s[{column}:]"]
    if made is True:
        keep += [f"{name}[:{below}]" for name in "ab"] + [f"{rule.name_in}[:{column}]"]
        keep += [] if flipped else [rule.total_name, rule.name_in, "s"]
    if made is False:
        keep += [f"a[{below}]", f"b[{below}]"]
        keep += [] if flipped else [f"{rule.name_in}[{below}]"]
        values[f"{rule.total_name}[{below}]"] = (rule.passing, rule.passing)
    if stops and flipped:
        keep += [f"{rule.name_out}[{column}:]"]
    return PairConstraint(tuple(differ), tuple(keep), values, own_token, "different" if flipped else "equal")


def _equal_digits(domain: Domain, rule: Column, column: int, of_total: Callable[[Tensor], Tensor]) -> CellBlock:
    """A column with equal digits in both problems, whose total passes a test."""
    return CellBlock.column(domain, column, lambda a, b, c, d: of_total(rule.total(a, b)) & (a == c) & (b == d))


def _carry_kind(
    task: Task,
    domain: Domain,
    rule: Column,
    target: int,
    column: int,
    n: int | None,
    seed: int,
    made: bool,
    flipped: bool,
    own_token: str | None,
    apart: bool,
    stops: bool,
) -> ProblemPairs:
    """Carry pairs of one kind, made or passed on; with ``apart`` the sums of a made carry do not differ by the base."""
    below, base = column - 1, domain.base

    def allowed(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
        one, other = rule.total(a, b), rule.total(c, d)
        if not flipped:
            return (one == other) & (a != c)
        if not apart:
            return (one - other).abs() == base
        return (one - other) % base != 0  # which of them carries depends on what arrives; the promise checks it

    if made:
        blocks = [CellBlock.column(domain, below, allowed)]
    else:
        lower = [domain.cell(i, k) for k in range(below) for i in (0, 1)]
        blocks = [CellBlock.cell(domain, cell) for cell in lower]
        blocks.append(_equal_digits(domain, rule, below, lambda total: total == rule.passing))
    if stops and column < domain.width():
        blocks.append(_equal_digits(domain, rule, column, lambda total: total != rule.passing))
    written = "different" if apart or (flipped and not made) else "equal"
    promise = _carry_promise(column, rule, made, flipped, own_token, written, stops)
    what = _carry_what(column, rule.carry, made, flipped)
    if own_token is not None and not _reads(task, target, below):
        what += f", with the query's own token {own_token}"
    return draw_variable_pairs(task, domain, [blocks], promise, target, n, seed, what)


@checked
def digit_pairs(task: Task, column: Index, n: int | None, seed: int = 0, operand: int | None = None) -> ProblemPairs:
    """Pairs that differ in one operand digit of ``column`` and in no carry, so that the answer differs only there.

    ``operand`` is 0, 1 or None (either). ``n`` None: all pairs.

    Raises:
        UserError: as for :func:`carry_pairs`; or another operand.
    """
    width = domain_of(task).width()
    domain, target, rule = _of_columns(task, column, 0, width - 1)
    if operand not in (None, 0, 1) or isinstance(operand, bool):
        raise UserError(f"The operand is 0, 1 or None (either), not {operand!r}.")
    keep = [rule.name_in, rule.name_out, f"s[:{column}]", f"s[{column + 1}:]"]
    for i, name in enumerate("ab"):
        keep += [f"{name}[:{column}]", f"{name}[{column + 1}:]"] + ([name] if operand == 1 - i else [])
    operands = (0, 1) if operand is None else (operand,)
    products = [[CellBlock.cell(domain, domain.cell(i, column), different=True)] for i in operands]
    which = "an operand's digit" if operand is None else f"operand {operand}'s digit"
    promise = PairConstraint((f"s[{column}]",), tuple(keep), {}, None, "different")
    return draw_variable_pairs(
        task, domain, products, promise, target, n, seed, f"{which} in column {column}, with every {rule.carry} kept"
    )


@checked
def chain_pairs(
    task: Task, column: Index, n: int | None, seed: int = 0, lengths: tuple[int, int] = (0, 1)
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
    domain, target, rule = _of_columns(task, column, 1)
    if (
        not isinstance(lengths, Sequence)
        or len(lengths) != 2
        or any(isinstance(x, bool) or not isinstance(x, int) or not 0 <= x <= column for x in lengths)
        or lengths[0] == lengths[1]
    ):
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
    blocks += [_equal_digits(domain, rule, k, lambda total: total == rule.passing) for k in passing]
    if short:
        blocks.append(_equal_digits(domain, rule, column - long, rule.makes))
    keep = [f"{name}[{part}]" for name in "ab" for part in (f":{changed}", f"{changed + 1}:")]
    keep += [rule.name_in, rule.name_out, f"s[{column}:]"] if short else [f"{rule.name_in}[:{changed + 1}]"]
    differ = () if short else (f"{rule.name_in}[{column}]",)
    values = {f"chain[{column}]": (lengths[0], lengths[1])}
    promise = PairConstraint(differ, tuple(keep), values, None, "equal" if short else "different")
    what = f"the length of the {rule.carry} chain into column {column}, {lengths[0]} or {lengths[1]}"
    return draw_variable_pairs(task, domain, [blocks], promise, target, n, seed, what)


_SIGNALS = {
    "{}": carry_pairs,
    "made {}": partial(carry_pairs, made=True),
    "passed {}": partial(carry_pairs, made=False),
    "same {}": partial(carry_pairs, flipped=False),
}
#: What :func:`problem_pairs` makes: name -> generator.
KINDS: Mapping[str, Callable[..., ProblemPairs]] = {
    **{kind.format(word): make for word in ("carry", "borrow") for kind, make in _SIGNALS.items()},
    "digit": digit_pairs,
    "chain": chain_pairs,
    "variable": variable_pairs,
}


@checked
def problem_pairs(task: Task, kind: str, **arguments: Any) -> ProblemPairs:
    """Pairs of a kind: "carry", "made carry", "passed carry", "same carry" (controls), "digit", "chain", "variable".
    In a subtraction, the first four may be called "borrow" and so on; a sum has no borrows.

    The arguments are those of the kind's function: ``problem_pairs(task, "made carry", column=3, n=256, seed=0)``.

    Raises:
        UserError: an unknown kind or argument (with the closest one), a missing one, borrows of a task that adds, or
            what the function refuses.
    """
    if kind not in KINDS:
        raise unknown_name("kind of pairs", kind, KINDS)
    generator = KINDS[kind]
    taken = inspect.signature(generator).parameters
    fixed = set(generator.keywords) if isinstance(generator, partial) else set()
    known = [name for name in taken if name != "task" and name not in fixed]
    for name in arguments:
        if name not in known:
            raise unknown_name(f"argument of {kind!r} pairs", name, known)
    missing = [name for name in known if taken[name].default is inspect.Parameter.empty and name not in arguments]
    if missing:
        raise UserError(f"{kind!r} pairs need {', '.join(missing)}.")
    if "borrow" in kind and (rule := _rule_of(task, domain_of(task).base)) is not None and not rule.subtracts:
        raise UserError(f"{task.name} adds and has no borrows; ask for {kind.replace('borrow', 'carry')!r} pairs.")
    return generator(task, **arguments)
