"""What is left of an expression once some of its numbers are known, in a normal form.

    rest = normal(Expression("max(max(a, b), c)").tree, {"a": 10, "b": 10, "c": 10})
    known(known(rest, "a", 3), "b", 7)     max of 7 and c, as after a = 7 and b = 2

Two beginnings of a problem after which the same is left need not be told apart. Sums, products, ``max``, ``min`` and
bitwise operations are gathered whatever the order of their parts, and what the ranges of the unknown numbers settle is
settled. Equal forms are equal functions; the reverse does not hold, which costs states and nothing else.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from models.errors import UserError

#: A whole number, or a tuple whose first entry says what the others are: ("name", name, least, most);
#: ("sum", constant, ((form, factor), ...)); ("*", form, form, ...); of an operation of :data:`_GATHERED`, (operation,
#: its constant if it has one, form, ...), whose forms are different and in order; of any other, (operation, form, ...).
Form = int | tuple[Any, ...]

#: Operations whose parts are gathered, with the value of none.
_GATHERED: Mapping[str, tuple[Callable[..., int], int | None]] = {
    "max": (max, None),
    "min": (min, None),
    "^": (operator.xor, 0),
    "&": (operator.and_, None),
    "|": (operator.or_, 0),
}
_NAMED = {
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_OTHER: Mapping[str, Callable[..., Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "gcd": math.gcd,
    "abs": abs,
    ">=0": lambda x: int(x >= 0),
    "==0": lambda x: int(x == 0),
    "!=0": lambda x: int(x != 0),
}
_KEPT = 2**16  # forms whose names and bounds are not found again
_MOST_TERMS = 64  # of a product of sums that is multiplied out


class DividesByZero(UserError):
    """Raised where the numbers that are known make an expression divide by zero."""

    def __init__(self) -> None:
        super().__init__("The expression divides by zero.")


def normal(tree: ast.expr, limits: Mapping[str, int]) -> Form:
    """The normal form of an expression whose names are numbers from 0 to below their limits."""
    part = lambda node: normal(node, limits)  # noqa: E731
    match tree:
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            return ("name", name, 0, limits[name] - 1) if limits[name] > 1 else 0
        case ast.UnaryOp(operand=inner):
            return _sum([(part(inner), -1)])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _sum([(part(left), 1), (part(right), 1)])
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _sum([(part(left), 1), (part(right), -1)])
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _product([part(left), part(right)])
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(_NAMED[type(op)], [part(left), part(right)])
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(op, part(left), part(right))
        case ast.Call(func=ast.Name(id=name), args=args):
            return _applied(name, [part(arg) for arg in args])
    raise AssertionError(ast.dump(tree))  # what an Expression does not have


def known(form: Form, name: str, value: int) -> Form:
    """What is left of a form once a name has a value."""
    if isinstance(form, int):
        return form
    if form[0] == "name":
        return value if form[1] == name else form
    if name not in names(form):
        return form
    if form[0] == "sum":
        return _sum([(known(part, name, value), factor) for part, factor in form[2]], form[1])
    parts = [known(part, name, value) for part in form[1:]]
    return _product(parts) if form[0] == "*" else _applied(form[0], parts)


@lru_cache(_KEPT)
def names(form: Form) -> frozenset[str]:
    """The names that a form depends on."""
    if isinstance(form, int):
        return frozenset()
    if form[0] == "name":
        return frozenset((form[1],))
    parts = [part for part, _ in form[2]] if form[0] == "sum" else form[1:]
    return frozenset().union(*map(names, parts))


@lru_cache(_KEPT)
def ends(form: Form) -> tuple[float, float]:
    """Bounds of a form's values."""
    if isinstance(form, int):
        return form, form
    if form[0] == "name":
        return form[2], form[3]
    if form[0] == "sum":
        low = high = form[1]
        for part, factor in form[2]:
            a, b = sorted(factor * end for end in ends(part))
            low, high = low + a, high + b
        return low, high
    parts = [ends(part) for part in form[1:]]
    match form[0]:
        case ">=0" | "==0" | "!=0":
            return 0, 1
        case "max" | "min" as which:
            best = max if which == "max" else min
            return best(low for low, _ in parts), best(high for _, high in parts)
        case "*":
            low, high = parts[0]
            for other in parts[1:]:
                corners = [x * y if x and y else 0 for x in (low, high) for y in other]  # an end may be infinite
                low, high = min(corners), max(corners)
            return low, high
        case "abs":
            ((low, high),) = parts
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case "%" if parts[1][0] == parts[1][1] > 0:
            return 0, parts[1][0] - 1
        case "**" if parts[0][0] >= 0:
            return parts[0][0] ** parts[1][0], parts[0][1] ** parts[1][1]
        case "//" if parts[1][0] > 0:
            # in Python an infinite number divided by a whole one is not a number
            corners = [x if math.isinf(x) else x // y for x in parts[0] for y in parts[1]]
            return min(corners), max(corners)
        case "^" | "&" | "|" if all(low >= 0 and high < math.inf for low, high in parts):
            return 0, 2 ** max(int(high) for _, high in parts).bit_length() - 1
    return -math.inf, math.inf


def _sum(parts: Iterable[tuple[Form, int]], constant: int = 0) -> Form:
    """The sum of forms times factors."""
    found: dict[Form, int] = {}
    for part, factor in parts:
        if isinstance(part, int):
            constant += factor * part
        elif part[0] == "sum":
            constant += factor * part[1]
            for inner, times in part[2]:
                found[inner] = found.get(inner, 0) + factor * times
        else:
            found[part] = found.get(part, 0) + factor
    kept = tuple(sorted(((part, factor) for part, factor in found.items() if factor), key=repr))
    if not kept:
        return constant
    return kept[0][0] if constant == 0 and len(kept) == 1 and kept[0][1] == 1 else ("sum", constant, kept)


def _product(parts: Iterable[Form]) -> Form:
    """The product of forms: a number times a form, or several forms."""
    factor, others = 1, []
    for part in parts:
        if isinstance(part, int):
            factor *= part
        elif part[0] == "*":
            others += part[1:]
        else:
            others.append(part)
    if not factor or not others:
        return factor
    terms = [[(1, part[1]), *part[2]] if part[0] == "sum" else [(part, 1)] for part in others]
    if 1 < math.prod(map(len, terms)) <= _MOST_TERMS and len(others) > 1:
        rows = ((_product([part for part, _ in row]), math.prod(times for _, times in row)) for row in product(*terms))
        return _sum([(part, factor * times) for part, times in rows])
    if all(ends(part) == (0, 1) for part in others):  # of such, one counts as often as it stands there
        others = list(dict.fromkeys(others))
    form = others[0] if len(others) == 1 else ("*", *sorted(others, key=repr))
    return form if factor == 1 else _sum([(form, factor)])


def _compared(op: ast.cmpop, left: Form, right: Form) -> Form:
    match op:
        case ast.Gt():
            return _applied(">=0", [_sum([(left, 1), (right, -1)], -1)])
        case ast.GtE():
            return _applied(">=0", [_sum([(left, 1), (right, -1)])])
        case ast.Lt():
            return _applied(">=0", [_sum([(right, 1), (left, -1)], -1)])
        case ast.LtE():
            return _applied(">=0", [_sum([(right, 1), (left, -1)])])
    return _applied("==0" if isinstance(op, ast.Eq) else "!=0", [_sum([(left, 1), (right, -1)])])


def _applied(name: str, parts: list[Form]) -> Form:
    if name in _GATHERED:
        return _gathered(name, parts)
    if all(isinstance(part, int) for part in parts):
        return _number(name, parts)
    form = (name, *parts)
    low, high = ends(parts[0])
    match name:
        case ">=0":
            return 1 if low >= 0 else 0 if high < 0 else form
        case "==0" | "!=0":
            return int(name == "!=0") if low > 0 or high < 0 else form
        case "abs" if low >= 0 or high <= 0:
            return _sum([(parts[0], 1 if low >= 0 else -1)])
        case "%" if isinstance(m := parts[1], int) and m > 0:
            if isinstance(x := parts[0], tuple) and x[0] == "sum":
                x = _sum([(part, factor % m) for part, factor in x[2]], x[1] % m)
                return ("%", x, m) if not isinstance(x, int) else x % m
            return parts[0] if low >= 0 and high < m else form
        case "**" if parts[1] in (0, 1):
            return parts[0] if parts[1] == 1 else 1
    return form


def _number(name: str, parts: list[Form]) -> int:
    try:
        return _OTHER[name](*parts)
    except ZeroDivisionError:
        raise DividesByZero from None


def _gathered(name: str, parts: list[Form]) -> Form:
    """The normal form of an operation that is associative and commutative, ``max``, ``min`` or a bitwise one: one
    constant, then different forms in order."""
    operation, neutral = _GATHERED[name]
    constant, others = None, []
    inside = lambda part: part[1:] if isinstance(part, tuple) and part[0] == name else [part]  # noqa: E731
    for part in (inner for given in parts for inner in inside(given)):
        if isinstance(part, int):
            constant = part if constant is None else operation(constant, part)
        else:
            others.append(part)
    if name == "^":  # twice is nothing
        others = [part for part in dict.fromkeys(others) if others.count(part) % 2]
    others = sorted(dict.fromkeys(others), key=repr)
    if name in ("max", "min") and constant is not None:
        sign = 1 if name == "max" else -1
        others = [part for part in others if max(sign * end for end in ends(part)) > sign * constant]
        if any(min(sign * end for end in ends(part)) >= sign * constant for part in others):
            constant = None
    if name == "&" and constant == 0 and all(ends(part)[0] >= 0 for part in others):
        return 0
    if constant == neutral:
        constant = None
    if not others:
        return (neutral or 0) if constant is None else constant
    parts = others if constant is None else [constant, *others]
    return parts[0] if len(parts) == 1 else (name, *parts)
