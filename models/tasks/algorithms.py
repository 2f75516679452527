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
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError, unknown_name
from models.tasks.base import Task, base_of
from models.tasks.places import DELIMITERS, OUTPUT, OWN, PREVIOUS, REST

INPUTS = ("a", "b", "previous")
CHECKED = 64  # problems on which ripple carry must give a task's targets
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
            inputs: "a", "b" and "previous", as :meth:`ColumnLayout.inputs` reads them off a sequence.
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


def chained(threshold: int | None = None, zero_or_one: bool = False) -> Algorithm:
    """The algorithm that reads the carry off the column before and the output written there; see the module.

    The threshold defaults to half the base (5).
    With ``zero_or_one`` the carry is 1 from the threshold on and 0 otherwise, as in a model that learned no others.

    Raises:
        UserError: a threshold below 1, which would not add; when it is run, one above the highest digit.
    """
    if threshold is not None and threshold < 1:
        raise UserError(f"The chained algorithm adds with thresholds from 1 on, not {threshold}.")
    options = [f"threshold {threshold}"] * (threshold not in (None, 5)) + ["carry 0 or 1"] * zero_or_one
    lowest, highest = (0, 1) if zero_or_one else (-1, 2)

    def carry(v: Columns, column: int) -> Tensor:
        border = v.base // 2 if threshold is None else threshold
        if border >= v.base:
            raise UserError(f"In base {v.base} the chained algorithm adds with thresholds up to {v.base - 1}.")
        difference = v("difference", column) + v.base - border
        return torch.div(difference, v.base, rounding_mode="floor").clamp(lowest, highest)

    return Algorithm(
        f"chained ({', '.join(options)})" if options else "chained",
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
#: Those of answers that start with the units; :attr:`ColumnLayout.algorithms` are those of a task.
ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in (RIPPLE, LOOK_AHEAD, CHAINED)}
_KNOWN = {**ALGORITHMS, CHAINED_FROM_ABOVE.name: CHAINED_FROM_ABOVE}


def resolve_algorithm(algorithm: str | Algorithm) -> Algorithm:
    """The algorithm itself, or the one with that name. Raises UserError for an unknown name, with the closest one."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if algorithm not in _KNOWN:
        raise unknown_name("algorithm", algorithm, _KNOWN)
    return _KNOWN[algorithm]


@dataclass(frozen=True, eq=False)
class ColumnLayout:
    """Where the columns of one addition stand in a task's sequence.

    ``operands[k]``: positions of column k's two digits (fewer if an operand has no digit there); ``queries[k]``: the
    position that predicts its answer digit, where for k > 0 the output of column k - 1 stands; ``targets[k]``: which of
    the task's targets it is. With ``highest_first`` the answer starts with its highest digit, and at ``queries[k]``
    stands the output of column k + 1, if there is one. ``step`` is the running sum, for additions of many operands;
    ``base`` is the digits' base.

    ``subtracts``: the second operand is subtracted from the first. That is an addition of its complement, with
    base - 1 - b for every digit b, and a carry into the units: a carry is then a borrow that is not needed, and the
    algorithms are those of addition. A column above the operands' writes 1 where a borrow is left (base - 1 in the
    sum), else 0.
    """

    task: Task
    operands: tuple[tuple[int, ...], ...]
    queries: tuple[int, ...]
    targets: tuple[int, ...]
    step: int | None = None
    base: int = 10
    subtracts: bool = False
    highest_first: bool = False

    def fits(self, algorithm: Algorithm) -> bool:
        """Whether the outputs that an algorithm reads, if any, are written before."""
        return not algorithm.reads_outputs or algorithm.from_above == self.highest_first

    @property
    def algorithms(self) -> tuple[Algorithm, ...]:
        """The algorithms that fit: ripple, look-ahead, and the chained one of this order."""
        return tuple(algorithm for algorithm in _KNOWN.values() if self.fits(algorithm))

    def run(
        self, algorithm: Algorithm, tokens: Int[Tensor, "n pos"], interventions: Interventions | None = None
    ) -> dict[str, ColumnValues]:
        """Every variable of an algorithm on sequences, as in :meth:`Algorithm.run`.

        Raises:
            UserError: as there; an algorithm that reads outputs which are written later.
        """
        if not self.fits(algorithm):
            where = "above" if algorithm.from_above else "below"
            raise UserError(
                f"The {algorithm.name} algorithm reads the output of the column {where}, which {self.task.name} writes "
                f"later; ask about {' or '.join(each.name for each in self.algorithms)}."
            )
        found = algorithm.run(self.inputs(tokens), interventions, self.base, int(self.subtracts))
        if not (self.subtracts and not all(self.operands)):
            return found
        above = torch.tensor([not places for places in self.operands], device=tokens.device)
        return found | {"answer": torch.where(above, found["answer"].clamp(max=1), found["answer"])}

    def answer(
        self, algorithm: Algorithm, tokens: Int[Tensor, "n pos"], interventions: Interventions | None = None
    ) -> ColumnValues:
        """The answer digits of :meth:`run`."""
        return self.run(algorithm, tokens, interventions)["answer"]

    def values(
        self, algorithm: Algorithm, problems: Any, interventions: Interventions | None = None
    ) -> dict[str, ColumnValues]:
        """Every variable of an algorithm on the true sequences of problems, "answer" among them."""
        return self.run(algorithm, self.task.encode(problems), interventions)

    def require_variable(self, algorithm: Algorithm, name: str, column: int | None = None) -> str:
        """``name``, if the algorithm has such a variable (in this column). Raises UserError with the closest if not."""
        return algorithm.require_variable(name)

    def __len__(self) -> int:
        return len(self.queries)

    def places(self, column: int) -> dict[str, list[int]]:
        """Positions of each of :data:`models.tasks.places.PLACES`. Before the first digit no output was written, and
        the query is then in no place."""
        query, roles = self.queries[column], self.task.roles
        found = {OWN: list(self.operands[column]), PREVIOUS: list(self.operands[column - 1]) if column else []}
        left = [at for at in range(query) if at not in found[OWN] and at not in found[PREVIOUS]]
        found[OUTPUT] = [query] if column in self.after_outputs else []
        found[DELIMITERS] = [at for at in left if roles[at].kind in ("delimiter", "eos", "bos")]
        return found | {REST: [at for at in left if at not in found[DELIMITERS]]}

    @property
    def after_outputs(self) -> range:
        """The columns at whose query an output stands: all but the one that is written first."""
        return range(len(self) - 1) if self.highest_first else range(1, len(self))

    def inputs(self, tokens: Int[Tensor, "n pos"]) -> dict[str, ColumnValues]:
        """The inputs that the algorithms read off sequences: "a", "b", "previous" (0 in the column that is written
        first).

        Raises:
            UserError: sequences that end before the last of those positions, or a token there that is not a digit.
        """
        last = max(*self.queries, *(at for places in self.operands for at in places))
        if tokens.ndim != 2 or tokens.shape[1] <= last:
            raise UserError(
                f"Sequences of the task {self.task.name!r} are [n, pos] with {last + 1} positions or more, not "
                f"{list(tokens.shape)}."
            )
        zeros, tokens = torch.zeros_like(tokens[:, 0]), self.task.digit_values(tokens)
        digits = [[tokens[:, at] for at in places] + [zeros] * (2 - len(places)) for places in self.operands]
        previous = [tokens[:, at] if k in self.after_outputs else zeros for k, at in enumerate(self.queries)]
        found = {
            "a": torch.stack([pair[0] for pair in digits], 1),
            "b": torch.stack([pair[1] for pair in digits], 1),
            "previous": torch.stack(previous, 1),
        }
        for name, values in found.items():
            if (values < 0).any():
                raise UserError(f"The sequence holds a token other than a digit where the algorithm reads {name!r}.")
        return found | ({"b": self.base - 1 - found["b"]} if self.subtracts else {})

    def answer_tokens(self, answer: Int[Tensor, "*place"]) -> Int[Tensor, "*place"]:
        """The tokens of answers that are digits (0 or more), as :meth:`answer` gives them."""
        return torch.tensor(self.task.digit_tokens, device=answer.device)[answer]

    def require_column(self, column: int) -> int:
        """``column``, if there is one. Raises UserError if not."""
        if not 0 <= column < len(self):
            raise UserError(f"Columns go from 0 to {len(self) - 1} here, counted from the units; not {column}.")
        return column


def column_layout(task: Task, step: int | None = None) -> ColumnLayout:
    """The layout of a task that adds two numbers, or (``step`` = i, by default the last) a_i to a running sum b_{i-1}.

    A task that subtracts the second number from the first has one, too. It is found by the roles of the tokens, and
    checked: on a few problems, ripple carry must give the task's targets.

    Raises:
        UserError: a task that does not add or subtract two numbers per step, or writes its answer neither from the
            units nor from the most significant digit; a step that does not exist.
    """
    refused = UserError(
        f"The task {task.name!r} does not add or subtract two numbers column by column with a token for every digit, "
        "so that the symbolic algorithms have nothing to read there."
    )
    roles, targets = task.roles, task.target_roles
    steps = sorted({role.index for role in targets if role.kind in ("answer", "scratchpad") and role.index is not None})
    if steps:
        step = steps[-1] if step is None else step
        if step not in steps or step < 1:
            raise UserError(
                f"There is no step {step}; running sums are made in steps {max(1, steps[0])} to {steps[-1]}."
            )
    elif step is not None:
        raise UserError(f"The task {task.name!r} adds in one step; step={step} asks for another.")
    summands = [("operand", 0), ("operand", 1)] if step is None else [("operand", step), ("scratchpad", step - 1)]
    place = {(role.kind, role.index, role.column): at for at, role in enumerate(roles) if role.column is not None}
    if step == 2 and ("scratchpad", 1, 0) not in place:  # b_1 is not written, as it is a_1
        summands = [("operand", 2), ("operand", 1)]
    asked = {
        role.column: target
        for target, role in enumerate(targets)
        if role.kind in ("answer", "scratchpad") and role.index == step and role.column is not None
    }
    columns = range(len(asked))
    if not asked or sorted(asked) != list(columns) or not all((*summand, 0) in place for summand in summands):
        raise refused
    layout = ColumnLayout(
        task,
        tuple(tuple(place[*summand, k] for summand in summands if (*summand, k) in place) for k in columns),
        tuple(task.query_positions[asked[k]] for k in columns),
        tuple(asked[k] for k in columns),
        step,
        base_of(task),
    )
    before = [roles[query] for query in layout.queries]
    orders = [layout, replace(layout, highest_first=True)]
    fitting = [
        order
        for order, away in zip(orders, (-1, 1), strict=True)
        if all(
            (before[k].kind, before[k].index, before[k].column) == (targets[asked[k]].kind, step, k + away)
            for k in order.after_outputs
        )
    ]
    if not fitting:
        raise refused
    layout = fitting[0]
    problems = task.sample(CHECKED, torch.Generator().manual_seed(0))
    tokens, targets = task.encode(problems), task.targets(problems)[:, list(layout.targets)]
    for either in (layout, replace(layout, subtracts=True)):
        try:
            answer = either.answer(RIPPLE, tokens)
        except UserError:  # tokens that are not digits
            raise refused from None
        if torch.equal(layout.answer_tokens(answer), targets):
            return either
    raise refused
