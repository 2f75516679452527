"""Seeds that are trained as a stack are trained as each alone is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import models
from benchmarks.provability import train, train_stacked
from benchmarks.provability.ordinary_models import ORDINARY, STACKED, OrdinaryModel
from benchmarks.provability.train_stacked import BETAS, DECAY, WARM_UP, Stack

TINY = {"n_layers": 1, "d_model": 8, "d_head": 4, "d_mlp": 0, "normalization_type": None}
RECIPE = OrdinaryModel("tiny", {"induction": {"length": 4, "tokens": 4}}, TINY, steps=300)


def test_a_step_of_a_stack_is_that_of_adamw():
    task, device = RECIPE.made_task(), torch.device("cpu")
    seeds = [(0, 1e-2), (1, 1e-3)]
    stack = Stack.drawn(RECIPE, task, seeds, device)
    theta, gradient = stack.theta.clone(), torch.randn(stack.theta.shape, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        stack.update(gradient)
    for row, (_, rate) in enumerate(seeds):
        free = [torch.nn.Parameter(theta[row].clone()) for _ in (0, 1)]  # decayed, and not
        options = [
            torch.optim.AdamW([p], betas=BETAS, weight_decay=decay) for p, decay in zip(free, (DECAY, 0.0), strict=True)
        ]
        for step in (1, 2, 3):
            for parameter, option in zip(free, options, strict=True):
                parameter.grad = gradient[row]
                cosine = 0.5 + 0.5 * torch.cos(torch.tensor(torch.pi * step / stack.steps))
                option.param_groups[0]["lr"] = rate * step / WARM_UP * float(cosine)
                option.step()
        expected = torch.where(stack.layout.decays.bool(), free[0], free[1])
        torch.testing.assert_close(stack.theta[row], expected.detach(), rtol=0, atol=1e-7)


def test_a_stack_gives_the_logits_of_its_seeds():
    task, device = RECIPE.made_task(), torch.device("cpu")
    stack = Stack.drawn(RECIPE, task, [(0, 1e-2), (7, 1e-2)], device)
    tokens = task.encode(task.sample(16, torch.Generator().manual_seed(0)))
    found = stack.logits(stack.theta, tokens.expand(2, -1, -1), torch.tensor(list(task.query_positions)))
    for row, seed in enumerate((0, 7)):
        own = train.initial(RECIPE, task, seed)(tokens)[:, list(task.query_positions)]
        torch.testing.assert_close(found[row], own)


@pytest.mark.slow
def test_what_is_right_is_kept_with_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"POOL": 512, "VALIDATION": 64, "LAST": 64, "RATES": (1e-2,), "EVERY": 100}.items():
        monkeypatch.setattr(train_stacked, name, value)
    recipe = replace(RECIPE, config=TINY | {"n_layers": 2, "d_model": 16, "d_head": 16, "n_heads": 1})
    monkeypatch.setattr(train_stacked, "STACKED", ((recipe, 2),))
    monkeypatch.setattr(train, "MODELS", tmp_path)
    monkeypatch.setattr(train_stacked, "NOT_LEARNED", tmp_path / "not_learned.json")
    (tmp_path / "not_learned.json").write_text("{}")
    train_stacked.train_all(tmp_path, (), 60.0, torch.device("cpu"))
    train_stacked.keep(tmp_path, (), 3)
    rows = json.loads((tmp_path / "stacked.json").read_text())["tiny"]["rows"]
    right = [row["seed"] for row in rows if row[train_stacked.AFTER] == 0]
    missed = json.loads((tmp_path / "not_learned.json").read_text()).get("tiny", [])
    assert right and sorted(right + [seed for row in missed for seed in row["seeds"]]) == [0, 1]
    for seed in right:
        model = models.load(tmp_path / f"tiny-{seed}")
        problems = model.task.domain.every()
        assert model.task.name == "induction-4-of-4" and len(problems) == model.task.domain.size == 48
        assert (model(problems)[:, -1].argmax(-1) == model.task.targets(problems)[:, 0]).float().mean() > 0.9


def test_stored_models_are_those_of_the_table():
    shapes = {recipe.name for recipe, _ in STACKED}
    stored = [recipe for recipe in ORDINARY if recipe.command]
    assert {recipe.name.rsplit("-", 1)[0] for recipe in stored} <= shapes
    assert all((train.MODELS / recipe.name / "checkpoint.json").exists() for recipe in stored)
