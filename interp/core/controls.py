"""Control models: the same architecture with fresh parameters."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from interp.core.model import HookedModel


def untrained_copy(model: HookedModel, seed: int) -> Any | None:
    """The same architecture with fresh parameters; None where there is nothing to draw or no way known to draw it."""
    weight_map = getattr(model, "weight_map", None)
    if weight_map is None or not hasattr(weight_map, "initialise") or not list(weight_map.parameters()):
        return None
    fresh = copy.deepcopy(weight_map)
    fresh.initialise(torch.Generator().manual_seed(seed))
    of_class: Any = type(model)
    return of_class(fresh, model.task, name="untrained")


def untrained_models(model: HookedModel, given: Sequence[Any] | None, count: int, seed: int) -> list[Any]:
    """The control models: those given, else ``count`` untrained copies (none for a model without parameters)."""
    if given is not None:
        return list(given)
    copies = [untrained_copy(model, 1_000 + seed + i) for i in range(count)]
    return [copied for copied in copies if copied is not None]


def copies_to_draw(candidates: Sequence[Any], count: int, seed: int) -> tuple[list[Any], int | None]:
    """``count`` untrained copies of the first of the models that has something to draw, and which it is.

    ([], None) if none has: numbers set by hand are parameters, but the same in every copy.
    """
    for index, model in enumerate(candidates):
        copies = untrained_models(model, None, max(count, 2), seed)
        if copies and _differ(copies[0], copies[1]):
            return copies[:count], index
    return [], None


def _differ(first: Any, second: Any) -> bool:
    return any(not torch.equal(x, y) for x, y in zip(first.parameters(), second.parameters(), strict=True))
