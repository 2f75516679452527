"""Seed sweeps: counts with intervals, ranks with power, and the stored results they come from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.families.microadder_ladder import LADDER
from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.run_reader import model_of
from models.training.ten_digit_problems import AdditionProblems, CarryMix
from studies.microadder import studies as microadder
from studies.microadder.metric_fade import MetricFadeProblems
from studies.papers import DATA
from studies.runs import sweeps
from studies.runs.seed_sweeps import (
    compare_variants,
    comparison_table,
    finished,
    seeds_needed,
    sweep_curves,
    sweep_table,
)
from studies.runs.study import Settings
from studies.runs.sweeps import seeds_by_variant
from tests.sampling import every_third

EXPERIMENTS = DATA
STORED = [path for path in sorted(EXPERIMENTS.glob("microadder-*.json")) if "sweeps" in json.loads(path.read_text())]


def row(label: str, best: list[float], grokked: int = 0, **changes: Any) -> dict[str, Any]:
    n = len(best)
    return {
        "label": label,
        "model": "microadder-57",
        "parameters": 57,
        "steps": 60_000,
        "planned": 60_000,
        "seeds": list(range(n)),
        "best_exact": best,
        "token": [0.3 + x / 2 for x in best],
        "first_perfect": [None] * n,
        "on_test": [10_010] * grokked + [10_009] * (n > grokked) + [None] * max(0, n - grokked - 1),
        "n_test": 10_010,
    } | changes


def test_a_seed_groks_when_it_answers_the_whole_test_set_and_not_one_less() -> None:
    assert sweep_curves([row("a", [1.0] * 4, grokked=2)]).grokked("a").correct == 2
    none = sweep_curves([row("a", [0.0] * 16)])
    assert none.grokked("a").interval == pytest.approx((0.0, 0.2059), abs=1e-4)
    assert sweep_table(none).grokked.tolist() == ["0 of 16 (95%: 0-21%)"]


def test_an_unfinished_run_says_so() -> None:
    sweep = sweep_curves([row("a", [0.0], steps=12_000), row("b", [0.5])])
    assert sweep_table(sweep).steps.tolist() == ["12,000 of 60,000", "60,000"]
    assert not finished(sweep, "a") and finished(sweep, "b")


def test_runs_of_one_label_and_other_steps_stay_apart() -> None:
    table = sweep_table(sweep_curves([row("a", [0.25], steps=10), row("a", [0.75], planned=60_000)]))
    assert table.variant.tolist() == ["a", "a"] and table["best exact match"].tolist() == [0.25, 0.75]


def test_ranks_tell_variants_apart_where_counts_cannot() -> None:
    sweep = sweep_curves([row("low", [i / 100 for i in range(16)]), row("high", [0.5 + i / 100 for i in range(16)])])
    found = compare_variants(sweep, "low", "high")
    assert found["superiority"] == 1.0 and found["p_rank"] < 1e-5 and found["p_rate"] == 1.0
    back = compare_variants(sweep, "high", "low")
    assert back["superiority"] == 0.0 and back["p_rank"] == pytest.approx(found["p_rank"])
    assert comparison_table([found, back]).iloc[:, 1].tolist() == [1.0, 0.0]


def test_equal_variants_are_equal() -> None:
    sweep = sweep_curves([row("a", [0.0] * 8), row("b", [0.0] * 8)])
    assert compare_variants(sweep, "a", "b") == {"a": "a", "b": "b", "superiority": 0.5, "p_rank": 1.0, "p_rate": 1.0}
    with pytest.raises(UserError):
        compare_variants(sweep, "a", "c")


def test_closer_rates_need_more_seeds() -> None:
    assert seeds_needed(0.1, 0.6) < seeds_needed(0.1, 0.3) < seeds_needed(0.1, 0.2)
    assert seeds_needed(0.5, 0.7) == seeds_needed(0.7, 0.5) == pytest.approx(93, abs=2)  # Cohen (1988), h = 0.41
    with pytest.raises(UserError, match="Equal rates"):
        seeds_needed(0.1, 0.1)


def test_a_shrunk_recipe_shrinks_its_whole_schedule() -> None:
    small = get_recipe("microadder").shrunk(5)
    assert (small.steps, small.warmup_steps) == (12_000, 200)
    assert isinstance(small.problems, AdditionProblems) and small.problems.carry_mix == CarryMix(0.8, 3_000, 9_000)
    assert small.problems.digit_curriculum == ((400, 3), (1_400, 6))
    metric = Recipe(problems=MetricFadeProblems()).shrunk(5).problems
    assert isinstance(metric, MetricFadeProblems) and (metric.share_at(20_000), metric.share_at(20_001)) == (0.8, 0.0)


def test_the_ladder_s_table_is_the_paper_s_from_the_configurations() -> None:
    rows = microadder.ladder_table()
    assert rows.parameters.tolist() == [one.n_parameters for one in LADDER]
    assert rows.saving.sum() == 242 - 57 and len(rows) == 13
    assert (rows["what changes"].iloc[1:] != "").all()


def test_the_zoo_s_curves_are_a_sweep() -> None:
    stored = sweeps.read_entry_row("microadder-67", "67")
    found = sweep_curves(json.loads(json.dumps([stored])))
    assert (found.grokked("67").n, found.grokked("67").correct) == (64, 1)
    assert sweep_table(found).parameters.tolist() == [67]
    assert float(found.of("67").max()) == 1.0 and float(found.of("67", "token").min()) >= 0
    assert found.of("67").values[:, 0].tolist() == stored["best_exact"]


def test_a_trained_variant_is_read_back(tmp_path: Path) -> None:
    recipe = Recipe(steps=20, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=2)
    settings = Settings(out=tmp_path, seeds=2, progress=False, say=lambda _: None)
    run = sweeps.variant(settings, "tiny", "microadder-57", recipe, "some/run")
    found = sweeps.trained_rows(settings, [run])
    assert [one["label"] for one in found] == ["tiny"] and found[0]["seeds"] == [0, 1]
    assert finished(sweep_curves(found), "tiny")
    assert sweeps.trained_rows(replace(settings, minutes=1e-9), [replace(run, folder=tmp_path / "other")]) == []
    with pytest.raises(UserError, match="small and paper"):
        sweeps.variants(Settings(size="huge"), [("a", "microadder-57")], "x")


def test_rows_of_one_label_are_told_apart_and_no_number_is_said_twice() -> None:
    parameters = row("any", [0.5])["parameters"]
    named = f"{parameters} parameters"
    twice = [row(named, [0.5]), row(named, [0.5]) | {"steps": 7_000}, row("tied", [0.5])]
    labels = list(seeds_by_variant(sweep_curves(twice), "t").layout.yaxis.ticktext)
    assert labels == [f"{named} ({twice[0]['steps']:,} steps)", f"{named} (7,000 steps)", f"tied ({parameters})"]


@pytest.mark.parametrize("path", every_third(STORED), ids=lambda path: path.stem)
def test_stored_results_hold_together(path: Path) -> None:
    data = json.loads(path.read_text())
    assert len(sweep_table(sweep_curves(data["sweeps"]))) == len(data["sweeps"]) > 0
    for one in data["sweeps"]:
        assert len(set(one["seeds"])) == len(one["best_exact"]) == len(one["token"]) == len(one["on_test"])
        if one["model"] in models.names(sweeps=True):  # else of a variant that this version no longer has
            assert one["parameters"] == sum(p.numel() for p in models.build(one["model"]).parameters())
        # Of the zoo's runs the seed that an entry keeps is scored as well, however far it came.
        scored = {None, *(range(one["n_test"]) if one["label"].endswith(" parameters") else ())}
        assert all(
            right in scored or best == 1.0 for right, best in zip(one["on_test"], one["best_exact"], strict=True)
        )
    for stored in data.get("comparisons", []):
        again = compare_variants(sweep_curves(data["sweeps"]), stored["a"], stored["b"])
        assert stored == pytest.approx(again)


def test_a_sweep_keeps_the_weights_of_the_seeds_that_it_reports(tmp_path: Path) -> None:
    recipe = Recipe(steps=4, batch_size=8, eval_every=2, warmup_steps=1, validation_size=16, snapshots=0)
    settings = Settings(out=tmp_path, seeds=2, progress=False, say=lambda _: None)
    run = sweeps.variant(settings, "57", "microadder-57", recipe, "two")
    (fresh,) = sweeps.trained_rows(settings, [run])
    assert fresh["weights"] == {} and sweep_curves([fresh]).grokked("57").correct == 0
    assert len(fresh["curves"]) == 2 and len(fresh["curves"][0]) == len(fresh["curve_steps"]) > 1
    assert fresh["made_with"]["torch"] and fresh["made_with"]["carrylens"]

    # One seed that answers everything: the zoo's numbers put where the run keeps its best.
    folder = RunFolder(run.folder)
    loaded = folder.load_checkpoint()
    assert loaded is not None
    step, tensors, state = loaded
    perfect = models.load("microadder-57")
    flat = torch.cat([p.detach().flatten() for p in perfect.weight_map.parameters()])
    tensors["best_theta"] = torch.stack([flat, tensors["best_theta"][1]])
    state["seeds"][0]["best_exact"] = 1.0
    folder.save_checkpoint(step, tensors, state)
    found = json.loads(json.dumps(sweeps.read_row(run)))
    assert sweep_curves([found]).grokked("57").correct == 1 and list(found["weights"]) == ["0"]
    assert models.score(model_of(found["model"], found["weights"]["0"])).correct == 10_010
