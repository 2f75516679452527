"""Verdicts are held against the model's own answers."""

from __future__ import annotations

import pytest
import torch

import models
from interp.proofs.trials import perturb, random_pairs, wrong_answers
from models.evaluation import predict


@pytest.mark.parametrize("noise", [0.0, 3e-3])
def test_the_faster_forward_finds_the_models_own_wrong_answers(noise: float):
    model = models.load("microadder-57")
    perturb(model, noise, "none", seed=2)
    pairs = random_pairs(2000, seed=2)
    own = (predict(model, pairs) != model.task.targets(pairs)).any(1)
    assert own.any() == (noise > 0) and not own.all()
    assert torch.equal(wrong_answers(model, pairs), own)


def test_a_pair_that_leads_to_nan_is_wrong():
    model = models.load("microadder-57")
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    assert wrong_answers(model, random_pairs(10, seed=0)).all()
