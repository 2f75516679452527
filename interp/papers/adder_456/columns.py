"""What the probes of ten-digit adders share: their task, and activations at the queries that predict answer digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import chunks, resolve_task
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


@torch.no_grad()
def query_patterns(
    model: HookedModel, tokens: Int[Tensor, "n pos"], queries: list[int]
) -> Float[np.ndarray, "n layer head query key"]:
    """Attention rows of some queries, float64."""
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(model.cfg.n_layers)]
    rows = []
    for batch in chunks(tokens, model):
        _, cache = model.run_with_cache(batch, names_filter=lambda name: name in names)
        rows.append(torch.stack([cache[name][:, :, queries] for name in names], 1).double().cpu().numpy())
    return np.concatenate(rows)


@torch.no_grad()
def predictions(
    model: HookedModel, tokens: Int[Tensor, "n pos"], queries: list[int], hooks: list[tuple[str, Any]]
) -> Int[Tensor, "n query"]:
    """The most likely token at some queries, under hooks that treat every batch alike."""
    found = []
    for batch in chunks(tokens, model):
        logits = model.run_with_hooks(batch, fwd_hooks=hooks) if hooks else model(batch)
        found.append(logits[:, queries].argmax(-1).cpu())
    return torch.cat(found)
