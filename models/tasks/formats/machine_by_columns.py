"""Machines of formatted tasks, derived from the texts of their answers and of their rules (``where=``)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction, RulesByOperator
from models.tasks.formats.formatted_task import FormattedTask
from models.tasks.formats.parsed_format import SIGNS
from models.tasks.machines.affine_cases import Affine, AffineCases, Condition, NotDecided
from models.tasks.machines.column_machines import AnswerNumber, Cell, Choice, ColumnGraph, choices_of
from models.tasks.machines.machine import Machine

MOST_TOGETHER = 256  # cases of several numbers; each makes a state larger


@dataclass(frozen=True)
class FormatLayout:
    """Where a format puts the tokens of a problem, as its class writes them."""

    cells: tuple[Cell, ...]
    written: tuple[AnswerNumber, ...]
    fixed: Mapping[int, int]

    @classmethod
    def of(cls, task: FormattedTask) -> FormatLayout:
        cells: list[Cell] = []
        fixed: dict[int, int] = {}
        digits, place = tuple(task.digit_tokens), 0
        names = [field.name for field in task.numbers_fields]
        for part in task.parts[: task.parts.index(task.answer_pieces[0])]:
            if isinstance(part, str):
                found = task.literal_ids(part)
                fixed.update(enumerate(found, place))
                place += len(found)
            elif part.name in names:
                at = [field.name for field in task.fields].index(part.name)
                for column in part.columns:
                    cells.append(Cell(part.name, column, digits, place, at, task.base**column))
                    place += 1
            else:
                operators = tuple(task.ids[text] for text in task.operators)
                cells.append(Cell(None, 0, operators, place, task.fields.index(part)))
                place += 1
        field, n = task.answer_field, len(task.query_positions)
        # a target is also fed back, but for the last one
        slots = [(task.input_length + i, *([place + i] if i < n - 1 else [])) for i in range(n)]
        of_column = {}
        for at, each in zip(slots[field.signed :], [*task.answer_layout, *task.ending_ids], strict=True):
            if isinstance(each, str):
                fixed.update(dict.fromkeys(at, task.ids[each]))
            elif len(of_column) < field.width:
                of_column[each] = at
            else:
                fixed.update(dict.fromkeys(at, each))
        written, low = [], 0
        for number in reversed(task.answer_numbers):
            places = tuple(of_column[low + column] for column in range(number.width))
            written.insert(0, AnswerNumber(places, digits))
            low += number.width
        if field.signed:
            plus, minus = (task.ids[sign] for sign in SIGNS)
            written[0] = replace(written[0], sign=slots[0], signs=(plus, minus))
        return cls(tuple(cells), tuple(written), fixed)


def machine_of_format(task: FormattedTask, answers: Sequence[str | Expression] | None = None) -> Machine:
    """The machine of a task whose answers and rules are texts, or of those ``answers`` in place of its own.

    Raises:
        NotDecided: an answer or a rule in Python, or one without such a machine; the text says which.
    """
    layout = FormatLayout.of(task)
    limits = {field.name: task.base**field.width for field in task.numbers_fields}
    known = AffineCases(limits, task.base)
    given = [[part.function for part in function.parts] for function in task.functions]
    given = given if answers is None else [[answer] for answer in answers]
    choices: list[Choice] = []
    for operator, answer in enumerate(given):
        under = _allowed(task, operator, known)
        trees = [_expression(each, "its answer").tree for each in answer]
        for conditions in under:
            if len(trees) > 1:
                for found, values in _joint(trees, conditions, known):
                    choices.append(Choice(found, values, False, operator))
                    if len(choices) > MOST_TOGETHER:
                        raise NotDecided("its numbers have too many pieces together")
            else:
                choices += choices_of(known.of(trees[0], conditions), task.answer_field.signed, known, operator)
    graph = ColumnGraph(layout.cells, layout.written, choices, task.base)
    return graph.machine(layout.fixed, state_name(choices), task.input_length, len(task.query_positions))


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


def _allowed(task: FormattedTask, operator: int, known: AffineCases) -> list[frozenset[Condition]]:
    """The conditions under which ``where`` holds, by case."""
    rule = task.where.rules.get(operator) if isinstance(task.where, RulesByOperator) else task.where
    if rule is None:
        return [frozenset()]
    assert isinstance(rule, AnswerFunction)
    if not set(rule.chosen) <= {field.name for field in task.numbers_fields}:
        raise NotDecided("its rule reads the operator")
    tree = _expression(rule.function, "the rule of its problems").tree
    true = ast.Compare(left=tree, ops=[ast.NotEq()], comparators=[ast.Constant(0)])
    return [case.conditions for case in known.of(true) if case.value.constant]


def _expression(function: object, what: str) -> Expression:
    if isinstance(function, str):
        return Expression(function)
    if not isinstance(function, Expression):
        raise NotDecided(f"{what} is a function in Python")
    return function


def state_name(choices: Sequence[Choice]) -> str:
    """The word for what is remembered: "carry", "borrow", "order" or "residue"."""
    values = [value for choice in choices for value in choice.values]
    if all(value.is_constant for value in values):
        moduli = any(each.modulus for choice in choices for each in choice.conditions)
        return "residue" if moduli else "order"
    factors = [factor for value in values for _, factor in value.factors]
    if min(factors) < 0:
        return "borrow"
    return "carry" if len({value.factors for value in values}) == 1 else "order"
