"""Verdicts are held against the model's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import models
from benchmarks.false_certificates import noise as noise_trials
from benchmarks.false_certificates import perturb, random_pairs, wrong_answers
from interp.proofs.listed.prefix_method import certify_prefixes
from models.errors import UserError
from models.evaluation import predict
from tests.interp.proofs.listed.test_prefix_method import file_of


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


@pytest.mark.parametrize("more", ["right", "wrong"])
def test_on_a_small_domain_as_many_are_right_and_wrong_as_were_proved_so(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = file_of(tmp_path)
    found = noise_trials.trial(0, names=(str(path),))
    assert found.agrees and found.status == "refuted" and (found.pairs, 0 < found.wrong < 16) == (16, True)

    def claims_more(*given: Any) -> Any:
        verdict = certify_prefixes(*given)
        assert verdict.right + verdict.wrong == 16
        return verdict.replace(**{more: getattr(verdict, more) + 1})

    monkeypatch.setattr(noise_trials, "certify_prefixes", claims_more)
    assert not noise_trials.trial(0, names=(str(path),)).agrees


def test_a_model_that_the_proof_refuses_is_counted_apart(monkeypatch: pytest.MonkeyPatch):
    def refuses(*given: Any, **how: Any) -> Any:
        raise UserError("refused")

    monkeypatch.setattr(noise_trials, "certify_one_layer", refuses)
    found = noise_trials.trial(0, pairs=10)
    assert (found.status, found.pairs, found.agrees) == ("refused", 0, True)
