"""Machines of formatted tasks, derived from the texts of their answers and of their rules (``where=``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from models.tasks.expressions import Expression
from models.tasks.formats.format_grammar import NumberField
from models.tasks.formats.parsed_format import SIGNS, ParsedFormat
from models.tasks.machines.affine_cases import Affine, AffineCases, Condition
from models.tasks.machines.column_machines import AnswerCase, AnswerNumber, Cell, ColumnGraph, answer_cases
from models.tasks.machines.machine import Machine
from models.tasks.refusals import NoMachine

MOST_TOGETHER = 256  # cases of several numbers; each makes a state larger


@dataclass(frozen=True)
class FormatSlots:
    """Where a format puts the tokens of a problem."""

    cells: tuple[Cell, ...]
    written: tuple[AnswerNumber, ...]
    fixed: Mapping[int, int]
    input_length: int
    n_targets: int

    @classmethod
    def of(cls, parsed: ParsedFormat) -> FormatSlots:
        cells: list[Cell] = []
        fixed: dict[int, int] = {}
        digits, place = tuple(parsed.digit_tokens), 0
        names = [field.name for field in parsed.fields]
        for part in parsed.prompt_parts:
            if isinstance(part, str):
                found = parsed.literal_ids(part)
                fixed.update(enumerate(found, place))
                place += len(found)
            elif part.name == parsed.operator_name:
                operators = tuple(parsed.ids[text] for text in parsed.operators)
                cells.append(Cell(None, 0, operators, place, names.index(part.name)))
                place += 1
            else:
                for column in part.columns:
                    at = names.index(part.name)
                    cells.append(Cell(part.name, column, digits, place, at, parsed.base**column))
                    place += 1
        n = parsed.signed + sum(
            part.width if isinstance(part, NumberField) else len(parsed.literals[part]) for part in parsed.answer_parts
        )
        n_targets = n + len(parsed.ending)
        input_length = place + n_targets - 1
        # a target is also fed back, but for the last one
        slots = [(input_length + i, *([place + i] if i < n_targets - 1 else [])) for i in range(n_targets)]
        at, of_column = int(parsed.signed), {}
        for part in parsed.answer_parts:
            if isinstance(part, str):
                for token in parsed.literals[part]:
                    fixed.update(dict.fromkeys(slots[at], parsed.ids[token]))
                    at += 1
            else:
                for column in part.columns:
                    of_column[part.name, column] = slots[at]
                    at += 1
        for slot, token in zip(slots[at:], parsed.ending, strict=True):
            fixed.update(dict.fromkeys(slot, parsed.ids[token]))
        written = [
            AnswerNumber(tuple(of_column[field.name, column] for column in range(field.width)), digits)
            for field in parsed.answer_fields
        ]
        if parsed.signed:
            plus, minus = (parsed.ids[sign] for sign in SIGNS)
            written[0] = replace(written[0], sign=slots[0], signs=(plus, minus))
        return cls(tuple(cells), tuple(written), fixed, input_length, n_targets)


def machine_by_columns(parsed: ParsedFormat, answers: Sequence[str | Expression] | None = None) -> Machine:
    """The machine of a task whose answers and rules are texts, or of those ``answers`` in place of its own.

    Raises:
        NoMachine: an answer or a rule in Python, or one without such a machine; the text says which.
    """
    slots = FormatSlots.of(parsed)
    limits = {field.name: parsed.base**field.width for field in parsed.operand_fields}
    known = AffineCases(limits, parsed.base)
    given: list[list[object]] = [[each.function for each in functions] for functions in parsed.functions]
    given = given if answers is None else [[answer] for answer in answers]
    cases: list[AnswerCase] = []
    for operator, answer in enumerate(given):
        under = _allowed(parsed, operator, known)
        trees = [_expression(each, "its answer").tree for each in answer]
        for conditions in under:
            if len(trees) > 1:
                for found, values in _joint(trees, conditions, known):
                    cases.append(AnswerCase(found, values, False, operator))
                    if len(cases) > MOST_TOGETHER:
                        raise NoMachine("its numbers have too many pieces together")
            else:
                cases += answer_cases(known.of(trees[0], conditions), parsed.signed, known, operator)
    graph = ColumnGraph(slots.cells, slots.written, cases, parsed.base)
    return graph.machine(slots.fixed, state_name(cases), slots.input_length, slots.n_targets)


def _joint(
    trees: Sequence[ast.expr], under: frozenset[Condition], known: AffineCases
) -> Iterator[tuple[frozenset[Condition], tuple[Affine, ...]]]:
    """Yield the cases of several numbers: what each is, where all conditions hold."""
    if not trees:
        yield under, ()
        return
    for case in known.of(trees[0], under):
        for conditions, values in _joint(trees[1:], case.conditions, known):
            yield conditions, (case.value, *values)


def _allowed(parsed: ParsedFormat, operator: int, known: AffineCases) -> list[frozenset[Condition]]:
    """The conditions under which ``where`` holds, by case."""
    rule = parsed.rule_of(operator)
    if rule is None:
        return [frozenset()]
    if not set(rule.chosen) <= {field.name for field in parsed.operand_fields}:
        raise NoMachine("its rule reads the operator")
    tree = _expression(rule.function, "the rule of its problems").tree
    true = ast.Compare(left=tree, ops=[ast.NotEq()], comparators=[ast.Constant(0)])
    return [case.conditions for case in known.of(true) if case.value.constant]


def _expression(function: object, what: str) -> Expression:
    if isinstance(function, str):
        return Expression(function)
    if not isinstance(function, Expression):
        raise NoMachine(f"{what} is a function in Python")
    return function


def state_name(cases: Sequence[AnswerCase]) -> str:
    """The word for what is remembered: "carry", "borrow", "order" or "residue"."""
    values = [value for case in cases for value in case.values]
    if all(value.is_constant for value in values):
        moduli = any(each.modulus for case in cases for each in case.conditions)
        return "residue" if moduli else "order"
    factors = [factor for value in values for _, factor in value.factors]
    if min(factors) < 0:
        return "borrow"
    return "carry" if len({value.factors for value in values}) == 1 else "order"
