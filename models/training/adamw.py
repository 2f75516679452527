"""AdamW on stacked rows of parameters, one row a seed, each clipped and decayed by itself."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from models.training.recipes import Recipe


class StackedAdamW:
    """``torch.optim.AdamW`` for ``theta`` [seed, parameter], with a gradient clip and a weight decay per seed.

    Rows are independent: a NaN in one stays in that row. Moments are float32, [seed, parameter].
    """

    def __init__(self, theta: Float[Tensor, "seed parameter"], recipe: Recipe, decays: Float[Tensor, " parameter"]):
        self.theta, self.recipe, self.decays = theta, recipe, decays
        self.m, self.v = torch.zeros_like(theta), torch.zeros_like(theta)

    @torch.no_grad()
    def step(
        self,
        grad: Float[Tensor, "seed parameter"],
        step: int,
        weight_decay: Float[Tensor, " seed"],
        active: Bool[Tensor, " seed"],
    ) -> None:
        """Apply step number ``step`` (from 0) to the active rows, in place; the others keep their bits."""
        beta1, beta2 = self.recipe.betas
        lr = self.recipe.lr_at(step)
        norm = grad.norm(dim=1, keepdim=True)
        grad = grad * (self.recipe.grad_clip / (norm + 1e-6)).clamp(max=1.0)
        m = torch.lerp(self.m, grad, 1 - beta1)
        v = self.v * beta2 + grad * grad * (1 - beta2)
        corrected = (v / (1 - beta2 ** (step + 1))).sqrt() + self.recipe.adam_eps
        theta = self.theta * (1 - lr * weight_decay[:, None] * self.decays)
        theta = theta - (lr / (1 - beta1 ** (step + 1))) * m / corrected
        keep = active[:, None]
        for old, new in ((self.theta, theta), (self.m, m), (self.v, v)):
            old.copy_(torch.where(keep, new, old))
