"""An interpreter of a small part of Python, for numbers that stand in somebody else's text.

A public AdderBoard model is a Python file: its weights are literals, arithmetic, and loops that fill tables. The file
is never run. Its syntax tree is evaluated here, by rules of this module: names reach what the file defines and the
words of :mod:`models.importers.board.words` (tensor operations and a few builtins), and nothing else; there are no
imports, files, attributes of Python's own objects, ``exec`` or pickles. Steps, sizes of tables and of numbers are
limited.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from models.errors import UserError

MOST_STEPS = 20_000_000  # nodes that are evaluated
MOST_ENTRIES = 1_000_000  # of a table, list or text
MOST_BITS = 4096  # of an integer
MOST_DEPTH = 60  # calls within calls

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


class Missing:
    """What a file imports and does not hold."""

    def __init__(self, name: str):
        self.name = name


class Words:
    """A namespace of words: ``torch``, ``math``, ``F``."""

    def __init__(self, name: str, words: dict[str, Any]):
        self.name, self.words = name, words


class Function:
    """A function of the text, in the names around it."""

    def __init__(self, node: Any, scope: Scope, defaults: dict[str, Any], owner: Class | None = None):
        self.node, self.scope, self.defaults, self.owner = node, scope, defaults, owner
        self.name = getattr(node, "name", "lambda")
        self.kind = ""  # "property" or "static"

    def __deepcopy__(self, memo: dict[int, Any]) -> Function:
        return self


class Bound:
    """A method with its instance."""

    def __init__(self, function: Function, instance: Any):
        self.function, self.instance = function, instance


class Class:
    """A class of the text (or of the words)."""

    def __init__(self, name: str, bases: list[Any]):
        self.name, self.bases = name, [base for base in bases if isinstance(base, Class)]
        self.members: dict[str, Any] = {}
        self.fields: list[str] | None = None  # of a dataclass

    def __deepcopy__(self, memo: dict[int, Any]) -> Class:
        return self

    def find(self, name: str) -> Any:
        """A member of it or of its bases; None if there is none."""
        if name in self.members:
            return self.members[name]
        return next((found for base in self.bases if (found := base.find(name)) is not None), None)

    def is_a(self, name: str) -> bool:
        return self.name == name or any(base.is_a(name) for base in self.bases)


class Instance:
    """An object of a class of the text."""

    def __init__(self, cls: Class):
        self.cls, self.values = cls, {}


class Scope:
    """Names, and those around them."""

    def __init__(self, around: Scope | None = None, names: dict[str, Any] | None = None):
        self.around, self.names = around, {} if names is None else names

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.around
        raise UserError(f"the name {name} is not known")


class _Return(Exception):
    def __init__(self, value: Any):
        self.value = value


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Interpreter:
    """Evaluates syntax trees. ``words``: what files may import, by module; ``builtins``: names that are always there.

    Attributes:
        methods: (value, name) -> what a plain value's attribute is; raises UserError for those that are not words.
        heard: called with every call of a function of the text: (function, arguments).
    """

    def __init__(
        self,
        words: dict[str, Any],
        builtins: dict[str, Any],
        methods: Callable[[Interpreter, Any, str], Any],
    ):
        self.words, self.methods = words, methods
        self.builtins = Scope(None, builtins)
        self.module = Scope(self.builtins)
        self.steps, self.depth = 0, 0
        self.heard: Callable[[Any, list[Any]], None] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Interpreter:
        return self

    # ---- statements

    def run(self, body: list[ast.stmt], scope: Scope, owner: Class | None = None) -> None:
        for statement in body:
            self._step(statement)
            rule = getattr(self, f"_do_{type(statement).__name__}", None)
            if rule is None:
                raise UserError(f"it has a {type(statement).__name__} statement in line {statement.lineno}")
            rule(statement, scope, owner)

    def _step(self, node: ast.AST) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise UserError(f"it takes more than {MOST_STEPS:,} steps")

    def _do_Import(self, node: ast.Import, scope: Scope, owner: Class | None) -> None:
        for name in node.names:
            top = name.name.split(".")[0]
            if name.asname:
                scope.names[name.asname] = self._imported(name.name)
            else:
                scope.names[top] = self._imported(top)

    def _imported(self, name: str) -> Any:
        return self.words.get(name, Missing(name))

    def _do_ImportFrom(self, node: ast.ImportFrom, scope: Scope, owner: Class | None) -> None:
        if node.module == "__future__":
            return
        module = self.words.get(node.module or "")
        for name in node.names:
            found = module.words.get(name.name) if isinstance(module, Words) else None
            if found is None:
                found = self.words.get(f"{node.module}.{name.name}", Missing(f"{node.module}.{name.name}"))
            scope.names[name.asname or name.name] = found

    def _do_FunctionDef(self, node: ast.FunctionDef, scope: Scope, owner: Class | None) -> None:
        function = Function(node, scope, self._defaults(node.args, scope), owner)
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Name) and decorator.id in ("staticmethod", "property"):
                function.kind = decorator.id
            elif not ast.unparse(decorator).startswith(("torch.no_grad", "torch.inference_mode")):
                raise UserError(f"{node.name} has the decorator {ast.unparse(decorator)[:40]}")
        scope.names[node.name] = function

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

    def _do_ClassDef(self, node: ast.ClassDef, scope: Scope, owner: Class | None) -> None:
        cls = Class(node.name, [self.value(base, scope) for base in node.bases])
        inner = Scope(scope)
        self.run(node.body, inner, cls)
        cls.members = inner.names
        for member in cls.members.values():
            if isinstance(member, Function):
                member.scope = scope  # methods do not see the class's own names
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            cls.fields = [
                s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            ]
        scope.names[node.name] = cls

    def _do_Assign(self, node: ast.Assign, scope: Scope, owner: Class | None) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self._assign(target, value, scope)

    def _do_AnnAssign(self, node: ast.AnnAssign, scope: Scope, owner: Class | None) -> None:
        if node.value is not None:
            self._assign(node.target, self.value(node.value, scope), scope)

    def _do_AugAssign(self, node: ast.AugAssign, scope: Scope, owner: Class | None) -> None:
        read = ast.fix_missing_locations(ast.copy_location(_as_load(node.target), node.target))
        value = self._binary(node.op, self.value(read, scope), self.value(node.value, scope))
        self._assign(node.target, value, scope)

    def _assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self._items(value))
            if len(values) != len(target.elts):
                raise UserError(f"{len(values)} values are assigned to {len(target.elts)} names")
            for part, one in zip(target.elts, values, strict=True):
                self._assign(part, one, scope)
        elif isinstance(target, ast.Attribute):
            holder = self.value(target.value, scope)
            if isinstance(holder, Instance):
                holder.values[target.attr] = value
            elif isinstance(holder, Tensor) and target.attr == "data" and isinstance(value, Tensor):
                holder.data = value
            else:
                raise UserError(f"it sets the attribute {target.attr} of something that has none")
        elif isinstance(target, ast.Subscript):
            holder, index = self.value(target.value, scope), self.value(target.slice, scope)
            if isinstance(holder, Tensor):
                holder.data[index] = value
            elif isinstance(holder, (list, dict)):
                holder[index] = value
            else:
                raise UserError("it writes into something that is neither a table, a list nor a dictionary")
        else:
            raise UserError(f"it assigns to a {type(target).__name__}")

    def _do_Expr(self, node: ast.Expr, scope: Scope, owner: Class | None) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value, scope)

    def _do_Return(self, node: ast.Return, scope: Scope, owner: Class | None) -> None:
        raise _Return(None if node.value is None else self.value(node.value, scope))

    def _do_If(self, node: ast.If, scope: Scope, owner: Class | None) -> None:
        self.run(node.body if self.value(node.test, scope) else node.orelse, scope, owner)

    def _do_For(self, node: ast.For, scope: Scope, owner: Class | None) -> None:
        for item in self._items(self.value(node.iter, scope)):
            self._assign(node.target, item, scope)
            try:
                self.run(node.body, scope, owner)
            except _Continue:
                continue
            except _Break:
                return
        self.run(node.orelse, scope, owner)

    def _do_While(self, node: ast.While, scope: Scope, owner: Class | None) -> None:
        while self.value(node.test, scope):
            try:
                self.run(node.body, scope, owner)
            except _Continue:
                continue
            except _Break:
                return

    def _do_With(self, node: ast.With, scope: Scope, owner: Class | None) -> None:
        for item in node.items:
            if not ast.unparse(item.context_expr).startswith(("torch.no_grad", "torch.inference_mode")):
                raise UserError(f"it opens {ast.unparse(item.context_expr)[:40]}")
        self.run(node.body, scope, owner)

    def _do_Assert(self, node: ast.Assert, scope: Scope, owner: Class | None) -> None:
        if not self.value(node.test, scope):
            raise UserError(f"its assertion in line {node.lineno} does not hold")

    def _do_Raise(self, node: ast.Raise, scope: Scope, owner: Class | None) -> None:
        raise UserError(f"it raises an error in line {node.lineno}")

    def _do_Pass(self, node: ast.Pass, scope: Scope, owner: Class | None) -> None:
        pass

    def _do_Break(self, node: ast.Break, scope: Scope, owner: Class | None) -> None:
        raise _Break

    def _do_Continue(self, node: ast.Continue, scope: Scope, owner: Class | None) -> None:
        raise _Continue

    # ---- expressions

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
            raise UserError(f"it calculates with {_what(value)}")
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
            self.steps += len(value)  # long lists are many steps: a thousand of them would fill the memory
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
            self._assign(first.target, item, scope)
            if all(self.value(test, scope) for test in first.ifs):
                yield from self._loops(rest, scope)

    def _items(self, value: Any) -> Any:
        if isinstance(value, Instance) and "items_" in value.values:
            return value.values["items_"]
        if isinstance(value, (list, tuple, set, frozenset, range, dict, str, Tensor, zip, enumerate, reversed)) or (
            type(value).__name__ in ("dict_items", "dict_keys", "dict_values")
        ):
            return value
        raise UserError(f"it goes through {_what(value)}")

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
            raise UserError(f"it takes a part of {_what(holder)}")
        if isinstance(holder, Tensor) and isinstance(index, slice) and index.step is not None and index.step < 0:
            return holder.flip(0)[:: -index.step]
        try:
            return self._checked(holder[index])
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"it takes a part that is not there, in line {node.lineno}") from error

    def _of_Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        return self.attribute(self.value(node.value, scope), node.attr)

    def attribute(self, holder: Any, name: str) -> Any:
        """``holder.name``. Raises UserError for what is not there."""
        if name.startswith("__"):
            raise UserError(f"it asks for the attribute {name}")
        if isinstance(holder, Missing):
            return Missing(f"{holder.name}.{name}")
        if isinstance(holder, Words):
            if name not in holder.words:
                raise UserError(f"it uses {holder.name}.{name}, which is no word of the reader")
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
        """Call a function of the text, a class or a word. Raises UserError for anything else, and for what fails."""
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
            raise UserError(f"it calls {_what(function)}")
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
        except _Return as found:
            return found.value
        finally:
            self.depth -= 1
        return None


def _as_load(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return ast.Name(node.id, ast.Load())
    if isinstance(node, ast.Attribute):
        return ast.Attribute(node.value, node.attr, ast.Load())
    if isinstance(node, ast.Subscript):
        return ast.Subscript(node.value, node.slice, ast.Load())
    raise UserError(f"it assigns to a {type(node).__name__}")


def _what(value: Any) -> str:
    if isinstance(value, Missing):
        return f"{value.name}, which is not in the file"
    if isinstance(value, Instance):
        return f"a {value.cls.name}"
    if isinstance(value, (Class, Function, Words)):
        return value.name
    return f"a {type(value).__name__}"
