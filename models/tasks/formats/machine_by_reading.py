"""Machines that read a format from the left and remember what is left of its answer, whatever the expression is.

They suit answers that fold what is read into little: the largest of several tokens, the parity of a string, whether its
brackets are balanced, a remainder. Where the columns of numbers matter, :mod:`models.tasks.formats.machine_by_columns`
has smaller ones.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import torch

from models.errors import UserError
from models.tasks.expressions import Expression
from models.tasks.formats.answer_functions import AnswerFunction
from models.tasks.formats.machine_by_columns import FormatSlots
from models.tasks.formats.parsed_format import ParsedFormat
from models.tasks.machines.column_machines import AnswerNumber, Cell
from models.tasks.machines.machine import Machine
from models.tasks.machines.minimal_machine import RawLayer, minimised
from models.tasks.machines.partial_evaluation import DividesByZero, Form, known, normal
from models.tasks.refusals import NoMachine, NoProblems, TooManyStates

MOST_KEPT = 2**12  # beginnings that are told apart at one place
MOST_READ = 2**17  # and how many are looked at there
_WORDS = {"max": "maximum", "min": "minimum", "^": "parity", "%": "residue"}


def machine_by_reading(parsed: ParsedFormat) -> Machine:
    """The machine of a task whose answer and rule are texts, found by reading its numbers digit by digit.

    Postcondition: derived, so that its paths are the task's problems with their answers.

    Raises:
        NoMachine: an answer or a rule in Python, or several operators. TooManyStates: too much to remember.
    """
    slots = FormatSlots.of(parsed)
    if len(parsed.functions) != 1 or any(cell.name is None for cell in slots.cells):
        raise NoMachine("its answer depends on an operator")
    # Each digit is a number of its own.
    limits = {_digit(cell): len(cell) for cell in slots.cells}
    answer = tuple(_in_digits(each, parsed, limits) for each in parsed.functions[0])
    rule = 1 if parsed.rule is None else _in_digits(parsed.rule, parsed, limits)
    #: What is left of each number of the answer, and of the rule.
    states: list[tuple[Form, ...]] = [(*answer, rule)]
    layers: list[RawLayer] = []
    n_parts = len(parsed.fields)
    for cell in slots.cells:
        n, values = len(cell), np.arange(len(cell))
        if len(states) * n > MOST_READ:
            raise TooManyStates(f"it has to remember too much: {len(states):,} beginnings before one token")
        number: dict[tuple[Form, ...], int] = {}
        after = np.empty(len(states) * n, dtype=np.int64)
        for i, forms in enumerate(states):
            for value in range(n):
                rest = _rest(forms, _digit(cell), value)
                after[i * n + value] = number.setdefault(rest, len(number))
        if len(number) > MOST_KEPT:
            raise TooManyStates(f"it has to remember too much: {len(number):,} beginnings that may be different")
        before, label = np.repeat(np.arange(len(states)), n), np.tile(values, len(states))
        parts = np.zeros((n, n_parts), dtype=np.int64)
        parts[:, cell.part] = cell.worth * values
        tokens = np.array(cell.tokens)[:, None]
        layers.append(RawLayer((cell.slot,), tokens, parts, before, label, after, len(states)))
        states = list(number)
    accepted = np.array([bool(forms[-1]) for forms in states])
    at = np.arange(len(states))
    said = [_spelled([forms[k] for forms in states], accepted, one) for k, one in enumerate(slots.written)]
    for at_slots, column in (each for written in said for each in written):
        labels, label = np.unique(column, return_inverse=True)
        table = np.repeat(labels[:, None], len(at_slots), 1)
        layers.append(
            RawLayer(at_slots, table, np.zeros((len(labels), n_parts), np.int64), at, label.reshape(-1), at, len(at))
        )
    try:
        machine_layers, numbers = minimised(layers, accepted)
    except NoProblems:
        raise NoMachine("its rule allows no problem") from None
    word = _WORDS.get(answer[0][0], "state") if len(answer) == 1 and isinstance(answer[0], tuple) else "state"
    sizes = slots.input_length, slots.n_targets
    return Machine(machine_layers, numbers, dict(slots.fixed), word, *sizes, torch.zeros(n_parts, dtype=torch.int64))


def _rest(forms: Sequence[Form], name: str, value: int) -> tuple[Form, ...]:
    """What is left of an answer and of its rule, which is last, once a digit is known: nothing but 0 where the rule
    leaves out what has been read, and the answer need not be there."""
    rule = known(forms[-1], name, value)
    if rule == 0:
        return (0,) * len(forms)
    try:
        return (*(known(form, name, value) for form in forms[:-1]), rule)
    except DividesByZero:
        raise NoMachine("it divides by zero, unless its rule leaves out such problems") from None


def _digit(cell: Cell) -> str:
    return f"{cell.name}.{cell.column}"


def _in_digits(function: object, parsed: ParsedFormat, limits: dict[str, int]) -> Form:
    """What an answer or a rule is, of the digits."""
    if not isinstance(function, AnswerFunction) or not isinstance(function.function, Expression):
        raise NoMachine("its answer or the rule of its problems is a function in Python")
    fields = {field.name: field for field in parsed.operand_fields}
    if not set(function.chosen) <= set(fields):
        raise NoMachine("its rule reads the operator")
    values = {name: _value([f"{name}.{column}" for column in fields[name].columns], parsed.base) for name in fields}
    return normal(_Replaced(values).visit(ast.parse(str(function.function), mode="eval").body), limits)


def _value(digits: Sequence[str], base: int) -> ast.expr:
    """The number that digits spell; their names end with their columns."""
    terms = [
        ast.BinOp(ast.Name(digit), ast.Mult(), ast.Constant(base ** int(digit.rsplit(".")[-1]))) for digit in digits
    ]
    return reduce(lambda left, right: ast.BinOp(left, ast.Add(), right), terms[1:], terms[0])


class _Replaced(ast.NodeTransformer):
    """A tree with other expressions in the place of names."""

    def __init__(self, values: Mapping[str, ast.expr]):
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values.get(node.id, node)


def _spelled(
    answers: Sequence[Form], accepted: np.ndarray, written: AnswerNumber
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """(slots, the token for each answer) of everything that is written."""
    values = []
    for form, fine in zip(answers, accepted, strict=True):
        assert isinstance(form, int)  # as all numbers are known
        values.append(form if fine else 0)
    base, width = len(written.tokens), len(written.digits)
    if any(abs(value) >= base**width or (value < 0 and not written.sign) for value in values):
        raise UserError("An answer does not fit its field.")
    found = [
        (slots, np.array(written.signs)[[int(value < 0) for value in values]]) for slots in [written.sign] if slots
    ]
    for column, slots in enumerate(written.digits):
        digits = np.array([abs(value) // base**column % base for value in values], dtype=np.int64)
        found.append((slots, np.array(written.tokens)[digits]))
    return found
