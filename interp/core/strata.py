"""Carry strata: the subsets of problems and targets on which an ablation is judged.

Whole problems are split by ``task.chain_length``: "chain 0", "chain 1", ..., unless all have one length, as those of a
task without chains. Single targets are split by their own column: "carry in" and "no carry in", "carry out" and "no
carry out", and "sum 9, carry in" and "sum 9, no carry in" (columns that pass a carry on, and columns that would but get
none). The carry in is known for every answer digit, including the last one, which is nothing but that carry; the others
only for columns in which operands have digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError
from models.tasks import OWN, Task

ALL = "all"


@dataclass(frozen=True)
class AnswerColumns:
    """Targets that are answer digits: their indices, their columns, and the positions that predict them."""

    targets: list[int]
    columns: list[int]
    queries: list[int]


def answer_columns(task: Task, with_operands: bool = True) -> AnswerColumns:
    """The task's answer digits; ``with_operands``: only those in whose column an operand has a digit."""
    targets = [
        index
        for index, role in enumerate(task.target_roles)
        if role.kind == "answer"
        and role.column is not None
        and (not with_operands or task.relative_roles(index).get(OWN))
    ]
    columns = [task.target_roles[index].column for index in targets]
    return AnswerColumns(targets, [c for c in columns if c is not None], [task.query_positions[i] for i in targets])


def signal_columns(task: Task) -> AnswerColumns:
    """The answer digits that have signals: those in whose column an operand has a digit, or all if there are none.

    Raises:
        UserError: the task's answers have no columns.
    """
    places = answer_columns(task)
    places = places if places.columns else answer_columns(task, with_operands=False)
    if not places.columns:
        raise UserError(f"The answers of task {task.name!r} have no columns, so that no signal is one of a column.")
    return places


def column_variables(task: Task, problems: Any, columns: list[int]) -> dict[str, Int[np.ndarray, "n column"]]:
    """The symbolic algorithm's variables in these columns, as far as they have one value per column."""
    return {
        name: values[:, columns].numpy()
        for name, values in task.variables(problems).items()
        if values.ndim == 2 and values.shape[1] > max(columns)
    }


def carry_strata(task: Task, problems: Any, targets: list[int] | None = None) -> dict[str, Bool[Tensor, "n target"]]:
    """Every stratum that the task's variables allow, as a mask over the problems and the given ``targets``.

    Empty strata are left out. Column strata need carries with one entry per column; tasks that have more (many
    operands) or none get only the strata of whole problems.
    """
    chosen = list(range(len(task.query_positions))) if targets is None else targets
    chain = task.chain_length(problems)
    everything = torch.ones(len(chain), len(chosen), dtype=torch.bool)
    masks: dict[str, Tensor] = {ALL: everything}
    lengths = chain.unique().tolist()
    for length in lengths if len(lengths) > 1 else ():
        masks[f"chain {length}"] = everything & (chain == length)[:, None]
    variables = {name: v for name, v in task.variables(problems).items() if v.ndim == 2}

    def by_target(name: str, with_operands: bool) -> tuple[Tensor, Tensor] | None:
        """(value of a column variable, whether the target has one), [n, target]."""
        if name not in variables:
            return None
        found, width = answer_columns(task, with_operands), variables[name].shape[1]
        column = dict(zip(found.targets, found.columns, strict=True))
        has = [target in column and column[target] < width for target in chosen]
        index = [column[target] if ok else 0 for target, ok in zip(chosen, has, strict=True)]
        return variables[name][:, index].bool(), torch.tensor(has).expand(len(chain), -1)

    masks |= _two_sided("carry in", by_target("carry_in", False))
    masks |= _two_sided("carry out", by_target("carry_out", True))
    nine, carry = by_target("propagate", True), by_target("carry_in", True)
    if nine is not None and carry is not None:
        masks |= _two_sided("carry in", (carry[0], carry[1] & nine[0]), "sum 9, ")
    return {name: mask for name, mask in masks.items() if bool(mask.any())}


def _two_sided(name: str, values: tuple[Tensor, Tensor] | None, before: str = "") -> Mapping[str, Tensor]:
    if values is None:
        return {}
    value, has = values
    return {f"{before}{name}": value & has, f"{before}no {name}": ~value & has}
