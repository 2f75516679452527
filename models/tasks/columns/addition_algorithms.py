"""Addition as causal models: named variables, column by column, each computed from digits and earlier variables.

An :class:`Algorithm` runs on a teacher-forced sequence: two digits per column and, for the column's query, the output
token before it, right or corrupted. It can be run with variables *set* to values (an intervention), and returns the
answer digits that follow. Columns count from the units; everything is vectorised over n problems.

    ripple        carry_in[k] = carry_out[k-1]; total = digit_sum + carry_in; carry_out = total >= base
    look-ahead    carry_in[k] = some column j < k generates (a + b >= base) and all between propagate (a + b = base - 1)
    chained       carry_in[k] = the whole number nearest to difference / base, where
                  difference[k] = digit_sum[k-1] - previous[k], the output token z' before

    chained from above   for answers that start with their highest digit: where the column passes a carry on (its digits
                         add up to base - 1), carry_in[k] = whether the output z'' written before, one column above, is
                         x'' + y'' + 1 and not x'' + y''; elsewhere, where z'' says nothing of it, look-ahead

All give the same answers on every uncorrupted sequence. The rest is in base ten, where the difference is
10 carry_out - carry_in of the column before, so -1 or 0 without a carry and 9 or 10 with one. They differ in what they
read (ripple and look-ahead ignore outputs, and are one function of their inputs) and in what an intervention does: a
carry_in that is set goes on to later columns in ripple, and not in the other two.

The chained rule is the one that MicroAdder's attention scalar spells, ``(10 (x + y) + x' + y' - z') / 10``. For a
corrupted z' the difference takes any value from -9 to 18, the carry is -1, 0, 1 or 2, and the answer the digit of the
total nearest within 0..19, which is all that a column can hold. The rounding is ours: with ``threshold`` t the carry is
``floor((difference + 10 - t) / 10)``, so 1 from t on; every t from 1 to 9 adds correctly, and 5 (half the base) puts
the border halfway between the differences that occur. The hand-built Position Coupling transformer has t = 6 by
construction. From above the difference z'' - x'' - y'' counts modulo the base, where 0 and 1 occur, and is taken as
the nearer of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError, unknown_name

INPUTS = ("a", "b", "previous")
#: The values of a variable, per problem and column.
ColumnValues = Int[Tensor, "n column"]
#: What an intervention sets: (variable, column) -> values, [n] or one for all problems.
Interventions = Mapping[tuple[str, int], Tensor | int]


class Columns:
    """The values of variables during a run: ``v(name, column)``; ``v.base``; ``v.carry``, what is carried into the
    units; and ``v.count``, how many columns there are. Below the units column, carries and what makes them are
    ``v.carry``, and all else is zero."""

    def __init__(self, n: int, base: int, device: torch.device | None = None, carry: int = 0, count: int = 0):
        self.base, self.carry, self.count = base, carry, count
        self._known: dict[tuple[str, int], Tensor] = {}
        self._zeros = torch.zeros(n, dtype=torch.int64, device=device)

    def __call__(self, name: str, column: int) -> Int[Tensor, " n"]:
        if column < 0:
            return self._zeros + self.carry if name in ("carry_out", "generate") else self._zeros
        return self._known[name, column]

    def set(self, name: str, column: int, value: Int[Tensor, " n"]) -> None:
        self._known[name, column] = value


@dataclass(frozen=True)
class Algorithm:
    """A causal model: ``mechanisms`` are (variable, function of earlier values and the column), in causal order.

    In a column, a mechanism may use the variables before it, all variables of the columns below, and the inputs of all
    columns. The last mechanism is the answer digit. ``from_above``: the output that it reads is that of the column
    above, which answers that start with their highest digit write before.
    """

    name: str
    mechanisms: tuple[tuple[str, Callable[[Columns, int], Tensor]], ...]
    reads_outputs: bool
    from_above: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Everything that can be set: the inputs, then the computed variables in causal order."""
        return (*INPUTS, *(name for name, _ in self.mechanisms))

    def run(
        self,
        inputs: Mapping[str, ColumnValues],
        interventions: Interventions | None = None,
        base: int = 10,
        carry: int = 0,
    ) -> dict[str, ColumnValues]:
        """Every variable in every column, with some of them set.

        Args:
            inputs: "a", "b" and "previous", as :meth:`ColumnPlaces.inputs` reads them off a sequence.
            interventions: (variable, column) -> value for each problem, or one for all.
            base: the base of the digits.
            carry: what is carried into the units column.

        Raises:
            UserError: a missing input, an unknown variable or column, or a value of another length or that is not an
                integer.
        """
        for name in INPUTS:
            if name not in inputs:
                raise UserError(f"The algorithm {self.name!r} needs the inputs {', '.join(INPUTS)}; {name} is missing.")
        n, columns = inputs["a"].shape
        setting = self._checked(interventions or {}, n, columns, inputs["a"].device)
        values = Columns(n, base, inputs["a"].device, carry, columns)
        for name in INPUTS:
            for column in range(columns):
                values.set(name, column, setting.get((name, column), inputs[name][:, column]))
        for column in range(columns):
            for name, compute in self.mechanisms:
                key = (name, column)
                values.set(name, column, setting[key] if key in setting else compute(values, column))
        return {name: torch.stack([values(name, k) for k in range(columns)], 1) for name in self.variables}

    def answer(
        self, inputs: Mapping[str, ColumnValues], interventions: Interventions | None = None, base: int = 10
    ) -> ColumnValues:
        """The answer digits of :meth:`run`."""
        return self.run(inputs, interventions, base)["answer"]

    def require_variable(self, name: str) -> str:
        """``name``, if the algorithm has such a variable. Raises UserError with the closest if not."""
        if name not in self.variables:
            raise unknown_name(f"variable of the algorithm {self.name!r}", name, self.variables)
        return name

    def _checked(
        self, interventions: Interventions, n: int, columns: int, device: torch.device
    ) -> dict[tuple[str, int], Tensor]:
        checked = {}
        for (name, column), value in interventions.items():
            self.require_variable(name)
            if not 0 <= column < columns:
                raise UserError(f"There is no column {column}; there are {columns}, counted from the units (0).")
            tensor = torch.as_tensor(value, device=device)
            if tensor.is_floating_point() or tensor.is_complex():
                raise UserError(f"{name} is set to whole numbers, not to values of {tensor.dtype}.")
            tensor = tensor.long()
            if tensor.ndim and tensor.shape != (n,):
                raise UserError(f"{name} is set for {n:,} problems and needs as many values, not {list(tensor.shape)}.")
            checked[name, column] = tensor.expand(n)
        return checked


def _carried_below(v: Columns, column: int) -> Tensor:
    """Carry look-ahead: from generate and propagate of all columns below, without any other column's carry."""
    carry = v("generate", -1)
    for below in range(column):
        carry = torch.where(v("propagate", below) > 0, carry, (v("generate", below) > 0).long())
    return carry


_DIGIT_SUM = ("digit_sum", lambda v, k: v("a", k) + v("b", k))
_TOTAL = ("total", lambda v, k: v("digit_sum", k) + v("carry_in", k))
_ANSWER = ("answer", lambda v, k: v("total", k) % v.base)

RIPPLE = Algorithm(
    "ripple",
    (
        _DIGIT_SUM,
        ("carry_in", lambda v, k: v("carry_out", k - 1)),
        _TOTAL,
        ("carry_out", lambda v, k: (v("total", k) >= v.base).long()),
        _ANSWER,
    ),
    reads_outputs=False,
)
LOOK_AHEAD = Algorithm(
    "look-ahead",
    (
        _DIGIT_SUM,
        ("generate", lambda v, k: (v("digit_sum", k) >= v.base).long()),
        ("propagate", lambda v, k: (v("digit_sum", k) == v.base - 1).long()),
        ("carry_in", _carried_below),
        _TOTAL,
        _ANSWER,
    ),
    reads_outputs=False,
)


def chained(threshold: int | None = None) -> Algorithm:
    """The algorithm that reads the carry off the column before and the output written there; see the module.

    The threshold defaults to half the base (5).

    Raises:
        UserError: a threshold below 1, which would not add; when it is run, one above the highest digit.
    """
    if threshold is not None and threshold < 1:
        raise UserError(f"The chained algorithm adds with thresholds from 1 on, not {threshold}.")

    def carry(v: Columns, column: int) -> Tensor:
        border = v.base // 2 if threshold is None else threshold
        if border >= v.base:
            raise UserError(f"In base {v.base} the chained algorithm adds with thresholds up to {v.base - 1}.")
        difference = v("difference", column) + v.base - border
        return torch.div(difference, v.base, rounding_mode="floor").clamp(-1, 2)

    return Algorithm(
        "chained" if threshold in (None, 5) else f"chained (threshold {threshold})",
        (
            _DIGIT_SUM,
            ("previous_sum", lambda v, k: v("digit_sum", k - 1)),
            ("difference", lambda v, k: v("previous_sum", k) - v("previous", k) + (v.base * v.carry if k == 0 else 0)),
            ("carry_in", carry),
            _TOTAL,
            ("answer", lambda v, k: v("total", k).clamp(0, 2 * v.base - 1) % v.base),
        ),
        reads_outputs=True,
    )


CHAINED = chained()


def _above_difference(v: Columns, column: int) -> Tensor:
    if column + 1 >= v.count:  # nothing was written above
        return torch.zeros_like(v("previous", column))
    return (v("previous", column) - v("a", column + 1) - v("b", column + 1)) % v.base


def _carry_from_above(v: Columns, column: int) -> Tensor:
    """What the output above says, where the carry out of the column is the carry into it; look-ahead elsewhere."""
    below = _carried_below(v, column)
    if column + 1 >= v.count:
        return below
    difference = v("difference", column)
    said = ((difference >= 1) & (difference <= v.base // 2)).long()
    return torch.where(v("propagate", column) > 0, said, below)


CHAINED_FROM_ABOVE = Algorithm(
    "chained from above",
    (
        *LOOK_AHEAD.mechanisms[:3],
        ("difference", _above_difference),
        ("carry_in", _carry_from_above),
        _TOTAL,
        _ANSWER,
    ),
    reads_outputs=True,
    from_above=True,
)
#: Those of answers that start with the units; :attr:`ColumnPlaces.algorithms` are those of a task.
ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in (RIPPLE, LOOK_AHEAD, CHAINED)}
KNOWN = {**ALGORITHMS, CHAINED_FROM_ABOVE.name: CHAINED_FROM_ABOVE}


def resolve_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm itself, or the one with that name. Raises UserError for an unknown name, with the closest one."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in KNOWN:
        raise unknown_name("algorithm", algorithm, KNOWN)
    return KNOWN[algorithm]
