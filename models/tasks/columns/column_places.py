"""Where the digits of a task that adds or subtracts stand, column by column, for the symbolic algorithms to read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from models.errors import UserError
from models.tasks.columns.addition_algorithms import KNOWN, RIPPLE, Algorithm, ColumnValues, Interventions
from models.tasks.roles import DELIMITERS, OUTPUT, OWN, PREVIOUS, REST
from models.tasks.task import Task

CHECKED = 64  # problems on which ripple carry must give a task's targets


@dataclass(frozen=True, eq=False)
class ColumnPlaces:
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
        return tuple(algorithm for algorithm in KNOWN.values() if self.fits(algorithm))

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
        """Positions of each of :data:`models.tasks.roles.PLACES`. Before the first digit no output was written, and
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


def column_places(task: Task, step: int | None = None) -> ColumnPlaces:
    """Where the columns stand of a task that adds two numbers, or (``step`` = i, by default the last) a_i to a running
    sum b_{i-1}.

    A task that subtracts the second number from the first has one, too. It is found by the roles of the tokens, and
    checked: on a few problems, ripple carry must give the task's targets.

    Raises:
        UserError: a task that does not add or subtract two numbers per step, or writes its answer neither from the
            units nor from the most significant digit; a step that does not exist.
    """
    signed = any(role.kind == "sign" for role in task.target_roles)
    refused = UserError(
        f"The task {task.name!r} does not add or subtract two numbers column by column with a token for every digit."
        + (" It writes a sign, and then the size of the answer." if signed else "")
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
    layout = ColumnPlaces(
        task,
        tuple(tuple(place[*summand, k] for summand in summands if (*summand, k) in place) for k in columns),
        tuple(task.query_positions[asked[k]] for k in columns),
        tuple(asked[k] for k in columns),
        step,
        task.domain.base,
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
