"""Below 57 parameters by continuation: what needs no training, who is carried on, and what is stored."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch

import models
from interp.papers.microadder.continued import first_perfect
from interp.papers.studies import Settings, reproduce
from models.microadder_continued import CONTINUED, SMALLEST, TRIED
from models.training import train
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from tests.models.training.edited import edit_checkpoint, plant


def test_every_step_has_fewer_numbers_than_the_one_before() -> None:
    assert all(a.n_parameters > b.n_parameters and b.before == a.name for a, b in pairwise(CONTINUED))
    assert all(step.n_parameters < SMALLEST.n_parameters and step.before == SMALLEST.name for step in TRIED)


def test_without_time_the_page_has_the_steps_that_need_no_training(tmp_path: Path) -> None:
    said: list[str] = []
    settings = Settings(out=tmp_path, minutes=1e-9, problems=20, progress=False, say=said.append)
    page = reproduce("microadder:continued", settings)
    assert page is not None and "Out of time" in said[-1]
    data = page.data
    assert data["smallest"] == 51 and data["sweeps"] == []
    assert data["text"] in [section.text for section in page.sections]
    assert [row["right before training"] == "10,010 of 10,010" for row in data["steps"]] == [True, True, False]


def test_the_seed_that_was_perfect_first_is_carried_on(tmp_path: Path, monkeypatch) -> None:
    """Three seeds around a trained model, held still; the first is spoiled and the others are planted perfect later."""
    trained = models.load("microadder-57")
    recipe = Recipe(steps=30, batch_size=32, eval_every=10, validation_size=64, snapshots=1, lr=1e-9, weight_decay=0.0)
    perfect = torch.cat([p.detach().reshape(-1) for p in trained.parameters()])
    plant(monkeypatch, [1, 2], perfect)
    train("microadder-57", tmp_path / "run", 3, recipe=recipe, device="cpu", compile=False, progress=False)
    edit_checkpoint(tmp_path / "run", lambda entry: entry["state"]["seeds"][1].update(first_perfect_step=30))
    _, tensors, _ = RunFolder(tmp_path / "run").load_checkpoint()
    found = first_perfect(tmp_path / "run", models.build("microadder-57"))
    assert found is not None
    assert torch.equal(torch.cat([p.reshape(-1) for p in found.parameters()]), tensors["best_theta"][2])
    edit_checkpoint(tmp_path / "run", lambda entry: [seed.update(best_exact=0.5) for seed in entry["state"]["seeds"]])
    assert first_perfect(tmp_path / "run", models.build("microadder-57")) is None
