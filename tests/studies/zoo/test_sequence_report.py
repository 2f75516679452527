"""Zoo entries of models of sequences: every seed is scored on the same shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import models
from models.families.position_coupling import SMALL
from models.registry import recipe_of
from models.training import train
from models.training.publish import publish
from models.training.run_folder import RunFolder
from studies.zoo.reports import report_sequences

NAME = "position-coupling-1l4h-d32-small"
RECIPE = recipe_of(NAME).replace(
    steps=6,
    warmup_steps=2,
    batch_size=16,
    eval_every=2,
    validation_size=32,
    snapshots=2,
    problems=SMALL["addition"].replace(longest=2, most=2).training_set,
)


@pytest.mark.slow
def test_publishing_scores_every_seed_on_the_same_shapes_and_stores_half_precision(tmp_path: Path) -> None:
    train(NAME, tmp_path / "run", seeds=2, recipe=RECIPE, progress=False)
    folder, rate = publish([tmp_path / "run"], tmp_path / "entry", report=report_sequences)
    assert rate.n == 1_000
    entry = models.zoo.read_entry(folder)
    seeds = json.loads(models.zoo.entry_file(folder, "seeds.json"))
    assert [len(row["shapes"]) for row in seeds] == [len(entry["score"]["shapes"])] * 2
    assert sum(row["chosen"] for row in seeds) == 1
    loaded = models.load(folder)
    parameters = dict(loaded.weight_map.named_parameters())
    assert all(p.dtype == torch.float32 for p in parameters.values())
    assert all(torch.equal(p, p.half().float()) for p in parameters.values())
    (row,) = [line for line in (folder / "card.md").read_text().splitlines() if line.startswith("| 4, 4 |")]
    assert row.count("(") == 2
    curves, _ = models.files.checkpoint.load_weights(folder / "curves.safetensors")
    lines = RunFolder(tmp_path / "run").metrics()
    assert curves["seed"].tolist() == [0, 1] and curves["step"].tolist() == [line["step"] for line in lines]
    assert curves["exact"].T.tolist() == [pytest.approx(line["exact"]) for line in lines]
