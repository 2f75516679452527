"""A share of carry-rich problems that follows each seed's accuracy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition
from models.training import train
from models.training.recipes import Recipe
from models.training.ten_digit_problems import AdditionProblems, CarryMix
from models.training.training_batches import TrainingStream
from studies.microadder.metric_fade import MetricFadeProblems
from tests.models.training.edited import theta

CPU, ROWS = torch.device("cpu"), 64
TASK = TenDigitAddition()


@pytest.mark.parametrize(("token", "share"), [(0.0, 0.8), (0.7, 0.8), (0.8, 0.4), (0.9, 0.0), (1.0, 0.0)])
def test_the_share_follows_token_accuracy(token: float, share: float):
    after = MetricFadeProblems().after(token)
    assert after.share_at(20_000) == pytest.approx(share)
    assert after.share_at(100_000) == pytest.approx(share)
    assert after.share_at(100_001) == 0.0  # for good


def test_before_the_first_validation_the_share_is_full():
    assert MetricFadeProblems().share_at(20_000) == 0.8
    assert MetricFadeProblems(carry_mix=CarryMix(0.3, 100_000, 100_001)).share_at(20_000) == 0.3


def test_the_fade_is_each_seed_s_own():
    """Carries go where a seed is good, come back where it falls behind, and leave the other seeds' problems alone."""
    stream = TrainingStream(TASK, MetricFadeProblems(), ROWS, [3, 4], CPU)
    with_carries = stream.batch(20_000)
    stream.observe([0.95, 0.5])
    adapted = stream.batch(20_000)
    plain = TrainingStream(TASK, AdditionProblems(carry_mix=None), ROWS, [3, 4], CPU).batch(20_000)
    for i in (0, 1):  # tokens, targets
        assert torch.equal(adapted[i][0], plain[i][0]) and not torch.equal(adapted[i][0], with_carries[i][0])
        assert torch.equal(adapted[i][1], with_carries[i][1])
    stream.observe([0.5, 0.5])
    assert torch.equal(stream.batch(20_000)[0], with_carries[0])


@pytest.mark.parametrize(("fade", "zero"), [(0.9, 0.7), (-0.1, 0.9), (0.7, 1.1)])
def test_accuracies_that_no_share_can_fade_between_are_refused(fade: float, zero: float):
    with pytest.raises(UserError):
        MetricFadeProblems(fade_token=fade, zero_token=zero)


@pytest.mark.slow
def test_the_fade_survives_a_stop(tmp_path: Path):
    """Shares follow each seed's last validation, which is part of what a checkpoint keeps."""
    recipe = Recipe(steps=60, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=6)
    by_metric = recipe.replace(problems=MetricFadeProblems(fade_token=0.0, zero_token=0.2))

    def trained(name: str, recipe: Recipe, *stops: int | None) -> torch.Tensor:
        for stop in stops:
            train("microadder-57", tmp_path / name, seeds=3, recipe=recipe, progress=False, compile=False, device="cpu",
                  stop_at_step=stop)  # fmt: skip
        return theta(tmp_path / name)

    whole, parts = trained("whole", by_metric, None), trained("parts", by_metric, 30, None)
    assert torch.equal(whole, parts) and not torch.equal(whole, trained("by step", recipe, None))
