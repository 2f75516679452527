"""Which keys the algorithm of multi-operand addition needs: the ground truth that attention is measured against.

With the scratchpad ``a_1+...+a_m=b_0>b_1>...>b_m$``, the four heads of Theorem 4.1 attend, when they predict digit k of
b_i, to BOS and to exactly these tokens (D.5 of the Position Coupling paper):

    sum      a_i[k], b_{i-1}[k]                      the digits to be added
    carry    a_i[k-1], b_{i-1}[k-1]                  the digits that decide, with b_i[k-1], whether a carry comes in
    arrow    digit k of a_1 ... a_m, b_0 ... b_{i-1}  none are left after the last digit: then ">" or EOS follows
    eos      b_i[k-1] (the query's own token) and a_{i+1}[k-1]    there is no a_{m+1}: the sum is the last one

"sum" and "carry" are ``task.needed_positions``, which are empty for delimiters, b_0 and (carry) units digits. "arrow"
is a superset of "sum", for digits only; "eos" exists for every target. Without the scratchpad, "sum" is the own digit
of *every* operand and "carry" the one before it. The other two then have no counterpart, and neither do they if the
response is written from its most significant digit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from interp.compare.construction import key_sets as general
from interp.compare.construction.key_sets import KeySets
from interp.core.samples import Sample, draw
from interp.core.task_checks import resolve_task
from models.errors import UserError
from models.tasks import MultiOperandAddition
from models.transformer import HookedModel

ROLE_NAMES = {"sum": "digit sum", "carry": "carry", "arrow": "arrow", "eos": "EOS"}


def key_sets(task: MultiOperandAddition) -> KeySets:
    """The key sets of a task's shape. Cost: [target, key] comparisons per role.

    Raises:
        UserError: a format without fixed places.
    """
    found = general.key_sets(task, task.needed_positions)
    step = np.array([_step(task, target) for target in range(len(found.queries))])
    labels = [f"{name} after b{i}" if name == ">" else name for name, i in zip(found.target_labels, step, strict=True)]
    if task.format.scratchpad and task.format.reversed_response:
        layout = task.encode(torch.zeros(1, task.n_operands, task.n_digits, dtype=torch.int64))
        level1, level2 = task.position_ids(layout)[0].numpy().T
        query = list(found.queries)
        after = level1 == level1[query][:, None] + 1  # keys of the significance to be predicted
        own = (level1 == level1[query][:, None]) & (level2 == level2[query][:, None])
        arrow, eos = after & found.visible & (found.column >= 0)[:, None], own & found.visible
        found = replace(found, roles=(*found.roles, "arrow", "eos"), member=np.stack((*found.member, arrow, eos)))
    return replace(found, step=step, target_labels=tuple(labels))


def _step(task: MultiOperandAddition, target: int) -> int:
    """Which running sum a target belongs to; a ">" belongs to the number before it."""
    role = task.target_roles[target]
    if role.kind == "delimiter":
        return int(role.index or 0) - 1
    return task.n_operands if role.index is None else int(role.index)


def draw_coupled(task: MultiOperandAddition, problems: Any, n: int, seed: int) -> Sample:
    """:func:`interp.core.samples.draw`, with the shape of the problems in their provenance."""
    sample = draw(task, problems, n, seed)
    operands, digits = task.shape
    if problems is not None:
        source = f"{sample.provenance.source} ({operands} operands of up to {digits} digits)"
    else:
        source = f"problems of T_A({digits}, {operands})"
    return replace(sample, provenance=replace(sample.provenance, source=source))


def resolve_coupled_task(model: HookedModel, task: Any) -> MultiOperandAddition:
    """The given multi-operand addition, by default the model's own, in its own shape.

    Raises:
        UserError: another task, or one whose tokens have no fixed places.
    """
    found = resolve_task(model, task)
    if not isinstance(found, MultiOperandAddition):
        raise UserError(
            f"These probes know the keys that multi-operand addition needs, not those of {found.name!r}; "
            "pass task=MultiOperandAddition(operands, digits)."
        )
    if not found.has_fixed_layout:
        raise UserError("Without zero padding tokens have no fixed places; these probes need the padded format.")
    return found
