"""Machines of columns: a problem's numbers are read column by column, and those of the answer are written there.

The answer is a list of cases (:mod:`models.tasks.machines.affine_cases`): an affine form of the numbers, and the
conditions under which it is the answer. A form's digits come column by column, from the units up, with a *carry*: what
the columns so far are worth, divided by the power of the base that they reach. A condition is known when all columns
are read, from the sign of its form's carry, or from a residue. So the state is: the carries of all forms, and which
cases the digits written so far fit. A path counts if the case whose conditions hold at its end is one of those. This is
unambiguous, and :func:`models.tasks.machines.minimal_machine.minimised` finds what of it has to be remembered.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from jaxtyping import Bool, Int

from models.tasks.machines.affine_cases import BITWISE, Affine, AffineCase, AffineCases, Condition, Variable
from models.tasks.machines.machine import Machine
from models.tasks.machines.minimal_machine import RawLayer, minimised
from models.tasks.refusals import NoMachine, NoProblems, TooManyStates

MOST_COMBINATIONS = 4_096  # of a layer's digits; a column with more has a layer for each digit
MOST_NUMBERS, MOST_EDGES, MOST_STATES = 50_000_000, 2**22, 2**15  # in one layer, before states are merged


@dataclass(frozen=True)
class Cell:
    """A token of a problem: a digit of a number, or an operator.

    Attributes:
        name: of the number; None for the operator.
        column: of the digit, 0 for the units.
        tokens: the token of each value, from ``lowest`` on.
        slot: where it stands.
        part: at which place of a problem its value counts, and worth: how much a value of 1 is there.
    """

    name: str | None
    column: int
    tokens: tuple[int, ...]
    slot: int
    part: int
    worth: int = 1
    lowest: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class AnswerNumber:
    """A number of the answer.

    Attributes:
        digits: the slots of each digit, by column. tokens: of the digits' values.
        sign: the slots of its sign, if it has one. signs: the tokens of plus and minus.
    """

    digits: tuple[tuple[int, ...], ...]
    tokens: tuple[int, ...]
    sign: tuple[int, ...] = ()
    signs: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class AnswerCase:
    """A case of an answer of several numbers or signs: what each written number is, without its sign, where the
    conditions hold."""

    conditions: frozenset[Condition]
    values: tuple[Affine, ...]
    minus: bool = False
    operator: int = 0


def answer_cases(cases: Sequence[AffineCase], signed: bool, known: AffineCases, operator: int = 0) -> list[AnswerCase]:
    """The cases of one answer; those of a signed one have the sign of their value as a condition."""
    if not signed:
        return [AnswerCase(case.conditions, (case.value,), False, operator) for case in cases]
    return [
        AnswerCase(under, (case.value.times(1 if holds else -1),), not holds, operator)
        for case in cases
        for under, holds in known.split(case.value, case.conditions)
    ]


class ColumnGraph:
    """The layers of a machine of columns: ``cells`` and ``written`` say what stands where, ``cases`` what is right.

    If all values are constants, as in a comparison, the answer is written after all columns. A cell on which nothing
    depends has a layer of its own, before all others.
    """

    def __init__(self, cells: Sequence[Cell], written: Sequence[AnswerNumber], cases: Sequence[AnswerCase], base: int):
        self.cells, self.written, self.cases, self.base = cells, written, cases, base
        self.last = all(value.is_constant for case in cases for value in case.values)
        values = () if self.last else (value for case in cases for value in case.values)
        conditions = list(dict.fromkeys(each for case in cases for each in sorted(case.conditions, key=str)))
        self.forms = list(dict.fromkeys((*values, *(each.form for each in conditions if not each.modulus))))
        self.residues = list(dict.fromkeys((each.form, each.modulus) for each in conditions if each.modulus))
        self.value_at = [[0 if self.last else self.forms.index(v) for v in case.values] for case in cases]
        forms = [*self.forms, *(form for form, _ in self.residues)]
        self.variables = list(dict.fromkeys(variable for form in forms for variable, _ in form.factors))
        self.factors = np.array([[dict(form.factors).get(v, 0) for v in self.variables] for form in forms])
        self.factors = self.factors.reshape(len(forms), len(self.variables)).astype(np.int64)
        self.n_parts = 1 + max(cell.part for cell in cells)
        self.together = any(not isinstance(variable, str) for variable in self.variables)  # not digit by digit

    def machine(self, fixed: Mapping[int, int], state_name: str, input_length: int, n_targets: int) -> Machine:
        """The smallest machine.

        Raises:
            NoMachine: too many states on the way. NoProblems: no problem has an answer.
        """
        constants = [form.constant for form in self.forms] + [form.constant % m for form, m in self.residues]
        # a state: which cases are alive, the forms' carries, and the residues
        self.states = np.array([[1] * len(self.cases) + constants], dtype=np.int64)
        layers = [*self._prompt(), *self._columns()]
        if self.last:
            layers.append(self._answer())
            accepted = np.ones(len(self.states), dtype=bool)
        else:
            accepted = np.asarray(self._right().any(1))
        machine_layers, states = minimised(layers, accepted)
        origin = torch.zeros(self.n_parts, dtype=torch.int64)
        return Machine(machine_layers, states, dict(fixed), state_name, input_length, n_targets, origin)

    # ---- layers

    def _prompt(self) -> Iterator[RawLayer]:
        """What is read before the columns: cells on which nothing depends, the operator, and the answer's sign."""
        self.read = [cell for cell in self.cells if cell.name in {n for v in self.variables for n in _names(v)}]
        any_case = np.zeros((1, 1, len(self.cases)), dtype=np.int64)
        for cell in self.cells:
            if cell.name is not None and cell not in self.read:
                yield self._layer([cell], any_case)
        for cell in self.cells:
            if cell.name is None:
                fits = np.array([[case.operator == k for case in self.cases] for k in range(len(cell))])
                yield self._layer([cell], np.where(fits, 0, -1)[None])
        for number in self.written:
            if number.sign and not self.last:
                minus = np.array([int(case.minus) for case in self.cases])
                yield self._layer([], minus[None, None], [(number.sign, number.signs)])

    def _columns(self) -> Iterator[RawLayer]:
        columns = [cell.column for cell in self.read]
        columns += [len(number.digits) - 1 for number in self.written if not self.last]
        for column in range(max(columns, default=-1) + 1):
            cells = [cell for cell in self.read if cell.column == column]
            if prod(map(len, cells)) <= MOST_COMBINATIONS or self.together:
                yield self._column(column, cells, True)
                continue
            for cell in cells:
                yield self._column(column, [cell], cell is cells[-1])

    def _column(self, column: int, cells: Sequence[Cell], ends: bool) -> RawLayer:
        """A column, or one digit of it; with the digit that ``ends`` it the answer's digits are written."""
        size = len(self.states) * prod(map(len, cells))
        if size > MOST_EDGES or size * self.states.shape[1] > MOST_NUMBERS:
            raise TooManyStates("it has to remember too much")
        digits = _combinations(cells)
        of_name = {cell.name: digits[:, k] for k, cell in enumerate(cells)}
        values = [_digit(variable, of_name) for variable in self.variables]
        added = np.stack([np.broadcast_to(v, len(digits)) for v in values], 1) @ self.factors.T  # [combination, form]
        first, n = len(self.cases), len(self.forms)
        carries = self.states[:, None, first : first + n] + added[:, :n]
        modulus = np.array([m for _, m in self.residues], dtype=np.int64)
        power = np.array([pow(self.base, column, m) for _, m in self.residues], dtype=np.int64)
        residues = (self.states[:, None, first + n :] + added[:, n:] % modulus * power) % modulus
        written_digits = np.zeros((*carries.shape[:2], first), dtype=np.int64)
        written: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        if ends and not self.last:
            for k, number in enumerate(self.written):
                digit = (carries % self.base)[..., [at[k] for at in self.value_at]]
                if column < len(number.digits):
                    written_digits = np.where(
                        (written_digits < 0) | (digit >= len(number.tokens)), -1, written_digits * self.base + digit
                    )
                    written.append((number.digits[column], number.tokens))
                else:
                    written_digits = np.where(digit == 0, written_digits, -1)
        carries = carries // self.base if ends else carries
        return self._layer(cells, written_digits, written, np.concatenate((carries, residues), 2))

    def _answer(self) -> RawLayer:
        """The answer after all columns: that of the case that is right."""
        written_digits, written = np.zeros(len(self.cases), dtype=np.int64), []
        for k, number in enumerate(self.written):
            for column, slots in enumerate(number.digits):
                digit = [case.values[k].constant // self.base**column % self.base for case in self.cases]
                written_digits = written_digits * self.base + np.array(digit)
                written.append((slots, number.tokens))
            fits = [0 <= case.values[k].constant < self.base ** len(number.digits) for case in self.cases]
            written_digits = np.where(fits, written_digits, -1)
            if number.sign:
                minus = np.array([case.minus for case in self.cases])
                written_digits = np.where(written_digits < 0, -1, written_digits * self.base + minus)
                written.append((number.sign, number.signs))
        right = np.where(self._right(), written_digits, -1)[:, None]
        return self._layer([], right, written, np.zeros((*right.shape[:2], 0), dtype=np.int64))

    def _right(self) -> Bool[np.ndarray, "state case"]:
        """After all columns: which cases are alive, meet their conditions, and have no digit left to write."""
        first, n = len(self.cases), len(self.forms)
        carries, residues = self.states[:, first : first + n], self.states[:, first + n :]
        found = self.states[:, :first] > 0
        for i, case in enumerate(self.cases):
            for each in case.conditions:
                if each.modulus:
                    at = self.residues.index((each.form, each.modulus))
                    found[:, i] &= residues[:, at] == each.residue
                else:
                    found[:, i] &= carries[:, self.forms.index(each.form)] >= 0
            for at in () if self.last else self.value_at[i]:
                found[:, i] &= carries[:, at] == 0
        return found

    def _layer(
        self,
        cells: Sequence[Cell],
        written_digits: Int[np.ndarray, "_ _ case"],
        written: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (),
        rest: Int[np.ndarray, "state combination _"] | None = None,
    ) -> RawLayer:
        """The layer in which cells are read, and the states after it.

        Args:
            written_digits: what each case would write for a state and a combination of the cells' values: the digits of
                ``written`` in base :attr:`base` as one number, the last one lowest; -1 if the case does not fit.
            written: (slots, tokens of the values) of each digit that is written.
            rest: the state after, but for the cases; by default as before.
        """
        combinations, first = _combinations(cells), len(self.cases)
        n = len(self.states)
        shape = (n, len(combinations), first)
        if rest is None:
            rest = np.broadcast_to(self.states[:, None, first:], (*shape[:2], self.states.shape[1] - first))
        alive = np.broadcast_to((self.states[:, None, :first] > 0) & (written_digits >= 0), shape)
        before, label, after = self._transitions(alive, np.broadcast_to(written_digits, shape), rest)
        labels, label_of = _distinct(label)
        self.states, after_of = _distinct(after)
        if len(self.states) > MOST_STATES:
            raise TooManyStates("it has to remember too much")
        combination, digits = labels.T
        slots = [cell.slot for cell in cells]
        tokens = [np.array(c.tokens)[combinations[:, k] - c.lowest][combination] for k, c in enumerate(cells)]
        for places, texts in reversed(written):
            slots += places
            tokens += [np.array(texts)[digits % self.base]] * len(places)
            digits = digits // self.base
        increments = np.zeros((len(combinations), self.n_parts), dtype=np.int64)
        for k, cell in enumerate(cells):
            increments[:, cell.part] += cell.worth * combinations[:, k]
        table = np.stack(tokens, 1) if tokens else np.zeros((len(labels), 0), dtype=np.int64)
        if len(_distinct(table)[0]) < len(labels) and slots:
            raise NoMachine("two of its symbols are one token")
        return RawLayer(tuple(slots), table, increments[combination], before, label_of, after_of, n)

    def _transitions(
        self,
        alive: Bool[np.ndarray, "state combination case"],
        written_digits: Int[np.ndarray, "state combination case"],
        rest: Int[np.ndarray, "state combination _"],
    ) -> tuple[Int[np.ndarray, " transition"], Int[np.ndarray, "transition 2"], Int[np.ndarray, "transition _"]]:
        """The state before, (combination, digits written) and the state after, of every transition.

        This is the subset construction: a state is the set of cases that still fit, with all carries. In each round the
        transitions that write the same digits are taken out of ``left``, for every state and combination at once.
        """
        before, label, after, left = [], [], [], alive.copy()
        while left.any():
            state, combination = np.nonzero(left.any(2))
            digits = written_digits[state, combination, left[state, combination].argmax(1)]
            same = alive[state, combination] & (written_digits[state, combination] == digits[:, None])
            before.append(state)
            label.append(np.stack((combination, digits), 1))
            after.append(np.concatenate((same, rest[state, combination]), 1).astype(np.int64))
            left[state, combination] &= ~same
        if not before:
            raise NoProblems
        return np.concatenate(before), np.concatenate(label), np.concatenate(after)


def machine_where(rules: Sequence[ast.expr], widths: Mapping[str, int], base: int) -> Machine:
    """The problems for which all rules are true (not 0): numbers of as many digits as ``widths`` says, by name.

    Raises:
        NoMachine: a rule without a machine. NoProblems: there is no such problem.
    """
    known = AffineCases({name: base**width for name, width in widths.items()}, base)
    met = [frozenset[Condition]()]
    for rule in rules:
        true = ast.Compare(left=rule, ops=[ast.NotEq()], comparators=[ast.Constant(0)])
        met = [case.conditions for under in met for case in known.of(true, under) if case.value.constant]
    columns = [(i, name, column) for i, (name, width) in enumerate(widths.items()) for column in range(width)]
    cells = [
        Cell(name, column, tuple(range(base)), slot, i, base**column) for slot, (i, name, column) in enumerate(columns)
    ]
    cases = [AnswerCase(conditions, ()) for conditions in met]
    return ColumnGraph(cells, (), cases, base).machine({}, "order", len(cells), 0)


def _names(variable: Variable) -> set[str]:
    return {variable} if isinstance(variable, str) else _names(variable[1]) | _names(variable[2])


def _digit(variable: Variable, of_name: Mapping[str | None, np.ndarray]) -> np.ndarray | int:
    """A variable's digit in a column, from the digits that the column has."""
    if isinstance(variable, str):
        return of_name.get(variable, 0)
    return BITWISE[variable[0]](*(_digit(part, of_name) for part in variable[1:]))


def _combinations(cells: Sequence[Cell]) -> Int[np.ndarray, "combination cell"]:
    """All values of some cells, the last one fastest."""
    if not cells:
        return np.zeros((1, 0), dtype=np.int64)
    grid = np.meshgrid(*(np.arange(len(cell)) + cell.lowest for cell in cells), indexing="ij")
    return np.stack([values.reshape(-1) for values in grid], 1)


def _distinct(rows: Int[np.ndarray, "n k"]) -> tuple[Int[np.ndarray, "m k"], Int[np.ndarray, " n"]]:
    """The different rows, in the order 0, 1, -1, 2, -2, ... of their first numbers, and which of them each row is."""
    order = 2 * np.abs(rows) - (rows > 0)
    key = np.zeros(len(rows), dtype=np.int64)
    for column in order.T:  # keys stay below the number of rows, or 2^31, times 2^31
        if column.max(initial=0) >= 2**31:
            column = np.unique(column, return_inverse=True)[1].reshape(-1)
        if key.max(initial=0) >= 2**31:
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
        key = key * (int(column.max(initial=0)) + 1) + column
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], index.reshape(-1)
