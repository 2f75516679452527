"""What is asked of a model and its task before a question is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from interp.core.thresholds import ABLE
from models.errors import UserError
from models.number_format import in_percent
from models.tasks import NoDomain, Task, require_sound
from models.transformer import HookedModel


def digit_ids(task: Task) -> list[int]:
    """The rows of ``W_E`` that are digits, by value; all rows where the task states no domain."""
    try:
        return list(task.digit_tokens)
    except NoDomain:
        return list(range(task.d_vocab))


def resolve_task(model: HookedModel, task: Any) -> Task:
    """The task to ask about: the one given, else the model's own.

    Raises:
        UserError: not a hooked model, no task, a task whose vocabulary or length is not the model's, a task that cannot
            be as it says it is (:func:`models.tasks.check_task.require_sound`), or a model with dropout in training
            mode.
    """
    for needed in ("run_with_hooks", "cfg"):
        if not hasattr(model, needed):
            raise UserError(f"A {type(model).__name__} is not a model with TransformerLens hooks: it has no {needed}.")
    task = getattr(model, "task", None) if task is None else task
    if task is None:
        raise UserError(
            f"This {type(model).__name__} does not say what its task is; pass task=, for example TenDigitAddition()."
        )
    if not isinstance(task, Task):
        raise UserError(f"task must be a models.tasks Task, not {type(task).__name__}.")
    if task.d_vocab != model.cfg.d_vocab:
        raise UserError(
            f"Task {task.name!r} has {task.d_vocab} tokens and the model {model.cfg.d_vocab}: "
            "it is not the model's task."
        )
    if task.input_length > model.cfg.n_ctx:
        raise UserError(
            f"Task {task.name!r} needs {task.input_length} positions and the model takes {model.cfg.n_ctx}: "
            "it is not the model's task."
        )
    require_sound(task)
    dropout = [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]
    if model.training and (dropout or getattr(model.cfg, "dropout", 0)):
        raise UserError("The model is in training mode and has dropout; call model.eval() first.")
    return task


def require_able(name: str, right: float, what: str) -> None:
    """Refuse to explain what a model does not do: any part of it, and any hypothesis, would restore all of nothing.

    Raises:
        UserError: the share ``right`` of ``what`` is not above :data:`ABLE`.
    """
    if not right > ABLE:
        raise UserError(
            f"{name} answers {in_percent(right)} of {what} right, and this asks how a model does what it does: more "
            f"than {ABLE:.0%} must be right."
        )


def has_chains(task: Task) -> bool:
    """Whether some of a few problems have a carry or a borrow, or digits that are passed over, as in a comparison."""
    try:
        few = task.sample(64, torch.Generator().manual_seed(0))
        named = any(word in name for name in task.variables(few) for word in ("carry", "borrow", "chain"))
        return named and bool(task.chain_length(few).any())
    except UserError:  # no problems to draw, or no variables
        return False


def check_targets(task: Task, targets: Sequence[int] | None) -> list[int]:
    """The given targets, else all of the task's. Raises UserError for one that does not exist."""
    known = len(task.query_positions)
    found = list(range(known)) if targets is None else list(targets)
    if wrong := [target for target in found if not 0 <= target < known]:
        raise UserError(f"There is no target {wrong[0]}; there are {known}, counted from 0.")
    return found
