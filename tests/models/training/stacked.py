"""A stack of seeds that are not where they begin, a batch for them, and what a split stream promises."""

from __future__ import annotations

import torch

import models
from models.tasks.named.addition import TenDigitAddition
from models.tasks.task import Task
from models.training.stacked_objective import ParameterLayout
from models.training.ten_digit_problems import AdditionProblems
from models.training.training_batches import TrainingStream

CPU = torch.device("cpu")


def stack(name: str, n: int = 3) -> tuple[models.ArithmeticTransformer, ParameterLayout, torch.Tensor]:
    """A model, its layout, and the parameters of ``n`` seeds, [seed, parameter], each moved a little."""
    model = models.build(name)
    layout = ParameterLayout(model)
    theta = torch.stack([layout.flatten(models.build(name, seed)) for seed in range(n)])
    theta = theta + 0.3 * torch.randn(theta.shape, generator=torch.Generator().manual_seed(0))
    return model, layout, theta.requires_grad_()


def batch(n: int = 3, rows: int = 64, task: Task | None = None):
    """Problems of ten-digit addition for so many seeds."""
    return TrainingStream(task or TenDigitAddition(), AdditionProblems(), rows, list(range(n)), CPU).batch(20_000)


def assert_stream_is_split(model: models.ArithmeticTransformer) -> None:
    """What ``split_stream`` declares, checked on the effective weights."""
    w, t = model.all_weights(), model.weight_map.split_stream
    assert t is not None
    assert torch.all(w["embed.W_E"][:, t:] == 0) and torch.all(w["pos_embed.W_pos"][:, :t] == 0)
    norms = w["embed.W_E"].norm(dim=1)
    torch.testing.assert_close(norms, norms[:1].expand_as(norms))
    for letter, dims in (("Q", slice(0, t)), ("K", slice(0, t)), ("V", slice(t, None))):
        assert torch.all(w[f"blocks.0.attn.W_{letter}"][:, dims] == 0)
