"""Grok rates and steps are counted from stored curves, whichever way they are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from interp.core.results import Provenance
from interp.probes.grokking import GrokkingComparison, curve_of_entry, curve_of_run
from models.errors import UserError

STEPS = [500, 1000, 1500]


def compared(*rows: list[float]) -> GrokkingComparison:
    curve = xr.DataArray(np.array(rows), dims=("seed", "step"), coords={"seed": range(len(rows)), "step": STEPS})
    return GrokkingComparison({"adder": curve}, Provenance(10, 0, "problems"))


def test_a_seed_has_grokked_when_it_was_once_perfect():
    result = compared([0.0, 1.0, 0.9], [0.0, 0.999, 0.5], [1.0, 1.0, 1.0], [0.0, np.nan, np.nan])
    assert result.first_steps("adder") == {0: 1000, 2: 500}
    assert (result.rate("adder").correct, result.rate("adder").n) == (2, 4)
    (row,) = result.to_dataframe().to_dict("records")
    assert (row["first step"], row["median step"], row["latest step"]) == (500, 750, 1000)
    assert row["low"] == pytest.approx(0.0676, abs=1e-3) and row["high"] == pytest.approx(0.9324, abs=1e-3)
    assert "2 of 4 seeds grok" in result.sentence() and len(result.figure().data) == 4


def test_nobody_grokking_is_a_result_too():
    result = compared([0.0, 0.1, 0.2])
    assert result.first_steps("adder") == {} and "0 of 1 seeds grok" in result.sentence()
    assert result.to_dataframe()["first step"].item() == "–"


def test_curves_of_a_run_are_its_metrics(tmp_path: Path):
    with pytest.raises(UserError, match="no validation results"):
        curve_of_run(tmp_path / "none")
    (tmp_path / "config.json").write_text(json.dumps({"first_seed": 4}))
    lines = [{"step": step, "uniform": [0.0, step / 1500]} for step in STEPS]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = curve_of_run(tmp_path)
    assert curve.seed.values.tolist() == [4, 5] and curve.step.values.tolist() == STEPS
    assert float(curve.sel(seed=5, step=1500)) == 1.0


def test_an_entry_whose_runs_did_not_record_uniform_problems_apart_is_refused():
    with pytest.raises(UserError, match="uniform problems apart"):
        curve_of_entry("microadder-57")


def test_the_stored_456_holds_all_its_seeds():
    curve = curve_of_entry("adder-456")
    assert curve.sizes["seed"] >= 32
    result = GrokkingComparison({"adder-456": curve}, Provenance(5_000, 0, "problems"))
    assert 0 < result.rate("adder-456").correct < result.rate("adder-456").n
