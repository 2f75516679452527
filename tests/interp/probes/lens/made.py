"""Small random models that the lens tests share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import models
from models.tasks.named.addition import TwoDigitAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights

SWITCHES: dict[str, dict[str, Any]] = {
    "ln": {"normalization_type": "LN", "act_fn": "gelu_new"},
    "rms": {"normalization_type": "RMS"},
    "rms-gated-rotary": {"gated_mlp": True, "positional_embedding_type": "rotary", "d_head": 6},
    "no-norm": {"normalization_type": None},
    "final-norm-alone": {"norm_placement": "none"},
    "attention-only": {"d_mlp": 0},
}


@cache
def random_model(kind: str, layers: int = 3) -> ArithmeticTransformer:
    """A two-digit adder with random weights, biases and gains."""
    shape = {"n_layers": layers, "d_model": 12, "n_heads": 2, "d_head": 5, "d_mlp": 10, "d_vocab": 10, "n_ctx": 6}
    weights = DenseWeights(models.TransformerConfig(**(shape | SWITCHES[kind])), biases=kind != "rms-gated-rotary")
    generator = torch.Generator().manual_seed(1)
    weights.initialise(generator)
    for parameter in weights.parameters():
        parameter.data += 0.4 * torch.randn(parameter.shape, generator=generator)
    return ArithmeticTransformer(weights, TwoDigitAddition(), name=kind)
