"""Whether two expressions of two whole numbers are equal on a whole domain: derived, and not tried.

    first_difference("(a - b) % 100 + 100 * (a < b)", "(a - b) % 100 + (a < b) * 100", ("a", "b"), 100)     None: equal
    first_difference("a - b", "a - b + (a == b) * (b == 7)", ("a", "b"), 100)                               (7, 7)

Both are evaluated on a *region*, a convex polygon in the plane of the two numbers. There every value is an affine form
``p a + q b + r`` with whole coefficients. Whether a comparison holds, or what a quotient is, may differ inside a
region; the region is then split along the line where it changes (``f >= 0`` on one side and ``f <= -1`` on the other,
as values are whole), until both expressions are affine on each piece. An affine form takes its extremes in a polygon's
corners, so that two forms are equal on a piece if they are so in its corners. What has no such form (a product of both
numbers, a digit in the middle of a number) is not decided here.

Cost: milliseconds for the answers that people write; at most :data:`MOST_PIECES` pieces.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from models.tasks.base import Task
from models.tasks.expressions import Expression

MOST_PIECES = 256  # of one expression's value on one region
LARGEST = 2**63 - 1  # values are computed in int64, and wrap around beyond it
_HOME = Path(__file__).parents[1]

Point = tuple[Fraction, Fraction]


class NotDecided(Exception):
    """An expression that is not piecewise affine, has too many pieces, or leaves int64. The text says which."""


@dataclass(frozen=True)
class Form:
    """``p a + q b + r``."""

    p: int
    q: int
    r: int

    def at(self, point: Point) -> Fraction:
        return self.p * point[0] + self.q * point[1] + self.r

    def plus(self, other: Form, factor: int = 1) -> Form:
        return Form(self.p + factor * other.p, self.q + factor * other.q, self.r + factor * other.r)

    def times(self, factor: int) -> Form:
        return Form(factor * self.p, factor * self.q, factor * self.r)


@dataclass(frozen=True)
class Region:
    """The corners of a convex polygon, in order; one or two corners are a point or a segment."""

    corners: tuple[Point, ...]

    @classmethod
    def square(cls, limit: int) -> Region:
        """All pairs of numbers below ``limit``."""
        low, high = Fraction(0), Fraction(limit - 1)
        return cls(((low, low), (high, low), (high, high), (low, high)))

    def range(self, form: Form) -> tuple[Fraction, Fraction]:
        values = [form.at(corner) for corner in self.corners]
        return min(values), max(values)

    def where(self, form: Form) -> Region | None:
        """The part in which a form is at least 0; None if there is none."""
        values = [form.at(corner) for corner in self.corners]
        if min(values) >= 0:
            return self
        kept: list[Point] = []
        ring = [*zip(self.corners, values, strict=True)]
        for (one, at_one), (two, at_two) in pairwise([*ring, ring[0]]):
            if at_one >= 0:
                kept.append(one)
            if at_one * at_two < 0:
                share = at_one / (at_one - at_two)
                kept.append((one[0] + share * (two[0] - one[0]), one[1] + share * (two[1] - one[1])))
        return Region(tuple(dict.fromkeys(kept))) if kept else None

    def split(self, form: Form) -> Iterator[tuple[Region, bool]]:
        """The parts in which a form is at least 0, and in which it is at most -1."""
        for holds, side in ((True, form), (False, Form(-form.p, -form.q, -form.r - 1))):
            if (part := self.where(side)) is not None:
                yield part, holds

    @cached_property
    def whole_corners(self) -> list[tuple[int, int]]:
        return [(int(a), int(b)) for a, b in self.corners if a.denominator == b.denominator == 1]


Pieces = Iterator[tuple[Region, Form]]


def first_difference(
    one: Expression | str, other: Expression | str, names: Sequence[str], limit: int, ordered: bool = False
) -> tuple[int, int] | None:
    """The numbers, in the order of ``names``, of one problem in which two expressions differ; None if they are equal on
    all pairs of numbers from 0 to ``limit - 1`` (with ``ordered``, on those whose first number is not smaller).

    Raises:
        NotDecided: neither was derived.
    """
    found: Region | None = Region.square(limit)
    found = found.where(Form(1, -1, 0)) if ordered else found
    assert found is not None  # (0, 0) is a problem
    trees = [(Expression(each) if isinstance(each, str) else each).tree for each in (one, other)]
    unsure = False
    for region, form in _bounded(_value(trees[0], names, found)):
        for piece, target in _bounded(_value(trees[1], names, region)):
            apart = form.plus(target, -1)
            if piece.range(apart) == (0, 0):
                continue
            for pair in piece.whole_corners:
                if apart.at((Fraction(pair[0]), Fraction(pair[1]))) != 0:
                    return pair
            unsure = True
    if unsure:
        raise NotDecided("two pieces differ between whole numbers")
    return None


def _bounded(pieces: Pieces) -> Pieces:
    for i, (region, form) in enumerate(pieces):
        if i >= MOST_PIECES:
            raise NotDecided("it has too many pieces")
        low, high = region.range(form)
        if low < -LARGEST or high > LARGEST:
            raise NotDecided("it passes 2^63")
        yield region, form


def _value(node: ast.expr, names: Sequence[str], region: Region) -> Pieces:
    """The pieces of a region with the value of an expression on each. Raises NotDecided."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield region, Form(0, 0, number)
        case ast.Name(id=name):
            yield region, Form(int(name == names[0]), int(name == names[1]), 0)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            for piece, form in _bounded(_value(inner, names, region)):
                yield piece, form.times(-1)
        case ast.BinOp(left=left, right=right, op=operation):
            for piece, first, second in _both(left, right, names, region):
                yield from _combined(operation, first, second, piece)
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            for piece, first, second in _both(left, right, names, region):
                yield from _compared(relation, first, second, piece)
        case ast.Call(func=ast.Name(id="abs"), args=[inner]):
            for piece, form in _bounded(_value(inner, names, region)):
                yield from ((part, form.times(1 if holds else -1)) for part, holds in piece.split(form))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
            for piece, first, second in _both(left, right, names, region):
                for part, holds in piece.split(first.plus(second, -1)):
                    yield part, (first if holds == (name == "max") else second)
        case _:
            raise NotDecided(f"{ast.unparse(node)} has no pieces that are known")


def _both(left: ast.expr, right: ast.expr, names: Sequence[str], region: Region) -> Iterator[tuple[Region, Form, Form]]:
    for part, first in _bounded(_value(left, names, region)):
        for piece, second in _bounded(_value(right, names, part)):
            yield piece, first, second


def _combined(operation: ast.operator, first: Form, second: Form, region: Region) -> Pieces:
    match operation:
        case ast.Mult():
            for factor, form in ((first, second), (second, first)):
                if (constant := _constant(factor, region)) is not None:
                    yield region, form.times(constant)
                    return
            raise NotDecided("it multiplies one number by the other")
        case ast.Add() | ast.Sub():
            yield region, first.plus(second, 1 if isinstance(operation, ast.Add) else -1)
        case ast.FloorDiv() | ast.Mod():
            by = _constant(second, region)
            if by is None or by <= 0:
                raise NotDecided("it divides by what is not a positive constant")
            # first = by * whole + rest, and only the rest decides where the quotient changes
            whole = Form(*((2 * part + by) // (2 * by) for part in (first.p, first.q, first.r)))
            rest = first.plus(whole.times(by), -1)
            low, high = (int(end // by) for end in region.range(rest))
            if high - low >= MOST_PIECES:
                raise NotDecided("it has too many pieces")
            for quotient in range(low, high + 1):
                part = region.where(rest.plus(Form(0, 0, -by * quotient)))
                part = part and part.where(rest.times(-1).plus(Form(0, 0, by * quotient + by - 1)))
                if part is not None:
                    found = whole.plus(Form(0, 0, quotient))
                    yield part, found if isinstance(operation, ast.FloorDiv) else first.plus(found.times(by), -1)
        case ast.Pow():
            base, power = _constant(first, region), _constant(second, region)
            if base is None or power is None or not 0 <= power <= 64:
                raise NotDecided("it has a power of a number")
            yield region, Form(0, 0, base**power)
        case _:
            raise NotDecided("it works on bits")


def _constant(form: Form, region: Region) -> int | None:
    """A form's value, if it has one value in a region that is whole."""
    low, high = region.range(form)
    return int(low) if low == high and low.denominator == 1 else None


def _compared(relation: ast.cmpop, first: Form, second: Form, region: Region) -> Pieces:
    apart = first.plus(second, -1)
    true, false = Form(0, 0, 1), Form(0, 0, 0)
    match relation:
        case ast.Lt() | ast.GtE():
            for part, holds in region.split(apart):
                yield part, true if holds == isinstance(relation, ast.GtE) else false
        case ast.Gt() | ast.LtE():
            for part, holds in region.split(apart.times(-1)):
                yield part, true if holds == isinstance(relation, ast.LtE) else false
        case ast.Eq() | ast.NotEq():
            for part, holds in region.split(apart):
                if not holds:
                    yield part, true if isinstance(relation, ast.NotEq) else false
                    continue
                for piece, at_most in part.split(apart.times(-1)):
                    yield piece, true if at_most == isinstance(relation, ast.Eq) else false
        case _:
            raise NotDecided("it has a comparison that is not known")


# ---- tasks that are what their class says


def altered(task: Task) -> str | None:
    """Which method of a task is not that of this package: one of a class of the user's own, or one that was replaced on
    the task or on its class. None if all are, so that what a class says of its problems holds."""
    looked_at: set[str] = set()
    for cls in type(task).__mro__[: type(task).__mro__.index(Task) + 1]:
        for name, value in vars(cls).items():
            if name in looked_at:
                continue
            looked_at.add(name)
            function = _function_of(value)
            if function is None:
                continue
            own = isinstance(value, property) or inspect.isfunction(value)  # not a cached property's value
            if (own and name in vars(task)) or not _is_ours(function):
                return f"{type(task).__name__}.{name}"
    return None


def _function_of(value: Any) -> Any:
    """The function behind a method, a property or a cached property; None for other attributes."""
    found = getattr(value, "fget", None) or getattr(value, "func", None) or value
    found = inspect.unwrap(found) if callable(found) else found
    return found if inspect.isfunction(found) else None


def _is_ours(function: Any) -> bool:
    file = function.__code__.co_filename
    if file.startswith(("<@beartype", "<string>")):  # made by a program, or typed after ``python -c``
        return str(function.__module__).startswith("models.")
    return Path(file).is_relative_to(_HOME)
