"""Evaluate the expressions of the small part of Python that :mod:`models.importers.board.interpreter` knows."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.importers.board.objects import (
    MOST_BITS,
    MOST_DEPTH,
    MOST_ENTRIES,
    MOST_STEPS,
    Bound,
    Class,
    Function,
    Instance,
    Missing,
    Scope,
    Words,
    what,
)

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type, Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_PLAIN = (int, float, bool, str, type(None), list, tuple, dict, set, frozenset, range, slice, Tensor, torch.dtype)


class Returned(Exception):
    """Raised by a return statement, to leave its function."""

    def __init__(self, value: Any):
        self.value = value


class Expressions(ABC):
    """Evaluates expressions. ``words``: what files may import, by module; ``builtins``: names that are always there.

    Attributes:
        methods: (interpreter, value, name) -> an attribute of a plain value. It raises UserError for a name that files
            may not use.
        heard: called with (function, arguments) at every call, if it is set.
    """

    def __init__(
        self,
        words: dict[str, Any],
        builtins: dict[str, Any],
        methods: Callable[[Any, Any, str], Any],
    ):
        self.words, self.methods = words, methods
        self.builtins = Scope(None, builtins)
        self.module = Scope(self.builtins)
        self.steps, self.depth = 0, 0
        self.heard: Callable[[Any, list[Any]], None] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Expressions:
        return self

    def _step(self, node: ast.AST) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise UserError(f"it takes more than {MOST_STEPS:,} steps")

    @abstractmethod
    def run(self, body: list[ast.stmt], scope: Scope, owner: Class | None = None) -> None:
        """Run statements; :class:`~models.importers.board.interpreter.Interpreter` implements this."""

    @abstractmethod
    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        """Assign a value to a target, also for the interpreter's loops."""

    def value(self, node: ast.expr, scope: Scope) -> Any:
        self._step(node)
        rule = getattr(self, f"_of_{type(node).__name__}", None)
        if rule is None:
            raise UserError(f"it has a {type(node).__name__} expression in line {node.lineno}")
        return rule(node, scope)

    def _of_Constant(self, node: ast.Constant, scope: Scope) -> Any:
        if isinstance(node.value, (bytes, complex)):
            raise UserError(f"it has bytes or complex numbers in line {node.lineno}")
        return node.value

    def _of_Name(self, node: ast.Name, scope: Scope) -> Any:
        return scope.find(node.id)

    def _of_Tuple(self, node: ast.Tuple, scope: Scope) -> tuple[Any, ...]:
        return tuple(self._list(node.elts, scope))

    def _of_List(self, node: ast.List, scope: Scope) -> list[Any]:
        return self._list(node.elts, scope)

    def _of_Set(self, node: ast.Set, scope: Scope) -> set[Any]:
        return set(self._list(node.elts, scope))

    def _list(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self._items(self.value(node.value, scope)))
            else:
                found.append(self.value(node, scope))
        return found

    def _of_Dict(self, node: ast.Dict, scope: Scope) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self.value(value, scope)
            else:
                found[self.value(key, scope)] = self.value(value, scope)
        return found

    def _of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        return _UNARY[type(node.op)](self._operand(self.value(node.operand, scope)))

    def _of_BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        return self._binary(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, _PLAIN):
            raise UserError(f"it calculates with {what(value)}")
        return value

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        rule = _BINARY.get(type(op))
        if rule is None:
            raise UserError(f"it uses the operator {type(op).__name__}")
        left, right = self._operand(left), self._operand(right)
        whole = isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int)
        if whole and abs(right) * max(1, left.bit_length()) > MOST_BITS:
            raise UserError("it has a power that is too large")
        if isinstance(op, ast.Mult):
            for text, times in ((left, right), (right, left)):
                if isinstance(text, (str, list, tuple)) and len(text) * max(0, int(times)) > MOST_ENTRIES:
                    raise UserError("it has a list that is too long")
        if isinstance(op, ast.Mod) and isinstance(left, str):
            raise UserError("it formats text with %")
        return self._checked(rule(left, right))

    def _checked(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.numel() > MOST_ENTRIES:
            raise UserError(f"it makes a table of more than {MOST_ENTRIES:,} numbers")
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise UserError("it makes a number that is too large")
        if isinstance(value, (str, list, tuple)):
            self.steps += len(value)  # long lists count as many steps, as a thousand of them would fill the memory
            if len(value) > MOST_ENTRIES:
                raise UserError("it has a list that is too long")
        return value

    def _of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        value: Any = None
        for part in node.values:
            value = self.value(part, scope)
            if bool(value) is isinstance(node.op, ast.Or):
                return value
        return value

    def _of_Compare(self, node: ast.Compare, scope: Scope) -> Any:
        left, found = self.value(node.left, scope), True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node, scope)
            found = _COMPARE[type(op)](left, right)
            if len(node.ops) > 1 and not found:
                return found
            left = right
        return found

    def _of_IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        return self.value(node.body if self.value(node.test, scope) else node.orelse, scope)

    def _defaults(self, args: ast.arguments, scope: Scope) -> dict[str, Any]:
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        found = {
            name: self.value(node, scope)
            for name, node in zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True)
        }
        for a, node in zip(args.kwonlyargs, args.kw_defaults, strict=True):
            if node is not None:
                found[a.arg] = self.value(node, scope)
        return found

    def _of_Lambda(self, node: ast.Lambda, scope: Scope) -> Function:
        return Function(node, scope, self._defaults(node.args, scope))

    def _of_JoinedStr(self, node: ast.JoinedStr, scope: Scope) -> str:
        return "".join(str(self.value(part, scope)) for part in node.values)

    def _of_FormattedValue(self, node: ast.FormattedValue, scope: Scope) -> str:
        value = self.value(node.value, scope)
        spec = "" if node.format_spec is None else self.value(node.format_spec, scope)
        if not isinstance(value, (int, float, str, bool, tuple, list, type(None))) or len(spec) > 5:
            raise UserError("it writes text in a way that is not known")
        return format(value, spec) if isinstance(value, (int, float, str)) else str(value)

    def _of_ListComp(self, node: Any, scope: Scope) -> list[Any]:
        return [self.value(node.elt, inner) for inner in self._loops(node.generators, Scope(scope))]

    _of_GeneratorExp = _of_ListComp

    def _of_SetComp(self, node: Any, scope: Scope) -> set[Any]:
        return set(self._of_ListComp(node, scope))

    def _of_DictComp(self, node: ast.DictComp, scope: Scope) -> dict[Any, Any]:
        inners = self._loops(node.generators, Scope(scope))
        return {self.value(node.key, inner): self.value(node.value, inner) for inner in inners}

    def _loops(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[Scope]:
        if not generators:
            yield scope
            return
        first, *rest = generators
        for item in self._items(self.value(first.iter, scope)):
            self.assign(first.target, item, scope)
            if all(self.value(test, scope) for test in first.ifs):
                yield from self._loops(rest, scope)

    def _items(self, value: Any) -> Any:
        if isinstance(value, Instance) and "items_" in value.values:
            return value.values["items_"]
        if isinstance(value, (list, tuple, set, frozenset, range, dict, str, Tensor, zip, enumerate, reversed)) or (
            type(value).__name__ in ("dict_items", "dict_keys", "dict_values")
        ):
            return value
        raise UserError(f"it goes through {what(value)}")

    def _of_Slice(self, node: ast.Slice, scope: Scope) -> slice:
        parts = (None if part is None else self.value(part, scope) for part in (node.lower, node.upper, node.step))
        return slice(*parts)

    def _of_Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        holder = self.value(node.value, scope)
        if isinstance(holder, (Class, Words, Missing)) or any(holder is kind for kind in (list, tuple, dict)):
            return holder  # a type with parameters
        index = self.value(node.slice, scope)
        if isinstance(holder, Instance) and "items_" in holder.values:
            holder = holder.values["items_"]
        if not isinstance(holder, (list, tuple, dict, str, Tensor, range)):
            raise UserError(f"it takes a part of {what(holder)}")
        if isinstance(holder, Tensor) and isinstance(index, slice) and index.step is not None and index.step < 0:
            return holder.flip(0)[:: -index.step]
        try:
            return self._checked(holder[index])
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"it takes a part that is not there, in line {node.lineno}") from error

    def _of_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self.attribute(self.value(node.value, scope), node.attr)

    def attribute(self, holder: Any, name: str) -> Any:
        """``holder.name``. Raises UserError if it does not exist."""
        if name.startswith("__"):
            raise UserError(f"it asks for the attribute {name}")
        if isinstance(holder, Missing):
            return Missing(f"{holder.name}.{name}")
        if isinstance(holder, Words):
            if name not in holder.words:
                raise UserError(f"it uses {holder.name}.{name}, which the reader does not know")
            return holder.words[name]
        if isinstance(holder, Instance):
            if name in holder.values:
                return holder.values[name]
            found = holder.cls.find(name)
            if found is None:
                return self.methods(self, holder, name)
            if not isinstance(found, Function):
                return found
            if found.kind == "property":
                return self.call(Bound(found, holder), [])
            return found if found.kind == "staticmethod" else Bound(found, holder)
        if isinstance(holder, Class):
            found = holder.find(name)
            if found is None:
                raise UserError(f"{holder.name} has no {name}")
            return found
        return self.methods(self, holder, name)

    def _of_Call(self, node: ast.Call, scope: Scope) -> Any:
        arguments = self._list(node.args, scope)
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope)
            if keyword.arg is None:
                named |= value
            else:
                named[keyword.arg] = value
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value).startswith("super("):
            instance, owner = scope.find("self"), scope.find("__owner__")
            found = next((f for base in owner.bases if (f := base.find(node.func.attr)) is not None), None)
            return None if found is None else self.call(Bound(found, instance), arguments, named)
        return self.call(self.value(node.func, scope), arguments, named)

    def call(self, function: Any, arguments: list[Any], named: dict[str, Any] | None = None) -> Any:
        """Call a function of the text, a class or a word. Raises UserError for anything else, or if the call fails."""
        named = named or {}
        if self.heard is not None:
            self.heard(function, arguments)
        if isinstance(function, Missing):
            raise UserError(f"it needs {function.name}, which is not in the file")
        if isinstance(function, Bound):
            return self._apply(function.function, [function.instance, *arguments], named)
        if isinstance(function, Function):
            return self._apply(function, arguments, named)
        if isinstance(function, Class):
            return self._construct(function, arguments, named)
        if isinstance(function, Instance):
            method = function.cls.find("__call__") or function.cls.find("forward")
            if method is None:
                raise UserError(f"it calls a {function.cls.name}, which has no forward")
            return self._apply(method, [function, *arguments], named)
        if not callable(function):
            raise UserError(f"it calls {what(function)}")
        try:
            return self._checked(function(*arguments, **named))
        except (TypeError, ValueError, IndexError, KeyError, RuntimeError, ArithmeticError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            name = getattr(function, "__name__", "a word")
            raise UserError(f"{name} cannot be evaluated ({str(error).splitlines()[0][:80]})") from error

    def _construct(self, cls: Class, arguments: list[Any], named: dict[str, Any]) -> Instance:
        instance = Instance(cls)
        if cls.fields is not None:
            given = dict(zip(cls.fields, arguments, strict=False)) | named
            instance.values = {name: given.get(name, cls.members.get(name)) for name in cls.fields}
            return instance
        init = cls.find("__init__")
        if init is not None:
            self._apply(init, [instance, *arguments], named)
        return instance

    def _apply(self, function: Function, arguments: list[Any], named: dict[str, Any]) -> Any:
        args = function.node.args
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        if len(arguments) > len(names) and args.vararg is None:
            raise UserError(f"{function.name} gets {len(arguments)} arguments")
        given = function.defaults | dict(zip(names, arguments, strict=False))
        if args.vararg is not None:
            given[args.vararg.arg] = tuple(arguments[len(names) :])
        known = {*names, *(a.arg for a in args.kwonlyargs)}
        rest = {name: value for name, value in named.items() if name not in known}
        if rest and args.kwarg is None:
            raise UserError(f"{function.name} has no argument {next(iter(rest))}")
        given |= {name: value for name, value in named.items() if name in known}
        if args.kwarg is not None:
            given[args.kwarg.arg] = rest
        if missing := known - given.keys():
            raise UserError(f"{function.name} misses the argument {min(missing)}")
        scope = Scope(function.scope, given)
        if function.owner is not None:
            scope.names["__owner__"] = function.owner
        if isinstance(function.node, ast.Lambda):
            return self.value(function.node.body, scope)
        self.depth += 1
        try:
            if self.depth > MOST_DEPTH:
                raise UserError(f"{function.name} calls itself too often")
            self.run(function.node.body, scope)
        except Returned as found:
            return found.value
        finally:
            self.depth -= 1
        return None
