"""A format as JSON: what a reader in another language needs to encode and to answer any of its problems."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from models.errors import UserError
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import RulesByOperator
from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.format_text import ProblemText
from models.tasks.formats.parsed_format import ParsedFormat

_SYMBOLS: Mapping[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitXor: "^",
    ast.BitAnd: "&", ast.BitOr: "|", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==",
    ast.NotEq: "!=",
}  # fmt: skip


def format_data(parsed: ParsedFormat, reader: ProblemText) -> dict[str, Any] | None:
    """How problems are read, written and answered, with the trees of expressions; None where one is Python code."""
    rule = parsed.rule
    rules = rule.rules if isinstance(rule, RulesByOperator) else {}
    single = [] if rule is None or isinstance(rule, RulesByOperator) else [rule]
    functions = [each for numbers in parsed.functions for each in numbers]
    if not all(isinstance(each.function, Expression) for each in (*functions, *rules.values(), *single)):
        return None
    return {
        **reader.form,
        "widths": {field.name: field.width for field in parsed.operand_fields},
        "prompt": _written(parsed, parsed.prompt_parts),
        "numbers": [[field.name, field.width] for field in parsed.answer_fields],
        "signed": parsed.signed,
        "answer": _written(parsed, parsed.answer_parts),
        "ending": [parsed.ids[token] for token in parsed.ending],
        "inPieces": parsed.in_pieces,
        "operators": [parsed.ids[operator] for operator in parsed.operators],
        "functions": [[tree(each.function.tree) for each in numbers] for numbers in parsed.functions],
        "where": [tree(each.function.tree) for each in single],
        "whereBy": {str(index): tree(rule.function.tree) for index, rule in rules.items()},
    }


def _written(parsed: ParsedFormat, parts: Sequence[NumberField | str]) -> list[Any]:
    """Tokens in their order: a literal's number, [a number's name, a column] for a digit, None for the operator."""
    found: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            found += parsed.literal_ids(part)
        elif part.name == parsed.operator_name:
            found.append(None)
        else:
            found += [[part.name, column] for column in part.columns]
    return found


def tree(node: Any) -> Any:
    """An expression as nested lists: a number's text, ["name", a field], or [operation, operands ...]."""
    match node:
        case ast.Constant(value=int() as number):
            return str(number)
        case ast.Name(id=name):
            return ["name", name]
        case ast.UnaryOp(operand=inner):
            return ["-", "0", tree(inner)]
        case ast.BinOp(left=left, op=operation, right=right):
            return [_SYMBOLS[type(operation)], tree(left), tree(right)]
        case ast.Compare(left=left, ops=[relation], comparators=[right]):
            return [_SYMBOLS[type(relation)], tree(left), tree(right)]
        case ast.Call(func=ast.Name(id=name), args=args):
            return [name, *map(tree, args)]
    raise UserError(f"{ast.unparse(node)!r} is not an expression that another language can compute.")
