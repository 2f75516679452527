"""An interpreter for a small part of Python, which reads numbers from somebody else's code without running it.

A public AdderBoard model is a Python file: its weights are literals, arithmetic, and loops that fill tables. The file
is never run. Its syntax tree is evaluated here, by rules of this package. Names can only refer to what the file
defines, the tensor operations of :mod:`models.importers.board.words` and the builtins of
:mod:`models.importers.board.plain_words`. There are no imports, files, attributes of Python's own objects, ``exec`` or
pickles. The number of steps and the sizes of tables and of numbers are limited.
"""

from __future__ import annotations

import ast
from typing import Any

from torch import Tensor

from models.errors import UserError
from models.importers.board.expressions import Expressions, Returned
from models.importers.board.objects import Class, Function, Instance, Missing, Scope, Words


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Interpreter(Expressions):
    """Runs statements, and evaluates the expressions in them."""

    def run(self, body: list[ast.stmt], scope: Scope, owner: Class | None = None) -> None:
        for statement in body:
            self._step(statement)
            rule = getattr(self, f"_do_{type(statement).__name__}", None)
            if rule is None:
                raise UserError(f"it has a {type(statement).__name__} statement in line {statement.lineno}")
            rule(statement, scope, owner)

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

    def _do_ClassDef(self, node: ast.ClassDef, scope: Scope, owner: Class | None) -> None:
        cls = Class(node.name, [self.value(base, scope) for base in node.bases])
        inner = Scope(scope)
        self.run(node.body, inner, cls)
        cls.members = inner.names
        for member in cls.members.values():
            if isinstance(member, Function):
                member.scope = scope  # methods do not see the class's own names, as in Python
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
            cls.fields = [
                s.target.id for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
            ]
        scope.names[node.name] = cls

    def _do_Assign(self, node: ast.Assign, scope: Scope, owner: Class | None) -> None:
        value = self.value(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def _do_AnnAssign(self, node: ast.AnnAssign, scope: Scope, owner: Class | None) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value, scope), scope)

    def _do_AugAssign(self, node: ast.AugAssign, scope: Scope, owner: Class | None) -> None:
        value = self._binary(node.op, self.value(node.target, scope), self.value(node.value, scope))
        self.assign(node.target, value, scope)

    def assign(self, target: ast.expr, value: Any, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = list(self._items(value))
            if len(values) != len(target.elts):
                raise UserError(f"{len(values)} values are assigned to {len(target.elts)} names")
            for part, one in zip(target.elts, values, strict=True):
                self.assign(part, one, scope)
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
        raise Returned(None if node.value is None else self.value(node.value, scope))

    def _do_If(self, node: ast.If, scope: Scope, owner: Class | None) -> None:
        self.run(node.body if self.value(node.test, scope) else node.orelse, scope, owner)

    def _do_For(self, node: ast.For, scope: Scope, owner: Class | None) -> None:
        for item in self._items(self.value(node.iter, scope)):
            self.assign(node.target, item, scope)
            if not self._again(node.body, scope, owner):
                return
        self.run(node.orelse, scope, owner)

    def _do_While(self, node: ast.While, scope: Scope, owner: Class | None) -> None:
        while self.value(node.test, scope):
            if not self._again(node.body, scope, owner):
                return

    def _again(self, body: list[ast.stmt], scope: Scope, owner: Class | None) -> bool:
        """Run one round of a loop, and say whether another may follow."""
        try:
            self.run(body, scope, owner)
        except _Continue:
            return True
        except _Break:
            return False
        return True

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
