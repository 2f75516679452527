"""What the probes of ten-digit adders require of a model."""

from __future__ import annotations

from typing import Any

from interp.core.model import HookedModel
from interp.core.problems import resolve_task
from models.errors import UserError
from models.tasks.addition import FixedWidthAddition


def adder_task(model: HookedModel, task: Any = None) -> FixedWidthAddition:
    """The model's task, if it adds two ten-digit numbers.

    Raises:
        UserError: another task, no task, no hooks.
    """
    task = resolve_task(model, task)
    if not isinstance(task, FixedWidthAddition):
        raise UserError(f"This probe asks about columns of two ten-digit numbers; {task.name!r} is another task.")
    return task


def only_layer(model: HookedModel) -> None:
    """Raises UserError unless the model has a single layer."""
    if model.cfg.n_layers != 1:
        raise UserError(f"This probe follows the carry through one layer; this model has {model.cfg.n_layers}.")
