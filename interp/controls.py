"""Control models: the same architecture with fresh parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch


def untrained_copy(model: Any, seed: int) -> Any | None:
    """The same architecture with fresh parameters; None where there is nothing to draw or no way known to draw it."""
    weight_map = getattr(model, "weight_map", None)
    if weight_map is None or not hasattr(weight_map, "initialise") or not list(weight_map.parameters()):
        return None
    fresh = copy.deepcopy(weight_map)
    fresh.initialise(torch.Generator().manual_seed(seed))
    return type(model)(fresh, model.task, name="untrained")


def untrained_models(model: Any, given: Sequence[Any] | None, count: int, seed: int) -> list[Any]:
    """The control models: those given, else ``count`` untrained copies (none for a model without parameters)."""
    if given is not None:
        return list(given)
    copies = [untrained_copy(model, 1_000 + seed + i) for i in range(count)]
    return [copied for copied in copies if copied is not None]
