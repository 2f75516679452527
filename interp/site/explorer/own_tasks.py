"""Tasks that ``tasks.js`` does not know, as JSON: roles, and either what encodes any problem or some encoded problems.

A task whose format, answer and rule are text (:func:`models.tasks.formatted`) comes with their trees, and the page
encodes what is typed. Of any other task, the page holds the problems that are encoded here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch

from models.errors import UserError
from models.tasks import AnswerFunction, Expression, FormattedTask, NumberField, ProblemSpace, RulesByOperator, Task
from models.tasks.answer_functions import SeveralAnswers
from models.tasks.format_definition import SIGNS

TABLE_SIZE = 200  # problems that are held of a task, and over which means are taken
#: What comes into a column, by the name of the variable that says it.
CARRIES = {"carry_in": "carry in", "borrow_in": "borrow in", "carry_or_borrow_in": "carry or borrow in"}
_SYMBOLS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitXor: "^",
    ast.BitAnd: "&", ast.BitOr: "|", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=",
}  # fmt: skip


def own_task(task: Task, problems: Sequence[str], row: Callable[[str], tuple[str, Any]]) -> dict[str, Any]:
    """What the page must know of a task of one's own. Where the page cannot encode, it holds ``problems`` and drawn
    ones, each as ``row`` gives it: (its text, its tokens)."""
    drawn = drawn_texts(task)
    said = {
        "roles": [{name: getattr(role, name) for name in ("kind", "label", "column", "index")} for role in task.roles],
        "vocabulary": [task.token_text([token]) for token in range(task.d_vocab)],
        "queries": list(task.query_positions),
        "length": task.input_length,
        "carryName": _carry_name(task),
        "drawn": drawn,
        "signs": _signs(task),
        "size": None,
    }
    with suppress(UserError):  # a task that does not say which problems there are
        said["size"] = f"{task.domain.size:,}"
    form = _form(task)
    rows = {} if form else dict(map(row, (*problems, *drawn)))
    return said | {"form": form, "rows": rows}


def drawn_texts(task: Task) -> list[str]:
    """Random problems of a task as text, each once; all of them if they are not more than a page holds."""
    generator = torch.Generator().manual_seed(0)
    problems = task.sample(TABLE_SIZE, generator)
    with suppress(UserError):  # a task that does not say which problems there are
        if (space := ProblemSpace.of(task)).size <= TABLE_SIZE:
            problems = space.problems(torch.randperm(space.size, generator=generator))
    return list(dict.fromkeys(task.problem_text(numbers) for numbers in task.numbers(problems)))


def carries(task: Task, problem: Any) -> list[int | None]:
    """What comes into the column of each target of a problem; None where there is no column or nothing is carried."""
    found = task.variables(problem)
    columns = next((found[name][0].tolist() for name in CARRIES if name in found), [])
    into = dict(enumerate(columns))
    return [None if role.column is None else into.get(role.column) for role in task.target_roles]


def _carry_name(task: Task) -> str | None:
    known = task.variables(task.sample(1, torch.Generator().manual_seed(0)))
    return next((said for name, said in CARRIES.items() if name in known), None)


def _form(task: Task) -> dict[str, Any] | None:
    """What encodes any problem of a task whose answers and rules are text; None for any other task."""
    if type(task) is not FormattedTask or task.in_pieces or {"encode", "encode_prompt", "targets"} & vars(task).keys():
        return None
    where = task.where
    rules = where.rules if isinstance(where, RulesByOperator) else {}
    if not all(_is_text(function) for function in (*task.functions, *rules.values())):
        return None
    if isinstance(where, AnswerFunction) and not _is_text(where):
        return None
    field = task.answer_field
    ending = task.parts[task.parts.index(field) + 1 :]
    return {
        **task.problem_form,
        "prompt": [_part(task, part) for part in task.parts[: task.parts.index(field)]],
        "answer": {"name": field.name, "width": field.width, "reversed": field.reversed, "signed": field.signed},
        "ending": [token for part in ending for token in _part(task, part)],
        "operators": [task.ids[operator] for operator in task.operators],
        "functions": [_tree(part.function.tree) for function in task.functions for part in function.parts],
        "where": _tree(where.function.tree) if isinstance(where, AnswerFunction) else None,
        "whereBy": {str(index): _tree(rule.function.tree) for index, rule in rules.items()},
        "families": list(task.families),
    }


def _signs(task: Task) -> list[int]:
    """The tokens of plus and minus before an answer; none for a task without them."""
    if isinstance(task, FormattedTask):
        return [task.ids[sign] for sign in SIGNS] if task.answer_field.signed else []
    with suppress(UserError):
        return [task.token_id(sign) for sign in SIGNS]
    return []


def _is_text(function: AnswerFunction | SeveralAnswers) -> bool:
    return isinstance(function.function, Expression)


def _part(task: FormattedTask, part: NumberField | str) -> Any:
    """The tokens of literal text; or a field: its name, and how its number is written."""
    if isinstance(part, str):
        return task.literal_ids(part)
    if part not in task.numbers_fields:
        return {"name": part.name, "operator": True}
    return {"name": part.name, "width": part.width, "reversed": part.reversed}


def _tree(node: Any) -> Any:
    """An expression as nested lists: a number's text, ["name", a field], or [operation, operands ...]."""
    match node:
        case ast.Constant(value=int() as number):
            return str(number)
        case ast.Name(id=name):
            return ["name", name]
        case ast.UnaryOp(operand=inner):
            return ["-", "0", _tree(inner)]
        case ast.BinOp(left=left, op=operation, right=right):
            return [_SYMBOLS[type(operation)], _tree(left), _tree(right)]
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            return [_SYMBOLS[type(relation)], _tree(left), _tree(right)]
        case ast.Call(func=ast.Name(id=name), args=args):
            return [name, *map(_tree, args)]
    raise UserError(f"{ast.unparse(node)!r} is not an expression that a page can compute.")
