"""The second implementation computes what models compute, and finds claims that do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import models
from benchmarks.second_bounds import __main__ as command
from benchmarks.second_bounds.__main__ import held
from benchmarks.second_bounds.ball_forward import BallForward, Overflow
from benchmarks.second_bounds.leaves import LEAVES, Leaf
from models.tasks import formatted
from models.transformer import ArithmeticTransformer
from models.weight_maps import DenseWeights
from tests.interp.proofs.machine.machine_exam import TASKS, random_fields, random_model

pytestmark = pytest.mark.usefixtures("without_shape_checks")
BITS = "benchmarks/provability/models/add-8-bits-0"


@pytest.mark.parametrize("seed", range(8))
def test_leads_in_balls_are_those_of_the_model_in_float64(seed: int) -> None:
    """Of random models with every switch that it has, to the float32 sum of token and position."""
    task = formatted(**TASKS[seed % len(TASKS)])
    model = random_model(task, seed, 0.5, **{"n_layers": 1 + seed % 2, **random_fields(np.random.default_rng(seed))})
    weights = {name: value.detach() for name, value in model.effective_weights().items()}
    exact = ArithmeticTransformer(DenseWeights.holding(model.config, weights).double(), task)
    problems = task.sample(3, torch.Generator().manual_seed(seed))
    tokens, right, query = task.encode(problems), task.targets(problems)[:, 0].tolist(), task.query_positions[0]
    with torch.no_grad():
        logits = exact(tokens)[:, query]
    for row, answer, own in zip(tokens.tolist(), right, logits, strict=True):
        lead = BallForward(model.config, weights).lead(row, query, answer)
        others = torch.cat((own[:answer], own[answer + 1 :]))
        assert float(lead.mid()) == pytest.approx(float(own[answer] - others.max()), abs=1e-4, rel=1e-4)
        assert float(lead.rad()) < 1e-9


def test_what_overflows_in_float32_has_no_lead() -> None:
    model = models.load(BITS)
    weights = {name: value.detach().clone() for name, value in model.effective_weights().items()}
    weights["unembed.W_U"] *= 1e38
    tokens = model.task.encode(model.task.sample(1, torch.Generator().manual_seed(0)))[0].tolist()
    with pytest.raises(Overflow):
        BallForward(model.config, weights).lead(tokens, model.task.query_positions[0], 0)


@pytest.mark.parametrize("name", [BITS, "modular-addition-59"])
def test_no_claim_of_a_certified_model_is_contradicted(name: str) -> None:
    found = held(models.load(name), n=4)
    assert found.contradicted == 0 < found.proved
    assert found.closest >= 0


def test_a_bound_above_a_lead_is_contradicted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.load("modular-addition-59")
    method = command.method_for(model, model.task).name
    honest = held(model, n=2)

    def raised(*asked: Any) -> Iterator[Leaf]:
        return (replace(leaf, bound=leaf.bound + 2 * honest.closest + 1) for leaf in LEAVES[method](*asked))

    monkeypatch.setattr(command, "LEAVES", {method: raised})
    assert held(model, n=2).contradicted > 0
