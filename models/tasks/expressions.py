"""Answers as text, such as ``"(a + b) % 113"``: what a run folder can keep and a command line can take.

Python's arithmetic on whole numbers, comparisons (0 or 1), ``abs``, ``min``, ``max`` and ``gcd``, and nothing else. No
value on the way passes 2^62, so that none wraps around and each is computed at once.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from models.errors import UserError

_BINARY: Mapping[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARED: Mapping[type, Callable[..., Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_CALLED: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "min": lambda a, b: torch.minimum(torch.as_tensor(a), torch.as_tensor(b)),
    "max": lambda a, b: torch.maximum(torch.as_tensor(a), torch.as_tensor(b)),
    "gcd": lambda a, b: torch.gcd(torch.as_tensor(a), torch.as_tensor(b)),
}
_MOST_POWER = 64
_BOUND = 2**62
_LONGEST, _DEEPEST, _SHOWN = 2_000, 100, 80  # characters, parts inside each other, and characters in a refusal


class Expression:
    """A function of named whole numbers that was written as text; ``str`` gives the text.

    Raises:
        UserError: the text is not such an expression.
    """

    def __init__(self, text: str):
        self.text, self._sure = text.strip(), False
        if len(self.text) > _LONGEST:
            raise UserError(f"An expression has at most {_LONGEST:,} characters, not {len(self.text):,}.")
        try:
            self._body = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UserError(f"{self._named} is not an expression of whole numbers, such as '(a + b) % 113'.") from None
        if _depth(self._body) <= _DEEPEST:
            self._body = _ByTwos().visit(self._body)
        if _depth(self._body) > _DEEPEST:
            raise UserError(f"An expression has at most {_DEEPEST} parts inside each other; {self._named} has more.")
        called = [node.func for node in ast.walk(self._body) if isinstance(node, ast.Call)]
        names = {node.id: None for node in ast.walk(self._body) if isinstance(node, ast.Name) and node not in called}
        self.names: tuple[str, ...] = tuple(names)
        self(**{name: torch.ones(0, dtype=torch.int64) for name in self.names})  # what is allowed, and constants

    def __call__(self, **values: Any) -> Any:
        return self._value(self._body, values)

    def __str__(self) -> str:
        return self.text

    @property
    def tree(self) -> ast.expr:
        """What is evaluated."""
        return self._body

    @property
    def _named(self) -> str:
        return repr(self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "...")

    def _value(self, node: ast.expr, values: Mapping[str, Any]) -> Any:
        value = lambda part: self._value(part, values)  # noqa: E731
        match node:
            case ast.Constant(value=int() as number) if not isinstance(number, bool) and abs(number) < _BOUND:
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.UnaryOp(op=ast.USub()):
                return -value(node.operand)
            case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() as power)) if 0 <= power < _MOST_POWER:
                return self._computed(operator.pow, value(node.left), power)
            case ast.BinOp() if type(node.op) in _BINARY:
                return self._computed(_BINARY[type(node.op)], value(node.left), value(node.right))
            case ast.Compare(ops=[comparison], comparators=[right]) if type(comparison) in _COMPARED:
                found = _COMPARED[type(comparison)](value(node.left), value(right))
                # as numbers, since torch adds True and True to True
                return found.long() if isinstance(found, torch.Tensor) else int(found)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLED:
                if len(args) == (1 if name == "abs" else 2):
                    return _CALLED[name](*map(value, args))
        raise UserError(
            f"{ast.unparse(node)[:_SHOWN]!r} in {self._named} is not allowed; an expression has whole numbers, fields, "
            "+ - * // % ^ & |, powers, comparisons, abs, min, max and gcd."
        )

    def assume(self, limits: Mapping[str, int]) -> None:
        """From now on every name is a number from 0 to below its limit. Where no value can then pass 2^62 and nothing
        is divided by zero, values are not looked at again (on a GPU, a look waits for it)."""
        try:
            _range_of(self._body, limits)
        except _Unsure:
            return
        self._sure = True

    def _computed(self, operation: Callable[..., Any], left: Any, right: Any) -> Any:
        """The operation's value. Raises UserError if it passes the bound, or is not there."""
        if self._sure:
            return operation(left, right)
        growing = operation in (operator.mul, operator.pow)
        floats = [x.double() if growing and isinstance(x, torch.Tensor) else x for x in (left, right)]
        try:
            found = operation(*floats)  # as float64 where int64 could wrap around before anyone sees it
            if _largest(found) >= _BOUND:
                raise UserError(f"{self._named} passes 2^62 on the way; its answers could not be computed exactly.")
            return operation(left, right) if growing and isinstance(found, torch.Tensor) else found
        except (ZeroDivisionError, RuntimeError) as error:
            if "ZeroDivisionError" not in f"{type(error).__name__} {error}":  # torch's is a RuntimeError that says so
                raise
            raise UserError(f"{self._named} divides by zero.") from None


class _ByTwos(ast.NodeTransformer):
    """Turns ``max(a, b, c)`` into ``max(max(a, b), c)``, and ``min`` and ``gcd`` likewise."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        while isinstance(node.func, ast.Name) and node.func.id in _CALLED and len(node.args) > 2 and not node.keywords:
            first = ast.Call(node.func, node.args[:2], [])
            node = ast.Call(node.func, [first, *node.args[2:]], [])
        return node


class _Unsure(Exception):
    """Whether an expression's values stay small is not known."""


def _range_of(node: ast.AST, limits: Mapping[str, int]) -> tuple[int, int]:
    """Bounds of an expression's value, and so of all values on the way to it. Raises _Unsure."""
    low, high = _unchecked_range(node, lambda part: _range_of(part, limits), limits)
    if max(abs(low), abs(high)) >= _BOUND:
        raise _Unsure
    return low, high


def _unchecked_range(node: ast.AST, of: Callable[[ast.AST], Any], limits: Mapping[str, int]) -> tuple[int, int]:
    match node:
        case ast.Constant(value=int() as number):
            return number, number
        case ast.Name(id=name) if name in limits:
            return 0, limits[name] - 1
        case ast.UnaryOp(operand=inner):
            low, high = of(inner)
            return -high, -low
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() | ast.Mult() as operation):
            ends = [_BINARY[type(operation)](x, y) for x in of(left) for y in of(right)]
            return min(ends), max(ends)
        case ast.BinOp(left=left, right=right, op=ast.FloorDiv() | ast.Mod() as operation):
            (low, high), (least, most) = of(left), of(right)
            if least > 0:
                ends = [x // y for x in (low, high) for y in (least, most)]
                return (min(ends), max(ends)) if isinstance(operation, ast.FloorDiv) else (0, most - 1)
        case ast.BinOp(left=left, right=ast.Constant(value=int() as power), op=ast.Pow()):
            low, high = of(left)
            if low >= 0:
                return low**power, high**power
        case ast.Compare(left=left, comparators=[right]):
            for side in (left, right):
                of(side)  # raises _Unsure where its value is not bounded
            return 0, 1
        case ast.Call(func=ast.Name(id="abs" | "min" | "max"), args=args):
            ends = [end for part in args for end in of(part)]
            return -max(map(abs, ends)), max(map(abs, ends))
    raise _Unsure


def _largest(value: Any) -> float:
    if not isinstance(value, torch.Tensor):
        return abs(value)
    return float(value.abs().amax()) if value.numel() else 0.0


def _depth(body: ast.AST) -> int:
    depth, level = 0, [body]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth
