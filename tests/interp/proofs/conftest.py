"""Models that the certifier's tests share: free weights that compute what a zoo model computes, and small changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch

import models
from models.tasks.sequences import SequenceTask
from models.transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights


@cache
def zoo(name: str) -> ArithmeticTransformer:
    return models.load(name)


def dense(name: str, change: Callable[[dict[str, torch.Tensor]], None] | None = None) -> ArithmeticTransformer:
    """A zoo model's effective weights as free parameters, changed in place by ``change``."""
    model = zoo(name)
    free = ArithmeticTransformer(DenseWeights(model.config), model.task, name=f"free {name}")
    with torch.no_grad():
        weights = {key: value.clone() for key, value in model.effective_weights().items()}
        if change is not None:
            change(weights)
        for key, parameter in free.weight_map.named_parameters():
            parameter.copy_(weights.get(key.replace("/", "."), torch.zeros_like(parameter)))
    return free


def in_shape(model: ArithmeticTransformer, *shape: int) -> SequenceTask:
    """The model's task in another shape."""
    assert isinstance(model.task, SequenceTask)
    return model.task.at(*shape)


@cache
def two_heads() -> ArithmeticTransformer:
    """The zoo's adder-456 with a second head that attends elsewhere and writes a little."""
    one = zoo("adder-456")
    config = replace(one.config, n_heads=2)
    model = ArithmeticTransformer(DenseWeights(config), one.task, name="two heads")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        weights = {key: value.clone() for key, value in one.effective_weights().items()}
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            first = weights[f"blocks.0.attn.{name}"]
            second = torch.randn(first.shape, generator=generator) * (0.003 if name == "W_O" else 0.3)
            weights[f"blocks.0.attn.{name}"] = torch.cat((first, second))
        for key, parameter in model.weight_map.named_parameters():
            parameter.copy_(weights.get(key.replace("/", "."), torch.zeros_like(parameter)))
    return model
