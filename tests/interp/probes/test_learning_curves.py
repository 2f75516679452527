"""Grok rates and steps are counted from stored curves, whichever way they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import interp
from interp.probes.training_snapshots import snapshots
from models.errors import UserError

STEPS = [500, 1000, 1500]
COUPLED, TEXT = "position-coupling-1l4h-small", "addlm-0.8m"


def test_curves_of_a_run_are_its_metrics(tmp_path: Path):
    with pytest.raises(UserError):
        interp.learning_curves(tmp_path / "none")
    (tmp_path / "config.json").write_text(json.dumps({"first_seed": 4, "model": "adder"}))
    with pytest.raises(UserError):
        interp.learning_curves(tmp_path)
    lines = [{"step": step, "uniform": [0.0, step / 1500]} for step in STEPS]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = interp.learning_curves(tmp_path, what="uniform").of("adder")
    assert curve.seed.values.tolist() == [4, 5] and curve.step.values.tolist() == STEPS
    assert float(curve.sel(seed=5, step=1500)) == 1.0


def test_models_with_other_steps_and_seeds_stand_beside_each_other():
    found = interp.learning_curves(["adder-456", "adder-512"], what="uniform")
    assert [found.rate(model).n for model in found.models] == [32, 16]
    alone = interp.learning_curves("adder-512", what="uniform")
    assert alone.of("adder-512").equals(found.of("adder-512")) and alone.onset("adder-512") == found.onset("adder-512")
    panels = [note.text for note in found.figure().layout.annotations]
    assert panels[:2] == ["adder-456", "adder-512"]
    for bad in ([], ["adder-456", "microadder-57"], "toygpt-learned-pre"):
        with pytest.raises(UserError):
            interp.learning_curves(bad, what="uniform")
    with pytest.raises(UserError):
        found.of("microadder-57")


def test_curves_of_several_runs_are_put_together_by_seed():
    found = interp.learning_curves(COUPLED)
    curve = found.of(COUPLED)
    assert dict(curve.sizes) == {"seed": 8, "step": 25} and not np.isnan(curve.values).any()
    assert not found.by_loss and found.rate(COUPLED).correct == 8
    assert found.chosen[COUPLED] == 7 and found.figure().data[-1].name == "seed 7, in the zoo"


def test_models_of_text_are_followed_by_their_validation_loss():
    found = interp.learning_curves(TEXT)
    assert found.by_loss and found.table.sizes["seed"] == 2
    assert float(found.of(TEXT)[0, -1]) == pytest.approx(2.0315, abs=1e-4)
    assert found.figure().layout.yaxis.title.text == "validation loss"


def test_learning_curves_of_all_seeds_are_where_they_were():
    found = interp.learning_curves("microadder-57")
    assert found.chosen["microadder-57"] == snapshots("microadder-57").seed and found.table.sizes["seed"] == 128
    assert found.grokked("microadder-57").correct == 1 and found.onset("microadder-57") == {93: 46_500}
