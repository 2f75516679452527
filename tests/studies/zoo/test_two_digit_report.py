"""Zoo entries of two-digit adders: the seed that knows most training pairs, scored on everything, as stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import models
from interp.probes.learning_curves import learning_curves
from models.errors import UserError
from models.evaluation import score
from models.tasks.named.addition import TwoDigitAddition
from models.training.loop import train
from models.training.named_recipes import get_recipe
from models.training.publish import publish
from models.zoo import read_entry
from studies.zoo.reports import report_two_digit

NAME = "toygpt-none-none"
TINY = get_recipe("toygpt").replace(steps=3, batch_size=8, eval_every=3, validation_size=4, snapshots=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(NAME, folder, seeds=2, recipe=TINY, progress=False, compile=False)
    return folder


@pytest.mark.slow
def test_an_entry_holds_the_best_seed_on_training_pairs_and_says_what_all_of_them_do(run: Path, tmp_path: Path):
    folder, rate = publish([run], out=tmp_path / "entry", report=report_two_digit)
    config, model = read_entry(folder), models.load(folder)
    seeds = json.loads((folder / "seeds.json").read_text())
    best = max(seeds, key=lambda row: row["train"]["correct"])
    assert config["training"]["seed"] == best["seed"] and best["chosen"] and len(seeds) == 2
    assert config["training"]["step"] == 3
    whole = score(model, TwoDigitAddition().domain.every(), method="greedy")
    assert config["score"]["all"] == {"n": 10_000, "correct": whole.correct, "strength": "exhaustive"}
    assert best["digits"] == [whole.per_target[f"s{i}"].correct for i in range(3)]
    assert (rate.n, rate.correct) == (500, score(model).correct)
    card = (folder / "card.md").read_text()
    assert f"{whole.correct:,} of all 10,000" in card and "not a typical one" in card
    assert all(torch.equal(p, p.half().float()) for p in model.parameters())
    assert [row["seed"] for row in seeds] == learning_curves(folder).table.seed.values.tolist() == [0, 1]
    assert (folder / "model.safetensors").stat().st_size < 2_000_000


def test_a_run_that_has_not_reached_the_budget_is_refused(tmp_path: Path):
    train(NAME, tmp_path / "run", recipe=TINY, progress=False, compile=False, stop_at_step=1)
    with pytest.raises(UserError, match="no snapshot after 3 steps"):
        publish([tmp_path / "run"], out=tmp_path / "entry", report=report_two_digit)


@pytest.mark.slow
def test_a_seed_counts_once(run: Path, tmp_path: Path):
    with pytest.raises(UserError, match="counts once"):
        publish([run, run], out=tmp_path / "entry", report=report_two_digit)
