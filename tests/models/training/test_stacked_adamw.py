"""Stacked AdamW is torch's AdamW, row by row."""

import pytest
import torch

from models.training.recipes import Recipe
from models.training.stacked_adamw import StackedAdamW

RECIPE = Recipe(steps=100, warmup_steps=10, lr=0.02, weight_decay=0.1, grad_clip=1.0)


def gradients(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    scale = torch.tensor([0.01, 10.0, 1.0])[:, None]  # below, far above and around the clip
    return torch.randn(n, 3, 7, generator=generator) * scale


def run(n: int, active: list[bool], spoil: int | None = None) -> torch.Tensor:
    theta = torch.linspace(-1, 1, 21).view(3, 7).clone()
    optimiser = StackedAdamW(theta, RECIPE, torch.ones(7))
    for step, grad in enumerate(gradients(n)):
        grad = grad.clone()
        if spoil is not None and step == 3:
            grad[spoil] = float("nan")
        optimiser.step(grad, step, torch.full((3,), RECIPE.weight_decay), torch.tensor(active))
    return theta


def test_each_row_follows_torchs_adamw_with_its_own_clip():
    ours = run(20, [True] * 3)
    for row in range(3):
        parameter = torch.nn.Parameter(torch.linspace(-1, 1, 21).view(3, 7)[row].clone())
        optimiser = torch.optim.AdamW([parameter], weight_decay=RECIPE.weight_decay, betas=RECIPE.betas, eps=1e-8)
        for step, grad in enumerate(gradients(20)):
            optimiser.param_groups[0]["lr"] = RECIPE.lr_at(step)
            parameter.grad = grad[row].clone()
            torch.nn.utils.clip_grad_norm_([parameter], RECIPE.grad_clip)
            optimiser.step()
        torch.testing.assert_close(ours[row], parameter.detach(), rtol=1e-5, atol=1e-6)


def test_inactive_rows_keep_their_bits_and_the_others_do_not_notice():
    everyone, without_middle = run(5, [True] * 3), run(5, [True, False, True])
    start = torch.linspace(-1, 1, 21).view(3, 7)
    assert torch.equal(without_middle[1], start[1])
    assert torch.equal(without_middle[[0, 2]], everyone[[0, 2]])


def test_a_nan_stays_in_its_row():
    spoiled, clean = run(6, [True] * 3, spoil=1), run(6, [True] * 3)
    assert spoiled[1].isnan().all()
    assert torch.equal(spoiled[[0, 2]], clean[[0, 2]])


def test_the_learning_rate_warms_up_linearly_and_falls_to_a_tenth_as_a_cosine():
    recipe = Recipe()
    assert recipe.lr_at(0) == pytest.approx(0.02 / 1000)
    assert recipe.lr_at(999) == pytest.approx(0.02) and recipe.lr_at(1000) == pytest.approx(0.02)
    assert recipe.lr_at(30_500) == pytest.approx(0.011)  # half way
    assert recipe.lr_at(60_000) == pytest.approx(0.002)


def test_what_a_recipe_holds_keeps_its_bits_until_its_step_and_the_rest_does_not_notice():
    held = torch.tensor([False, True, False, False, True, False, False])
    theta = torch.linspace(-1, 1, 21).view(3, 7).clone()
    optimiser = StackedAdamW(theta, RECIPE, torch.ones(7), 4 * held.long())
    decay, active = torch.full((3,), RECIPE.weight_decay), torch.tensor([True] * 3)
    for step, grad in enumerate(gradients(6)):
        optimiser.step(grad, step, decay, active)
        unmoved = torch.linspace(-1, 1, 21).view(3, 7)[:, held]
        assert torch.equal(theta[:, held], unmoved) == (step < 4)
    assert torch.equal(theta[:, ~held], run(6, [True] * 3)[:, ~held])
