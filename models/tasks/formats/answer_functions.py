"""Functions of a task's numbers, from Python or from text, and what is drawn and counted with them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.calls.argument_kinds import shown
from models.errors import UserError
from models.tasks.expressions import Expression


class AnswerFunction:
    """A function of whole numbers, from Python or from text, called with the columns of a table."""

    def __init__(self, function: Any, names: Sequence[str]):
        self.function = Expression(function) if isinstance(function, str) else function
        self.names = list(names)
        if isinstance(self.function, Expression):
            wanted = list(self.function.names)
            if unknown := [name for name in wanted if name not in names]:
                raise UserError(f"{function!r} names {unknown[0]!r}; the format's fields are {', '.join(names)}.")
            self.chosen = [name for name in names if name in wanted]
        else:
            self.chosen = _parameters(function, names)
        self.arguments = len(self.chosen)

    def of_columns(self, table: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
        columns = [table[:, self.names.index(name)] for name in self.chosen]
        try:
            if isinstance(self.function, Expression):
                found = self.function(**dict(zip(self.chosen, columns, strict=True)))
            else:
                found = self.function(*columns)
            found = torch.as_tensor(found)
        except UserError:
            raise
        except Exception as error:  # whatever a user's function raises
            raise UserError(
                f"The function of {', '.join(self.chosen)} failed on int64 [n] ({type(error).__name__}: {error})."
            ) from error
        if found.is_floating_point() or found.is_complex() or found.shape not in ((len(table),), ()):
            raise UserError(
                f"The function of {', '.join(self.chosen)} must give whole numbers [{len(table)}], not {shown(found)} "
                f"of {found.dtype}."
            )
        return found.long().expand(len(table))


def answers_of(answer: Any) -> tuple[Any, ...]:
    """The functions of an answer: those of a list or tuple, or of a text with commas between them, or the only one."""
    if isinstance(answer, (list, tuple)):
        return tuple(answer)
    if isinstance(answer, str) and "," in answer:
        try:
            tree = ast.parse(answer.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return (answer,)  # which an Expression refuses, with the reason
        if isinstance(tree, ast.Tuple):
            return tuple(map(ast.unparse, tree.elts))
    return (answer,)


class RulesByOperator:
    """Which problems there are where the operator decides: those of an operator without a rule all are.

    ``rules`` are by the operator's index, which stands in column ``at`` of the problems.
    """

    def __init__(self, rules: Mapping[int, AnswerFunction], at: int):
        self.rules, self.at = rules, at

    def of_columns(self, table: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
        allowed = torch.ones_like(table[:, 0])
        for operator, rule in self.rules.items():
            allowed = torch.where(table[:, self.at] == operator, rule.of_columns(table), allowed)
        return allowed


def _parameters(function: Any, names: Sequence[str]) -> list[str]:
    """The fields that a Python function takes: those that its parameters name, or else the first ones in order."""
    if not callable(function):
        raise UserError(f"An answer is a function or text such as '(a + b) % 113', not {shown(function)}.")
    try:
        parameters = [
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.kind <= each.POSITIONAL_OR_KEYWORD and each.default is each.empty
        ]
    except (TypeError, ValueError):
        parameters = ["a", "b"]
    if set(parameters) <= set(names):
        return parameters
    if len(parameters) > len(names):
        raise UserError(
            f"The answer takes {len(parameters)} numbers, and the format has the fields {', '.join(names)}."
        )
    return list(names)[: len(parameters)]
