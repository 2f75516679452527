"""AdamW on stacked rows of parameters, one row per seed, each clipped and decayed separately."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.training.recipes import Recipe

#: Columns that a step takes at a time, so that they stay in a core's cache.
PIECE = 2**16


class StackedAdamW:
    """``torch.optim.AdamW`` for ``theta`` [seed, parameter], with a gradient clip and a weight decay per seed.

    Rows are independent: a NaN in one stays in that row. Moments are float32, [seed, parameter]. Before its step
    ``held_until``, a parameter keeps its value while its moments are updated.
    """

    def __init__(
        self,
        theta: Float[Tensor, "seed parameter"],
        recipe: Recipe,
        decays: Float[Tensor, " parameter"],
        held_until: Int[Tensor, " parameter"] | None = None,
    ):
        self.theta, self.recipe, self.decays = theta, recipe, decays
        self.held_until, self.last_held = held_until, 0 if held_until is None else int(held_until.max())
        self.m, self.v = torch.zeros_like(theta), torch.zeros_like(theta)

    @torch.no_grad()
    def step(
        self,
        grad: Float[Tensor, "seed parameter"],
        step: int,
        weight_decay: Float[Tensor, " seed"],
        active: Bool[Tensor, " seed"],
    ) -> None:
        """Apply step number ``step`` (from 0) to the active rows, in place; the others do not change."""
        beta1, beta2 = self.recipe.betas
        lr = self.recipe.lr_at(step)
        scale = (self.recipe.grad_clip / (grad.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
        rate, correction = lr / (1 - beta1 ** (step + 1)), 1 - beta2 ** (step + 1)
        decay = lr * weight_decay[:, None]
        places = self.held_until > step if self.held_until is not None and step < self.last_held else None
        held = None if places is None else self.theta[:, places]
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
            self.theta[:, places] = held
