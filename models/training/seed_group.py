"""Groups of seeds that are stepped together, with one optimiser and one stream of problems per group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from models.training.adamw import StackedAdamW
from models.training.counter import row_keys
from models.training.data import TrainingStream
from models.training.objective import PerSeed, Theta

if TYPE_CHECKING:
    from models.training.trainer import Trainer


class SeedGroup:
    """Up to ``group_size`` seeds with their slice of the tables, padded to exactly that size."""

    def __init__(self, trainer: Trainer, rows: list[int]):
        self.trainer, self.rows = trainer, rows
        padded = rows + [rows[0]] * (trainer.group_size - len(rows))
        self.index = torch.tensor(padded, device=trainer.device)
        theta = trainer.theta[self.index].clone().requires_grad_()
        self.optimiser = StackedAdamW(theta, trainer.recipe, trainer.decays, trainer.held_until)
        self.optimiser.m.copy_(trainer.moments[0][self.index])
        self.optimiser.v.copy_(trainer.moments[1][self.index])
        seeds = [trainer.states[row].seed for row in padded]
        self.stream = trainer.make_stream(seeds)
        self.losses = torch.full((trainer.group_size,), float("nan"), device=trainer.device)
        self.refresh()

    def refresh(self) -> None:
        """Apply changes of status and weight decay."""
        trainer = self.trainer
        rows = self.index.tolist()
        active = [trainer.states[r].active and i < len(self.rows) for i, r in enumerate(rows)]
        self.active = torch.tensor(active, device=trainer.device)
        self.weight_decay = torch.tensor(
            [trainer.states[r].weight_decay(trainer.recipe) for r in rows], device=trainer.device
        )
        if isinstance(self.stream, TrainingStream):
            self.stream.observe([trainer.states[r].token_uniform for r in rows])

    def step(self, number: int) -> None:
        trainer, theta = self.trainer, self.optimiser.theta
        batch = self.stream.batch(number)
        if trainer.model.config.dropout:  # dropout depends only on (seed, step), as the problems do
            first = trainer.states[self.rows[0]].seed
            torch.manual_seed(int(row_keys(first, number, 1, torch.device("cpu"))))
        losses, grad = self._gradient(theta, batch)
        if (radius := trainer.recipe.sam_radius) is not None:
            uphill = theta.detach() + radius * grad / (grad.norm(dim=1, keepdim=True) + 1e-12)
            _, grad = self._gradient(uphill.requires_grad_(), batch)
        self.losses = losses
        self.optimiser.step(grad, number, self.weight_decay * trainer.recipe.decay_at(number), self.active)

    def _gradient(self, theta: Theta, batch: tuple) -> tuple[PerSeed, Theta]:
        """The seeds' losses on a batch, over all processes, and the gradient of the minimised loss."""
        trainer = self.trainer
        with torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.autocast):
            losses = trainer.objective.loss(trainer.layout.unflatten(theta), *batch)
            penalty = trainer.recipe.l1_penalty
            minimised = losses if penalty is None else losses + penalty * theta.abs().sum(1)
        (grad,) = torch.autograd.grad(minimised.sum(), theta)
        return trainer.share.mean(losses.detach()), trainer.share.mean(grad)

    def write_back(self) -> None:
        n = len(self.rows)
        index = self.index[:n]
        self.trainer.theta[index] = self.optimiser.theta.detach()[:n]
        self.trainer.moments[0][index] = self.optimiser.m[:n]
        self.trainer.moments[1][index] = self.optimiser.v[:n]
