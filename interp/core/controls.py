"""Control models: the same architecture with fresh parameters, which have learned nothing.

A copy shows what training adds. A twin shows what the method finds in any network, and exists for every model, even one
whose numbers were set by hand.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from interp.core.model import HookedModel
from models.importers.stock import from_transformer_lens
from models.parts.weights import weight_shapes
from models.tasks.base import Task
from models.transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights


def untrained_copy(model: HookedModel, seed: int) -> Any | None:
    """The same architecture with fresh parameters; None where there is nothing to draw, or no known way to draw it."""
    weight_map = getattr(model, "weight_map", None)
    if weight_map is None or not hasattr(weight_map, "initialise") or not list(weight_map.parameters()):
        return None
    of_class: Any = type(model)
    return of_class(_drawn(weight_map, torch.Generator().manual_seed(seed)), model.task, name="untrained")


def untrained_models(model: HookedModel, given: Sequence[Any] | None, count: int, seed: int) -> list[Any]:
    """The given control models, else ``count`` untrained copies (an empty list for a model without parameters)."""
    if given is not None:
        return list(given)
    copies = [untrained_copy(model, 1_000 + seed + i) for i in range(count)]
    return [copied for copied in copies if copied is not None]


def copies_to_draw(candidates: Sequence[Any], count: int, seed: int) -> tuple[list[Any], int | None]:
    """``count`` untrained copies of the first model whose parameters are drawn at random, and that model's index.

    ([], None) if there is no such model: numbers set by hand are parameters, but the same in every copy.
    """
    for index, model in enumerate(candidates):
        copies = untrained_models(model, None, max(count, 2), seed)
        if copies and _differ(copies[0], copies[1]):
            return copies[:count], index
    return [], None


def untrained_twin(model: HookedModel, task: Task, seed: int) -> ArithmeticTransformer:
    """The same architecture with fresh parameters, drawn as its recipe draws them.

    A model with nothing to draw (without parameters, or with numbers set by hand) gets Gaussian weights instead, with
    the root mean square of each matrix. A stock TransformerLens model is copied first
    (:func:`models.importers.stock.from_transformer_lens`).

    Raises:
        UserError: a stock model that cannot be copied.
    """
    own = from_transformer_lens(model, task)
    generator = torch.Generator().manual_seed(seed)
    on_cpu = copy.deepcopy(own.weight_map).cpu()  # where the generator draws
    weight_map = _drawn(on_cpu, generator)
    if not _differ(weight_map, _drawn(on_cpu, torch.Generator().manual_seed(seed + 1))):
        weights = own.all_weights()
        drawn = {
            key: torch.randn(shape, generator=generator, dtype=torch.float64)
            * weights[key].detach().double().cpu().square().mean().sqrt()
            for key, shape in weight_shapes(own.config).items()
            if key in weights
        }
        weight_map = ConstantWeights(own.config, drawn)
        weight_map.position_limits = own.weight_map.position_limits
    twin = ArithmeticTransformer(weight_map, task, name="untrained twin")
    return twin.to(own.device) if hasattr(own, "device") else twin


def _drawn(weight_map: Any, generator: torch.Generator) -> Any:
    """A copy of a weight map with fresh parameters."""
    fresh = copy.deepcopy(weight_map)
    fresh.initialise(generator)
    return fresh


def _differ(first: Any, second: Any) -> bool:
    return any(not torch.equal(x, y) for x, y in zip(first.parameters(), second.parameters(), strict=True))
