"""Measures over snapshots: what each measures, when half of a change is made, and what has no trajectory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import models
from interp.core.answers import Answer
from interp.core.results import Provenance
from interp.probes.carry import carry_units
from interp.probes.dynamics import (
    Measure,
    Questions,
    compute_training_dynamics,
    measure_names,
    measure_snapshot,
    measures,
    register_measure,
    snapshots,
    training_dynamics,
)
from models.checkpoint import write_json_atomic
from models.errors import UserError
from models.evaluation import score
from models.tasks.two_digit import TwoDigitAddition
from models.training.run_folder import RunFolder
from tests.interp.probes.lens.made import random_model

MADE_UP = Provenance(10, 0, "made up")


def trajectory(values, lows=None, highs=None, measure: str = "loss", steps=None):
    """Dynamics of one reading with the given values and intervals."""
    nothing = [float("nan")] * len(values)
    rows = zip(values, lows or nothing, highs or nothing, strict=True)
    readings = [{(measure, ""): Answer(float(v), float(a), float(b))} for v, a, b in rows]
    steps = steps or [0, *(2**i for i in range(len(values) - 1))]
    return compute_training_dynamics(list(zip(steps, readings, strict=True)), "made up", 7, MADE_UP)


# ---- when half of a change is made


def test_half_of_the_change_is_made_between_two_snapshots():
    row = trajectory([4.0, 3.9, 3.0, 1.9, 0.0]).half_way().iloc[0]
    assert (row["after"], row["by"], row["first"], row["last"]) == (2, 4, 4.0, 0.0)
    rising = trajectory([0.0, 0.1, 0.5, 1.0], measure="exact").half_way().iloc[0]
    assert (rising["after"], rising["by"]) == (1, 2)  # exactly half counts


def test_a_measure_that_returns_is_dated_by_the_crossing_that_stays_and_missing_values_are_passed_over():
    again = trajectory([0.0, 0.8, 0.1, 1.0], measure="exact").half_way().iloc[0]
    assert (again["after"], again["by"]) == (2, 4)
    loss = trajectory([5.2, 2.0, 4.0, 3.9, 0.1, 0.0]).half_way().iloc[0]  # falls, rises and falls for good
    assert (loss["after"], loss["by"]) == (4, 8)
    beyond = trajectory([0.0, 0.9, 2.0, 1.0], measure="exact").half_way().iloc[0]  # beyond its end is not back
    assert (beyond["after"], beyond["by"]) == (0, 1)
    gap = trajectory([float("nan"), 0.0, float("nan"), 0.9, 1.0], measure="exact").half_way().iloc[0]
    assert (gap["after"], gap["by"], gap["first"]) == (1, 4, 0.0)


def test_what_ends_where_it_began_has_no_half_way():
    assert np.isnan(trajectory([1.0, 5.0, 1.0005]).half_way().by[0])  # within the least change of a loss
    overlapping = trajectory([0.0, 0.02, 0.03], [0.0, 0.0, 0.01], [0.04, 0.05, 0.07], measure="exact")
    assert np.isnan(overlapping.half_way().by[0])
    apart = trajectory([0.0, 0.02, 0.3], [0.0, 0.0, 0.2], [0.04, 0.05, 0.4], measure="exact")
    assert apart.half_way().by[0] == 2
    assert np.isnan(trajectory([1.0, 5.0, 1.0]).half_way().by[0])
    assert np.isnan(trajectory([float("nan"), float("nan")]).half_way().by[0])


def test_the_sentence_names_the_steps_in_order():
    names = ("exact", "loss")
    readings = [
        (step, {(name, ""): Answer(float(value)) for name, value in zip(names, values, strict=True)})
        for step, values in ((0, (0, 2)), (10, (0, 0.5)), (1000, (1, 0)))
    ]
    text = compute_training_dynamics(readings, "toy", 3, MADE_UP).sentence()
    assert text.startswith(
        "toy, seed 3: half of the change over 1,000 steps is made in loss by step 10 (2 to 0); exact"
    )
    assert "exact by step 1,000 (0 to 1) (snapshots: 3)" in text


def test_the_title_names_what_changes_first_and_last():
    readings = [
        (step, {("exact", ""): Answer(float(one)), ("loss", ""): Answer(float(other))})
        for step, one, other in ((0, 0, 2), (10, 0, 0.5), (1000, 1, 0))
    ]
    found = compute_training_dynamics(readings, "toy", 3, MADE_UP)
    assert found.headline() == (
        "toy, seed 3: half of the change is made in loss (by step 10) first, in exact (by step 1,000) last"
    )
    assert trajectory([0.0, 1.0], measure="exact").headline().endswith("is made in exact (by step 1)")
    together = [(step, {("exact", ""): Answer(step), ("loss", ""): Answer(2 - 2 * step)}) for step in (0.0, 1.0)]
    tied = compute_training_dynamics([(int(step), found) for step, found in together], "toy", 3, MADE_UP).headline()
    assert "exact and loss" in tied and "first" not in tied
    still = trajectory([1.0, 1.0])
    assert still.headline() == "made up, seed 7: no measure changes"


def test_the_provenance_says_whether_chains_are_planted_or_sorted(run):
    found = training_dynamics(run, measures="weight_norm", n=32, n_per_length=9)
    assert str(found.provenance).startswith("sampled: n = 32 uniform problems and 9 of each chain length")
    assert not Questions(TwoDigitAddition()).plants_chains


def test_trajectories_need_snapshots_in_order_and_something_measured():
    for readings in ([(0, {("loss", ""): Answer(1.0)})], [(5, {}), (5, {})], [(5, {}), (3, {})]):
        with pytest.raises(UserError, match="two or more snapshots in order"):
            compute_training_dynamics(readings, "x", 0, MADE_UP)
    with pytest.raises(UserError, match="Nothing was measured"):
        compute_training_dynamics([(0, {}), (1, {})], "x", 0, MADE_UP)


# ---- the measures


@pytest.fixture(scope="module")
def grokking():
    return training_dynamics(
        "adder-456", measures=["loss", "exact", "chain", "attention_gap", "weight_norm"], n=64, n_per_length=20
    )


def test_the_456_parameter_adder_groks_long_after_its_loss_has_fallen(grokking):
    half = grokking.half_way().set_index("reading").by
    assert half["loss"] < half["exact"] and half["attention_gap"] < half["exact"]
    exact = grokking.table.value.sel(reading="exact")
    assert exact[0] == 0 and exact[-1] == 1
    assert {f"chain {k}" for k in range(11)} <= set(grokking.table.reading.values)


def test_the_last_snapshots_readings_are_those_of_its_model(grokking):
    step, model = snapshots("adder-456").models[-1]
    assert step == grokking.table.step.values[-1]
    norm = np.sqrt(sum((p.detach().double() ** 2).sum().item() for p in model.parameters()))
    assert float(grokking.table.value.sel(reading="weight_norm")[-1]) == pytest.approx(norm)
    questions = Questions(model.task, 64, 20)
    for length, problems in questions.by_chain.items():
        assert (model.task.chain_length(problems) == length).all() and len(problems) == 20


def test_exact_match_is_that_of_greedy_decoding():
    found = dict(snapshots("adder-456"))
    step = 26_936  # most, not all, answers are right by then
    questions = Questions(found[step].task, 400)
    reading = measure_snapshot(found[step], questions, ["exact"])["exact", ""]
    greedy = score(found[step], questions.uniform.problems)
    assert reading.value == greedy.correct / 400 and reading.low <= reading.value <= reading.high


def test_the_loss_is_the_mean_cross_entropy_of_the_targets():
    model = random_model("ln")
    questions = Questions(model.task, 50)
    problems = questions.uniform.problems
    with torch.no_grad():
        logits = model(model.task.encode(problems))[:, list(model.task.query_positions)]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), model.task.targets(problems).flatten())
    reading = measure_snapshot(model, questions, ["loss"])["loss", ""]
    assert reading.value == pytest.approx(float(expected), rel=1e-5) and reading.low < reading.value < reading.high


def test_unit_separation_is_the_best_units_of_the_carry_probe():
    model = models.load("microadder-57")
    questions = Questions(model.task, 256)
    ours = measure_snapshot(model, questions, ["unit_separation"])
    table = carry_units(model, problems=questions.uniform.problems, max_ablated=0).table
    for signal, name in (("carry_out", "carry out"), ("carry_in", "carry in")):
        theirs = float(table.auroc_apart.sel(signal=signal).max())
        assert ours["unit_separation", name].value == pytest.approx(theirs, abs=1e-6)
    assert ours["unit_separation", "carry out"].value > 0.99


def test_a_perfect_arc_has_no_distance_from_itself():
    model = models.load("microadder-57")  # its digits are an arc by construction
    found = measure_snapshot(model, Questions(model.task, 8), ["arc_residual", "arc_radius"])
    assert found["arc_residual", ""].value < 1e-5
    centred = (model.W_E - model.W_E.mean(0)).detach()
    assert found["arc_radius", ""].value > float(centred.norm(dim=1).mean()) / 2


def test_tasks_without_planted_chains_sort_their_own_problems():
    questions = Questions(TwoDigitAddition(), 600, 20)
    assert set(questions.by_chain) == {0, 1, 2} and all(len(each) == 20 for each in questions.by_chain.values())


def test_a_measure_can_be_added_and_has_one_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measures, "_MEASURES", dict(measures._MEASURES))
    extra = Measure("biggest", "largest parameter", lambda model, q: {"": Answer(1.0)}, 0.1)
    register_measure(extra)
    assert measure_names()[-1] == "biggest"
    model = models.load("microadder-57")
    assert measure_snapshot(model, Questions(model.task), ["biggest"]) == {("biggest", ""): Answer(1.0)}
    with pytest.raises(UserError, match="registered already"):
        register_measure(extra)


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
    learnt = training_dynamics(run, measures=["exact", "weight_norm"], run_seed=6, n=32)
    assert learnt.seed == 6 and learnt.table.value.sel(reading="exact").values.tolist() == [0.0, 1.0]
    still = training_dynamics(run, measures="weight_norm", n=32)
    assert still.seed == 5 and still.half_way().by.isna().all()
    with pytest.raises(UserError, match="seeds 5 to 6, not seed 7"):
        training_dynamics(run, run_seed=7)


def test_a_diverged_snapshot_is_a_gap_and_not_the_end(run: Path):
    folder = RunFolder(run)
    tensors = folder.snapshots()[0]
    folder.save_snapshot(50, {key: torch.full_like(value, float("nan")) for key, value in tensors.items()})
    found = training_dynamics(run, measures=["attention_gap", "arc_radius", "exact"], run_seed=6, n=32).table.value
    assert found.sel(step=50, reading=["attention_gap", "arc_radius"]).isnull().all()
    assert found.sel(step=50, reading="exact") == 0 and found.sel(step=100).notnull().all()


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


def test_measures_that_do_not_apply_are_left_out_with_a_reason_or_refused_by_name():
    with pytest.raises(UserError, match="Did you mean 'loss'"):
        training_dynamics("microadder-57", measures="los")
    model = random_model("attention-only")
    with pytest.raises(UserError, match="has no MLP"):
        measure_snapshot(model, Questions(model.task), ["unit_separation"])
    with pytest.raises(UserError, match="n_per_length must be at least 1"):
        Questions(model.task, n_per_length=0)


# ---- as before, and the pictures


def test_the_figure_has_a_panel_a_measure_over_one_axis_of_steps(grokking):
    figure = grokking.figure()
    panels = [annotation.text for annotation in figure.layout.annotations]
    assert len(panels) == 5 and "attention gap (nats)" in panels
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == 15  # eleven chain lengths and one of each other
    assert all(np.array_equal(trace.x, lines[0].x) for trace in lines) and (lines[0].x > 0).all()
