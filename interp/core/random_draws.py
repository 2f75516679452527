"""A model that has learned nothing, of the same shape: the control that asks what the method finds in any network."""

from __future__ import annotations

import copy
from typing import Any

import torch

from interp.core.model import HookedModel
from models.importers.stock import from_transformer_lens
from models.parts.weights import weight_shapes
from models.tasks.base import Task
from models.transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights


def untrained_twin(model: HookedModel, task: Task, seed: int) -> ArithmeticTransformer:
    """The same architecture with fresh parameters, drawn as its recipe draws them.

    A model with nothing to draw (without parameters, or with numbers set by hand) gets Gaussian weights instead, every
    matrix with its own root mean square; a stock TransformerLens model is copied first
    (:func:`models.importers.stock.from_transformer_lens`).

    Raises:
        UserError: a stock model that cannot be copied.
    """
    own = from_transformer_lens(model, task)
    generator = torch.Generator().manual_seed(seed)
    weight_map = copy.deepcopy(own.weight_map).cpu()  # where the generator draws
    weight_map.initialise(generator)
    if not _draws(weight_map, seed):
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


def _draws(weight_map: Any, seed: int) -> bool:
    """Whether another seed gives the weight map's parameters other values."""
    other = copy.deepcopy(weight_map)
    other.initialise(torch.Generator().manual_seed(seed + 1))
    return any(not torch.equal(*pair) for pair in zip(weight_map.parameters(), other.parameters(), strict=True))
