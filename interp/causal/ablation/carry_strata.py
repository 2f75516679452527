"""Carry strata: the subsets of problems and targets on which an ablation is judged.

Whole problems are split by ``task.chain_length``: "chain 0", "chain 1", ..., unless all have one length, as those of a
task without chains. Single targets are split by their own column: "carry in" and "no carry in", "carry out" and "no
carry out", and "sum 9, carry in" and "sum 9, no carry in" (columns that pass a carry on, and columns that would but get
none). The carry in is known for every answer digit, including the last one, which is nothing but that carry; the others
only for columns in which operands have digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.core.answer_columns import answer_columns
from models.tasks import Task

ALL = "all"


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
