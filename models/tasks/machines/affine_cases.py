"""An expression of whole numbers as affine forms by case: what it is worth, and when.

    cases("abs(a - b)", {"a": 100, "b": 100})      a - b where a - b >= 0;  b - a where b - a - 1 >= 0
    cases("(a + b) % 7", {"a": 1000, "b": 1000})   r where a + b = r modulo 7, for r = 0 .. 6

Every problem meets the conditions of exactly one case, which is what makes a machine of them
(:mod:`models.tasks.machines.column_machines`). Sums, differences, products with constants, comparisons, ``abs``,
``min``, ``max``, and quotients and remainders by constants have such cases, of any number of numbers; in a base that is
a power of two, so have ``^``, ``&`` and ``|`` of two numbers, which work on each column alone, and in any base those of
two comparisons. A product of two numbers has them where one has few values.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from models.tasks.refusals import NoMachine

LARGEST = 2**60  # of a value, so that sums of a few of them do not wrap around in int64
MOST_CASES = 256
FEW_VALUES = 16  # of a factor, each of which has a case
FEW_QUOTIENTS = 8  # a remainder has a case for each quotient up to this many, and else one for each remainder
#: A name, or an operation on the digits of two of them: ("^", "a", "b").
Variable = str | tuple[str, "Variable", "Variable"]
BITWISE: Mapping[str, Callable[[Any, Any], Any]] = {"^": operator.xor, "&": operator.and_, "|": operator.or_}
_BITWISE = {ast.BitXor: "^", ast.BitAnd: "&", ast.BitOr: "|"}


@dataclass(frozen=True)
class Affine:
    """``sum of factors[v] v + constant``, of variables whose factor is not 0, in the order of their text."""

    factors: tuple[tuple[Variable, int], ...] = ()
    constant: int = 0

    @classmethod
    def of(cls, variable: Variable) -> Affine:
        return cls(((variable, 1),))

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        found = dict(self.factors)
        for variable, times in other.factors:
            found[variable] = found.get(variable, 0) + factor * times
        kept = sorted(((v, k) for v, k in found.items() if k), key=str)
        return Affine(tuple(kept), self.constant + factor * other.constant)

    def times(self, factor: int) -> Affine:
        return Affine().plus(self, factor)

    def shifted(self, by: int) -> Affine:
        return Affine(self.factors, self.constant + by)

    @property
    def is_constant(self) -> bool:
        return not self.factors


@dataclass(frozen=True)
class Condition:
    """``form >= 0`` or, with a modulus, ``form = residue`` modulo it."""

    form: Affine
    modulus: int = 0
    residue: int = 0


@dataclass(frozen=True)
class AffineCase:
    """What an expression is worth where all conditions hold."""

    conditions: frozenset[Condition]
    value: Affine


class AffineCases:
    """The cases of expressions of some numbers, each from 0 to below its limit.

    Args:
        limits: of the numbers, by name.
        base: of their digits; the limits are powers of it where a digit is worked on alone.
    """

    def __init__(self, limits: Mapping[str, int], base: int = 10):
        self.limits, self.base = limits, base

    def of(self, tree: ast.expr, under: frozenset[Condition] = frozenset()) -> list[AffineCase]:
        """The cases of an expression among the problems that meet some conditions.

        Raises:
            NoMachine: it has no such cases, more than :data:`MOST_CASES`, or values beyond 2^60.
        """
        found: list[AffineCase] = []
        for case in self._cases(tree, under):
            low, high = self.range(case.value)
            if max(-low, high) > LARGEST:
                raise NoMachine("it passes 2^60")
            found.append(case)
            if len(found) > MOST_CASES:
                raise NoMachine("it has too many pieces")
        return found

    def limit(self, variable: Variable) -> int:
        return self.limits[variable] if isinstance(variable, str) else max(map(self.limit, variable[1:]))

    def range(self, form: Affine) -> tuple[int, int]:
        """Bounds of a form's values."""
        ends = [sorted((0, factor * (self.limit(variable) - 1))) for variable, factor in form.factors]
        return form.constant + sum(low for low, _ in ends), form.constant + sum(high for _, high in ends)

    def _spread(self, form: Affine) -> int:
        low, high = self.range(form)
        return high - low

    def split(self, form: Affine, under: frozenset[Condition]) -> Iterator[tuple[frozenset[Condition], bool]]:
        """The conditions under which a form is at least 0, and under which it is at most -1, where there can be any."""
        low, high = self.range(form)
        for holds, side, possible, sure in (
            (True, Condition(form), high >= 0, low >= 0),
            (False, Condition(form.times(-1).shifted(-1)), low < 0, high < 0),
        ):
            other = Condition(side.form.times(-1).shifted(-1))
            if possible and other not in under:
                yield (under if sure else under | {side}), holds

    def _cases(self, node: ast.expr, under: frozenset[Condition]) -> Iterator[AffineCase]:
        match node:
            case ast.Constant(value=int() as number):
                yield AffineCase(under, Affine((), number))
            case ast.Name(id=name):
                yield AffineCase(under, Affine.of(name))
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                for case in self.of(inner, under):
                    yield AffineCase(case.conditions, case.value.times(-1))
            case ast.BinOp(left=left, right=right, op=operation):
                for first, second, found in self._both(left, right, under):
                    yield from self._combined(operation, first, second, found)
            case ast.Compare(left=left, ops=[relation], comparators=[right]):
                for first, second, found in self._both(left, right, under):
                    yield from self._compared(relation, first.plus(second, -1), found)
            case ast.Call(func=ast.Name(id="abs"), args=[inner]):
                for case in self.of(inner, under):
                    for found, holds in self.split(case.value, case.conditions):
                        yield AffineCase(found, case.value.times(1 if holds else -1))
            case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right]):
                for first, second, found in self._both(left, right, under):
                    for part, holds in self.split(first.plus(second, -1), found):
                        yield AffineCase(part, first if holds == (name == "max") else second)
            case _:
                raise NoMachine(f"{ast.unparse(node)} has no pieces that are known")

    def _both(
        self, left: ast.expr, right: ast.expr, under: frozenset[Condition]
    ) -> Iterator[tuple[Affine, Affine, frozenset[Condition]]]:
        for one in self.of(left, under):
            for two in self.of(right, one.conditions):
                yield one.value, two.value, two.conditions

    def _combined(
        self, operation: ast.operator, first: Affine, second: Affine, under: frozenset[Condition]
    ) -> Iterator[AffineCase]:
        match operation:
            case ast.Mult():
                few, form = sorted((first, second), key=self._spread)
                low, high = self.range(few)
                if high - low >= FEW_VALUES:
                    raise NoMachine("it multiplies one number by the other")
                for value in range(low, high + 1):  # of a constant, the only one
                    for found, holds in self.split(few.shifted(-value), under):
                        for inside, equal in self.split(few.times(-1).shifted(value), found) if holds else ():
                            if equal:
                                yield AffineCase(inside, form.times(value))
            case ast.Add() | ast.Sub():
                yield AffineCase(under, first.plus(second, 1 if isinstance(operation, ast.Add) else -1))
            case ast.FloorDiv() | ast.Mod():
                if not second.is_constant or second.constant <= 0:
                    raise NoMachine("it divides by what is not a positive constant")
                yield from self._divided(isinstance(operation, ast.Mod), first, second.constant, under)
            case ast.Pow():
                if not (first.is_constant and second.is_constant and 0 <= second.constant <= 64):
                    raise NoMachine("it has a power of a number")
                yield AffineCase(under, Affine((), first.constant**second.constant))
            case _ if first.is_constant and second.is_constant:
                found = BITWISE[_BITWISE[type(operation)]](first.constant, second.constant)
                yield AffineCase(under, Affine((), found))
            case _:
                alone = [form.constant == 0 and [k for _, k in form.factors] == [1] for form in (first, second)]
                if self.base & (self.base - 1) or not all(alone):
                    raise NoMachine("it works on bits")
                one, other = (form.factors[0][0] for form in (first, second))
                yield AffineCase(under, Affine.of((_BITWISE[type(operation)], one, other)))

    def _divided(self, rest: bool, form: Affine, by: int, under: frozenset[Condition]) -> Iterator[AffineCase]:
        # form = by * whole + part, and only the part decides what the quotient of the part is
        nearest = [(variable, (2 * factor + by) // (2 * by)) for variable, factor in form.factors]
        whole = Affine(tuple(each for each in nearest if each[1]), form.constant // by)
        part = form.plus(whole, -by)
        low, high = (end // by for end in self.range(part))
        if rest and high - low >= FEW_QUOTIENTS and by <= MOST_CASES:
            for residue in range(by):
                yield AffineCase(under | {Condition(part, by, residue)}, Affine((), residue))
            return
        if high - low >= MOST_CASES:
            raise NoMachine("it has too many pieces")
        for quotient in range(low, high + 1):
            below = part.shifted(-by * quotient)  # from 0 to by - 1
            for found, holds in self.split(below, under):
                for inside, fits in self.split(below.times(-1).shifted(by - 1), found) if holds else ():
                    if fits:
                        yield AffineCase(inside, below if rest else whole.shifted(quotient))

    def _compared(self, relation: ast.cmpop, apart: Affine, under: frozenset[Condition]) -> Iterator[AffineCase]:
        match relation:
            case ast.Lt() | ast.GtE():
                for part, holds in self.split(apart, under):
                    yield AffineCase(part, Affine((), int(holds == isinstance(relation, ast.GtE))))
            case ast.Gt() | ast.LtE():
                for part, holds in self.split(apart.times(-1), under):
                    yield AffineCase(part, Affine((), int(holds == isinstance(relation, ast.LtE))))
            case ast.Eq() | ast.NotEq():
                equal = int(isinstance(relation, ast.Eq))
                for part, holds in self.split(apart, under):
                    if not holds:
                        yield AffineCase(part, Affine((), 1 - equal))
                        continue
                    for piece, at_most in self.split(apart.times(-1), part):
                        yield AffineCase(piece, Affine((), equal if at_most else 1 - equal))
            case _:
                raise NoMachine("it has a comparison that is not known")
