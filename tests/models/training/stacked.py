"""A stack of seeds that are not where they begin."""

from __future__ import annotations

import torch

import models
from models.training.objective import ParameterLayout


def stack(name: str, n: int = 3) -> tuple[models.ArithmeticTransformer, ParameterLayout, torch.Tensor]:
    """A model, its layout, and the parameters of ``n`` seeds, [seed, parameter], each moved a little."""
    model = models.build(name)
    layout = ParameterLayout(model)
    theta = torch.stack([layout.flatten(models.build(name, seed)) for seed in range(n)])
    theta = theta + 0.3 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(0))
    return model, layout, theta.requires_grad_()
