"""AdamW on stacked rows of parameters, one row per seed, each clipped and decayed by itself."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from models.training.recipes import Recipe

#: Columns that a step takes at a time, so that they stay in a core's cache.
PIECE = 2**16


class StackedAdamW:
    """``torch.optim.AdamW`` for ``theta`` [seed, parameter], with a gradient clip and a weight decay per seed.

    Rows are independent: a NaN in one stays in that row. Moments are float32, [seed, parameter]. Parameters that the
    recipe holds (``held``, for ``recipe.held.steps`` steps) keep their values, while their moments go on.
    """

    def __init__(
        self,
        theta: Float[Tensor, "seed parameter"],
        recipe: Recipe,
        decays: Float[Tensor, " parameter"],
        held: Bool[Tensor, " parameter"] | None = None,
    ):
        self.theta, self.recipe, self.decays, self.held = theta, recipe, decays, held
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
        scale = (self.recipe.grad_clip / (grad.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
        rate, correction = lr / (1 - beta1 ** (step + 1)), 1 - beta2 ** (step + 1)
        decay = lr * weight_decay[:, None]
        hold = self.held is not None and self.recipe.held is not None and step < self.recipe.held.steps
        held = self.theta[:, self.held] if hold else None
        idle = (~active).nonzero().flatten()
        tables = (self.theta, self.m, self.v)
        kept = [table[idle] for table in tables] if len(idle) else []
        for start in range(0, grad.shape[1], PIECE):
            piece = slice(start, start + PIECE)
            theta, m, v = (table[:, piece] for table in tables)
            g = grad[:, piece] * scale
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).add_((g * g).mul_(1 - beta2))
            corrected = (v / correction).sqrt_().add_(self.recipe.adam_eps)
            theta.mul_(1 - decay * self.decays[piece]).sub_((rate * m).div_(corrected))
        for table, rows in zip(tables, kept, strict=False):  # nothing was kept where every row is active
            table[idle] = rows
        if held is not None:
            self.theta[:, self.held] = held
