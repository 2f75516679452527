"""Entries of models of text: the lowest seed, scored as stored, with every seed's losses."""

import json
from pathlib import Path

import pytest

import models
from models.errors import UserError
from models.training import train
from models.training.named_recipes import get_recipe
from models.training.publish import publish
from tests.text_at_hand import needs_text

NAME = "addlm-0.8m-float"


@needs_text
def test_a_text_model_is_published_with_its_lowest_seed(tmp_path: Path):
    recipe = get_recipe("addlm-0.8m").replace(steps=2, eval_every=2, batch_size=2, snapshots=1)
    for seed in (1, 0):
        options = {"progress": False, "compile": False, "device": "cpu"}
        train(NAME, tmp_path / f"seed-{seed}", first_seed=seed, recipe=recipe, **options)
    runs = [tmp_path / "seed-1", tmp_path / "seed-0"]
    folder, loss = publish(runs, tmp_path / "entry")
    config = json.loads((folder / "config.json").read_text())
    assert (config["training"]["seed"], config["training"]["seeds_tried"], config["training"]["step"]) == (0, 2, 2)
    assert config["score"]["loss"] == loss.loss == pytest.approx(models.text_loss(models.load(folder)).loss, abs=1e-6)
    seeds = json.loads((folder / "seeds.json").read_text())
    assert [row["seed"] for row in seeds] == [0, 1] and abs(seeds[0]["best_loss"] - loss.loss) < 2e-3
    card = (folder / "card.md").read_text()
    curves, _ = models.files.checkpoint.load_weights(folder / "curves.safetensors")
    assert curves["seed"].tolist() == [1, 0]  # as the runs come
    assert curves["validation_loss"][:, -1].tolist() == pytest.approx([seeds[1]["last_loss"], seeds[0]["last_loss"]])
    assert "821,760" in card and "`steps`: 2 (registered: 2,000)" in card
    with pytest.raises(UserError, match="no such model"):
        publish(runs, tmp_path / "other", repeats=[tmp_path / "seed-1"])
