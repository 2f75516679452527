"""A decoder whose weights are drawn, not learnt and not tied, on ten-digit addition."""

from __future__ import annotations

import torch

import models
from models.tasks.named.addition import TenDigitAddition
from models.weight_maps.dense import DenseWeights


def dense_model(**switches: object) -> models.ArithmeticTransformer:
    shape = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 6, "d_vocab": 10, "n_ctx": 34}
    weights = DenseWeights(models.TransformerConfig(**(shape | switches)))
    generator = torch.Generator().manual_seed(0)
    for parameter in weights.parameters():
        parameter.data.normal_(generator=generator)
    return models.ArithmeticTransformer(weights, TenDigitAddition())
