"""Measures over snapshots: what each measures, when half of a change is made, and what has no trajectory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import interp
import models
from interp.core.estimate import Estimate
from interp.core.probe import find_probe
from interp.core.results import Provenance
from interp.probes.training_dynamics import compute_training_dynamics, training_dynamics
from interp.probes.training_snapshots import snapshots
from models.errors import UserError
from models.evaluation import score
from models.files.checkpoint import write_json_atomic
from models.training.run_folder import RunFolder
from tests.interp.probes.lens.made import random_model

MADE_UP = Provenance(10, 0, "made up")


def trajectory(values, lows=None, highs=None, measure: str = "loss", steps=None):
    """Dynamics of one reading with the given values and intervals."""
    nothing = [float("nan")] * len(values)
    rows = zip(values, lows or nothing, highs or nothing, strict=True)
    readings = [{(measure, ""): Estimate(float(v), float(a), float(b))} for v, a, b in rows]
    steps = steps or [0, *(2**i for i in range(len(values) - 1))]
    return compute_training_dynamics(list(zip(steps, readings, strict=True)), "made up", 7, MADE_UP)


# ---- when half of a change is made


def test_a_measure_that_returns_is_dated_by_the_crossing_that_stays_and_missing_values_are_passed_over():
    again = trajectory([0.0, 0.8, 0.1, 1.0], measure="score").half_way().iloc[0]
    assert (again["after"], again["by"]) == (2, 4)
    loss = trajectory([5.2, 2.0, 4.0, 3.9, 0.1, 0.0]).half_way().iloc[0]  # falls, rises and falls for good
    assert (loss["after"], loss["by"]) == (4, 8)
    beyond = trajectory([0.0, 0.9, 2.0, 1.0], measure="score").half_way().iloc[0]  # beyond its end is not back
    assert (beyond["after"], beyond["by"]) == (0, 1)
    gap = trajectory([float("nan"), 0.0, float("nan"), 0.9, 1.0], measure="score").half_way().iloc[0]
    assert (gap["after"], gap["by"], gap["first"]) == (1, 4, 0.0)


def test_trajectories_need_snapshots_in_order_and_something_measured():
    for readings in ([(0, {("loss", ""): Estimate(1.0)})], [(5, {}), (5, {})], [(5, {}), (3, {})]):
        with pytest.raises(UserError, match="two or more snapshots in order"):
            compute_training_dynamics(readings, "x", 0, MADE_UP)
    with pytest.raises(UserError, match="Nothing was measured"):
        compute_training_dynamics([(0, {}), (1, {})], "x", 0, MADE_UP)


# ---- the measures are the numbers of probes


@pytest.fixture(scope="module")
def grokking():
    names = ["loss", "score", "accuracy_by_chain", "attention_by_role", "weight_norm"]
    return training_dynamics("adder-456", measures=names, n=32, n_per_length=5)


@pytest.mark.slow
def test_the_456_parameter_adder_groks_long_after_its_loss_has_fallen(grokking):
    half = grokking.half_way().set_index("reading").by
    assert half["loss"] < half["score"] and half["attention_by_role"] < half["score"]
    exact = grokking.table.value.sel(reading="score")
    assert exact[0] == 0 and exact[-1] == 1
    assert {f"accuracy_by_chain {k}" for k in range(11)} <= set(grokking.table.reading.values)


def test_the_last_snapshots_readings_are_those_of_its_model():
    found = training_dynamics("microadder-57", measures=["attention_by_role", "weight_norm"], n=32)
    step, model = snapshots("microadder-57").models[-1]
    assert step == found.table.step.values[-1]
    norm = np.sqrt(sum((p.detach().double() ** 2).sum().item() for p in model.parameters()))
    assert float(found.table.value.sel(reading="weight_norm")[-1]) == pytest.approx(norm)
    gap = interp.attention_by_role(model, n=32).mean_gap().value
    assert float(found.table.value.sel(reading="attention_by_role")[-1]) == gap


def test_exact_match_is_that_of_greedy_decoding():
    found = dict(snapshots("adder-456"))
    model = found[21_362]  # some, not all, answers are right by then
    problems = model.task.sample(400, torch.Generator().manual_seed(3))
    reading = interp.score(model, problems=problems).rate()
    assert reading.correct == score(model, problems, method="greedy").correct < 400


def test_the_loss_is_the_mean_cross_entropy_of_the_targets():
    model = random_model("ln")
    problems = model.task.sample(50, torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(model.task.encode(problems))[:, list(model.task.query_positions)]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), model.task.targets(problems).flatten())
    value, low, high = interp.loss(model, problems=problems).table[["loss", "loss_low", "loss_high"]].iloc[0]
    assert value == pytest.approx(float(expected), rel=1e-5) and low < value < high


# ---- where snapshots come from


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of microadder-57 with seeds 5 and 6: two snapshots, of two untrained models and of the stored one."""
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    write_json_atomic(folder.config_path, {"model": "microadder-57", "first_seed": 5, "seeds": 2})
    fresh = [dict(models.build("microadder-57", seed=seed).weight_map.named_parameters()) for seed in (0, 1)]
    stored = dict(models.load("microadder-57").weight_map.named_parameters())
    for step, rows in ((0, fresh), (100, [fresh[0], stored])):
        folder.save_snapshot(step, {key: torch.stack([row[key].detach() for row in rows]) for key in stored})
    return folder.path


def test_a_run_folders_seed_is_followed(run: Path):
    learnt = training_dynamics(run, measures=["score", "weight_norm"], run_seed=6, n=32)
    assert learnt.seed == 6 and learnt.table.value.sel(reading="score").values.tolist() == [0.0, 1.0]
    still = training_dynamics(run, measures="weight_norm", n=32)
    assert still.seed == 5 and still.half_way().by.isna().all()
    with pytest.raises(UserError, match="seeds 5 to 6, not seed 7"):
        training_dynamics(run, run_seed=7)


def test_a_diverged_snapshot_is_a_gap_and_not_the_end(run: Path):
    folder = RunFolder(run)
    tensors = folder.snapshots()[0]
    folder.save_snapshot(50, {key: torch.full_like(value, float("nan")) for key, value in tensors.items()})
    found = training_dynamics(run, measures=["attention_by_role", "circle_fit"], run_seed=6, n=32).table.value
    assert found.sel(step=50).isnull().all() and found.sel(step=100).notnull().all()


def test_entries_without_snapshots_and_other_seeds_are_named(tmp_path: Path):
    with pytest.raises(UserError, match="keeps no snapshots of its training; there are those of adder-456"):
        training_dynamics("toygpt-learned-pre")
    own = snapshots("microadder-57").seed
    with pytest.raises(UserError, match=f"seed {own} alone, not of seed {own + 1}"):
        training_dynamics("microadder-57", run_seed=own + 1)
    with pytest.raises(UserError, match="Did you mean 'adder-456'"):
        training_dynamics("ader-456")
    (tmp_path / "snapshots").mkdir()
    write_json_atomic(tmp_path / "config.json", {"model": "microadder-57", "first_seed": 0, "seeds": 1})
    with pytest.raises(UserError, match="no snapshot yet"):
        training_dynamics(tmp_path)


def test_measures_that_do_not_apply_are_refused_by_name(run: Path):
    with pytest.raises(UserError, match="Did you mean 'loss'"):
        training_dynamics("microadder-57", measures="los")
    with pytest.raises(UserError, match="key_attention does not apply"):
        training_dynamics(run, measures="key_attention")
    with pytest.raises(UserError, match="has no MLP"):
        find_probe("carry_units").number(random_model("attention-only"))
