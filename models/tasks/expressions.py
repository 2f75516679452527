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
_RELATIONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
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
        self.text = text.strip()
        if len(self.text) > _LONGEST:
            raise UserError(f"An expression has at most {_LONGEST:,} characters, not {len(self.text):,}.")
        try:
            self._body = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise UserError(f"{self._named} is not an expression of whole numbers, such as '(a + b) % 113'.") from None
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

    @property
    def order(self) -> tuple[str, str, str] | None:
        """(name, relation, name) if the expression is an order of two names, such as ``a >= b``; else None."""
        match self._body:
            case ast.Compare(left=ast.Name(id=first), ops=[relation], comparators=[ast.Name(id=second)]):
                return first, _RELATIONS[type(relation)], second
        return None

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
                return (
                    found.long() if isinstance(found, torch.Tensor) else int(found)
                )  # torch adds True and True to True
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLED:
                if len(args) == (1 if name == "abs" else 2):
                    return _CALLED[name](*map(value, args))
        raise UserError(
            f"{ast.unparse(node)[:_SHOWN]!r} in {self._named} is not allowed; an expression has whole numbers, fields, "
            "+ - * // % ^ & |, powers, comparisons, abs, min, max and gcd."
        )

    def _computed(self, operation: Callable[..., Any], left: Any, right: Any) -> Any:
        """The operation's value. Raises UserError if it passes the bound, or is not there."""
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


def _largest(value: Any) -> float:
    if not isinstance(value, torch.Tensor):
        return abs(value)
    return float(value.abs().amax()) if value.numel() else 0.0


def _depth(body: ast.AST) -> int:
    depth, level = 0, [body]
    while level:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth
