"""A model as the subject of questions that do not depend on its format.

All formats of addition share :class:`~models.tasks.algorithms.ColumnLayout`: for every column of one addition of two
numbers, it says where its two digits stand, and which position predicts its answer digit (its token is the written
digit). Sums of many operands are asked about their last step and, unless a task is given, with two operands, so that
every format adds two numbers.

*Inner* columns are those above the units whose digits vary: each has two digits of its own, two in the previous column,
a written digit, and may receive a carry. Ten-digit formats have nine of them, two-digit sums one (the tens).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core import runs
from interp.core.controls import untrained_twin
from interp.core.model import HookedModel
from interp.core.problems import Sample, draw, membership, resolve_task, right_tokens
from interp.core.sites import model_name, require_evaluation_mode
from models.errors import UserError
from models.part_names import in_block
from models.tasks.algorithms import RIPPLE, ColumnLayout, column_layout
from models.tasks.base import Task
from models.tasks.multi_addition import MultiOperandAddition

#: The places where a query can look, in the order of the figure's bars.
CARRY_HEAVY = 0.5


@dataclass(frozen=True, eq=False)
class ColumnReadings:
    """What a model does at the queries of the inner columns, with the right answer in place.

    ``places`` [n, column, layer, head, place]: attention summed over a place's keys. ``units`` [n, column, layer,
    unit]: ``mlp.hook_pre``, empty without an MLP. ``right`` [n, column]: whether the digit is right.
    """

    places: Float[np.ndarray, "n column layer head place"]
    units: Float[np.ndarray, "n column layer unit"]
    right: Bool[np.ndarray, "n column"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with the task it is asked about. ``n``: problems per question; ``seed`` draws them and the controls."""

    model: HookedModel
    task: Task
    name: str
    n: int
    seed: int
    found: dict[str, Any] = field(default_factory=dict, repr=False)  # results that several questions share

    @cached_property
    def layout(self) -> ColumnLayout:
        """The column layout. Raises UserError for a task that does not add column by column, units first."""
        return column_layout(self.task)

    @cached_property
    def sample(self) -> Sample:
        """The problems: half are uniform, half rich in carry chains."""
        return draw(self.task, None, self.n, self.seed, CARRY_HEAVY)

    @cached_property
    def variables(self) -> Mapping[str, Int[Tensor, "n column"]]:
        """The variables of ripple carry, in every column of the sample."""
        return self.layout.run(RIPPLE, self.sample.tokens)

    @cached_property
    def inner(self) -> list[int]:
        """Columns above the units with two digits that vary. Raises UserError if there are none."""
        total, layout = self.variables["digit_sum"], self.layout
        found = [k for k in range(1, len(layout)) if len(layout.operands[k]) == 2 and int(total[:, k].max()) > 0]
        if not found:
            raise UserError(f"The task {self.task.name!r} has one column with digits in this shape: no carry is used.")
        return found

    @cached_property
    def twin(self) -> Any:
        """The same architecture, untrained."""
        return untrained_twin(self.model, self.task, self.seed)

    @cached_property
    def readings(self) -> ColumnReadings:
        return self.read(self.model)

    @cached_property
    def untrained_readings(self) -> ColumnReadings:
        return self.read(self.twin)

    @cached_property
    def expected(self) -> Int[Tensor, "n column"]:
        """The right digit of every inner column."""
        return self.task.targets(self.sample.problems)[:, [self.layout.targets[k] for k in self.inner]]

    def read(self, model: HookedModel) -> ColumnReadings:
        """Read a model in one forward pass of the sample. Raises UserError if it has diverged."""
        queries = [self.layout.queries[k] for k in self.inner]
        layers, length = range(model.cfg.n_layers), self.sample.tokens.shape[1]
        _, member = membership([self.layout.places(column) for column in self.inner], length)
        places, units, right = [], [], []
        names = [in_block(layer, "attn.hook_pattern") for layer in layers]
        inputs = [in_block(layer, "mlp.hook_pre") for layer in layers if model.cfg.d_mlp]
        for rows, logits, kept in runs.passes(model, self.sample.tokens, keep=[*names, *inputs]):
            pattern = np.stack([kept[name][:, :, queries].float().cpu().numpy() for name in names], 1)
            places.append(np.einsum("nlhqk,qpk->nqlhp", pattern, member.astype(float), optimize=True))
            if inputs:
                units.append(np.stack([kept[name][:, queries].float().cpu().numpy() for name in inputs], 2))
            right.append(right_tokens(logits[:, queries], self.expected[rows]).numpy())
        found = np.concatenate(places)
        if not np.isfinite(found).all():
            raise UserError("An attention weight is not a finite number: the model has diverged.")
        empty = np.zeros((*found.shape[:3], 0))
        return ColumnReadings(found, np.concatenate(units) if units else empty, np.concatenate(right))


def subject(model: HookedModel, task: Any, name: str | None, n: int, seed: int) -> Subject:
    """A model as a subject. Without a ``task`` it is the model's own, with two operands for sums of many.

    Raises:
        UserError: not a hooked model, no task, a task that does not fit, or a model in training mode.
    """
    given, task = task, resolve_task(model, task)
    require_evaluation_mode(model)
    if given is None and isinstance(task, MultiOperandAddition) and task.n_operands > 2:
        task = task.at(2, task.n_digits)
    return Subject(model, task, name or model_name(model), n, seed)
