"""Labels for linear probes: signals of a column, the digit pairs that decide them, and folds that hold pairs out.

    signal                  label of column c                   decided by (the *type*)
    carry_out               a carry leaves column c             {a_c, b_c}, and the carry in where they sum to 9
    carry_in                a carry enters column c             the same of column c - 1
    nine                    a_c + b_c = 9                       {a_c, b_c}
    digit_sum               a_c + b_c, 0 to 18                  {a_c, b_c}

Any other signal is a variable of the task, with its value in column c. Its deciding "pair" are the operands' digits of
that column (the whole problem, where there are too few of these), and its types are combinations of pair and value. Two
values are yes (the larger) and no; more are numbers.

Pairs are *unordered*: a head that adds both digits sees 3 + 8 and 8 + 3 alike, so one of them in training would give
the other away. Folds consist of pairs, so no pair of the deciding column is in both training and test, in either order.
The pairs are dealt in the order of their sums, so every fold has small and large sums and one of the five nines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.probes.lens.residual_points import variable_index
from models.errors import UserError, unknown_name
from models.tasks import Role, Task

SIGNALS = {
    "carry_in": "the carry into the column",
    "carry_out": "the carry out of the column",
    "nine": "whether the digits sum to 9",
    "digit_sum": "the sum of the digits",
}
NEEDED = ("a", "b", "digit_sum", "carry_in", "carry_out")  # variables that the signals of column addition need
COUNTED = ("digit_sum",)  # signals that are numbers; the others are yes or no


@dataclass(frozen=True, eq=False)
class Labels:
    """One signal in one column: its ``value``, and the numbers of the digit ``pair`` and ``type`` that decide it."""

    signal: str
    value: Int[np.ndarray, " n"]
    pair: Int[np.ndarray, " n"]
    type: Int[np.ndarray, " n"]
    base: int = 10
    of_addition: bool = True  # one of SIGNALS; else a variable of the task

    @property
    def counted(self) -> bool:
        return self.signal in COUNTED if self.of_addition else len(np.unique(self.value)) > 2

    def folds(self, folds: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
        """The fold of each row: pairs are dealt out in the order of their values, equal values in random order."""
        if self.of_addition:
            return pair_folds(self.pair, folds, rng, self.base)
        _, first, member = np.unique(self.pair, return_index=True, return_inverse=True)
        order = np.lexsort((rng.random(len(first)), self.value[first]))
        dealt = np.empty(len(first), dtype=np.int64)
        dealt[order] = np.arange(len(first)) % folds
        return dealt[member]

    def targets(self, values: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The targets of the regression: the number, or +1 for yes and -1 for no."""
        return values.astype(float) if self.counted else np.where(values > 0, 1.0, -1.0)

    def right(self, predicted: Float[np.ndarray, " n"], values: Int[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Which rows are predicted right: rounded to the number, or on the right side of zero."""
        return np.rint(predicted) == values if self.counted else (predicted > 0) == (values > 0)

    def shuffled(self, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
        """Labels of the control task (Hewitt and Liang 2019): the labels are dealt to the types at random."""
        _, first, member = np.unique(self.type, return_index=True, return_inverse=True)
        return rng.permutation(self.value[first])[member]


def column_labels(
    variables: Mapping[str, Int[Tensor, "n *column"]], role: Role, signal: str, base: int = 10
) -> Labels | None:
    """The labels of a signal in the column of one digit; None where the task's algorithm has no value for it (for
    example because there is no previous column)."""
    shape = variables["digit_sum"].shape
    below = Role(role.kind, role.label, role.column - 1, role.index) if role.column else None
    deciding = below if signal == "carry_in" else role
    index = None if deciding is None else variable_index(deciding, shape)
    if index is None:
        return None
    a, b, total, carry_in, carry_out = (
        variables[name][(slice(None), *index)].numpy() for name in ("a", "b", "digit_sum", "carry_in", "carry_out")
    )
    pair = np.minimum(a, b) * base + np.maximum(a, b)
    value = {"digit_sum": total, "nine": (total == base - 1).astype(total.dtype)}.get(signal, carry_out)
    by_carry = signal in ("carry_in", "carry_out")
    return Labels(signal, value, pair, 2 * pair + (carry_in * (total == base - 1) if by_carry else 0), base)


def variable_labels(values: Int[Tensor, " n"], digits: Int[Tensor, "n operand"], signal: str, base: int) -> Labels:
    """The labels of one of the task's own variables in a column, with the operands' digits there.

    A variable with two values gets 0 for the smaller and 1 for the larger.
    """
    value = values.numpy()
    known = np.unique(value)
    value = (value == known[-1]).astype(np.int64) if len(known) == 2 else value
    _, pair = np.unique(np.sort(digits.numpy(), 1), axis=0, return_inverse=True)
    _, kind = np.unique(np.stack((pair.reshape(-1), value), 1), axis=0, return_inverse=True)
    return Labels(signal, value, pair.reshape(-1), kind.reshape(-1), base, False)


def pair_folds(
    pair: Int[np.ndarray, " n"], folds: int, rng: np.random.Generator, base: int = 10
) -> Int[np.ndarray, " n"]:
    """The fold of each row: pairs are dealt out in the order of their sums, equal sums in random order."""
    unordered = [(a, b) for a in range(base) for b in range(a, base)]
    order = sorted(unordered, key=lambda digits: (sum(digits), rng.random()))
    fold = np.full(base**2, -1)
    for place, (a, b) in enumerate(order):
        fold[base * a + b] = place % folds
    return fold[pair]


def row_folds(n: int, folds: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Folds of rows, whatever their pairs; the types of the test rows are then seen in training."""
    return rng.permutation(np.arange(n) % folds)


def probed_signals(task: Task, signals: str | Sequence[str] | None) -> tuple[list[str], bool]:
    """The signals to probe for, and whether the task computes what those of column addition need.

    Raises:
        UserError: a signal that the task does not have; the message has the closest.
    """
    own = task.variables(task.sample(2, torch.Generator().manual_seed(0)))
    added = set(NEEDED) <= own.keys()
    if signals is None:
        return list(SIGNALS if added else own), added
    chosen = [signals] if isinstance(signals, str) else list(signals)
    for signal in chosen:
        if signal in SIGNALS and signal not in own and not added:
            missing = next(name for name in NEEDED if name not in own)
            raise UserError(f"Task {task.name!r} does not compute {missing}, which {signal!r} asks about.")
        if signal not in own and signal not in SIGNALS:
            raise unknown_name("signal", signal, (*SIGNALS, *own))
    return chosen, added
