"""Weights that are given instead of learned. There are no Parameters, so the checkpoint is empty."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, require_weights
from models.weight_maps.weight_map import WeightMap


class ConstantWeights(WeightMap):
    """A weight map without parameters: the given weights, in the config's dtype, as non-persistent buffers.

    The model has nothing to train, but attribution patching and ``run_with_cache(incl_bwd=True)`` need gradients with
    respect to activations. They flow only if something in the graph requires a gradient, so :meth:`forward` adds a zero
    that does to every weight. (``requires_grad_()`` is not allowed under ``vmap``, and a buffer that requires one would
    no longer be a leaf after ``.double()``, which ``deepcopy`` refuses.)
    """

    def __init__(self, cfg: TransformerConfig, weights: Mapping[str, Tensor]):
        super().__init__(cfg)
        require_weights(weights, cfg)
        for key, tensor in weights.items():
            self.register_buffer(key.replace(".", "/"), tensor.to(getattr(torch, cfg.dtype)), persistent=False)

    def forward(self) -> Weights:
        weights = {name.replace("/", "."): buffer for name, buffer in self.named_buffers()}
        if not torch.is_grad_enabled():
            return weights
        zero = torch.zeros((), requires_grad=True)  # without axes it changes neither dtype nor device
        return {key: weight + zero for key, weight in weights.items()}

    def initialise(self, generator: torch.Generator) -> None:
        """Nothing to draw: every seed gives the same model."""
