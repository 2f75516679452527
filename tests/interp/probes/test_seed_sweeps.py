"""Seed sweeps: counts with intervals, ranks with power, and the stored results they come from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import models
from interp.figures.seed_sweeps import seeds_by_variant
from interp.papers.microadder import studies as microadder
from interp.papers.studies import Settings, sweeps
from interp.probes.seed_sweeps import SeedSweep, compare, seeds_needed, table
from models.errors import UserError
from models.microadder_ladder import LADDER
from models.training.addition_problems import AdditionProblems, CarryMix, MetricCarryMix
from models.training.recipes import Recipe, get_recipe
from models.training.run_folder import RunFolder

EXPERIMENTS = Path(microadder.__file__).parents[2] / "data" / "experiments"
STORED = [path for path in sorted(EXPERIMENTS.glob("microadder-*.json")) if "sweeps" in json.loads(path.read_text())]


def sweep(label: str, best: list[float], grokked: int = 0, **changes: object) -> SeedSweep:
    n = len(best)
    made = SeedSweep(
        label=label,
        model="microadder-57",
        parameters=57,
        steps=60_000,
        planned=60_000,
        seeds=tuple(range(n)),
        best_exact=tuple(best),
        token=tuple(0.3 + x / 2 for x in best),
        first_perfect=(None,) * n,
        on_test=(10_010,) * grokked + (10_009,) * (n > grokked) + (None,) * max(0, n - grokked - 1),
        n_test=10_010,
    )
    return replace(made, **changes)


def test_a_seed_groks_when_it_answers_the_whole_test_set_and_not_one_less() -> None:
    assert sweep("a", [1.0] * 4, grokked=2).grokked == 2
    assert sweep("a", [0.0] * 16).interval == pytest.approx((0.0, 0.2059), abs=1e-4)
    assert sweep("a", [0.0] * 16).row()["grokked"] == "0 of 16 (95%: 0-21%)"


def test_an_unfinished_run_says_so() -> None:
    assert sweep("a", [0.0], steps=12_000).row()["steps"] == "12,000 of 60,000"
    assert not sweep("a", [0.0], steps=12_000).finished


def test_ranks_tell_variants_apart_where_counts_cannot() -> None:
    low, high = sweep("low", [i / 100 for i in range(16)]), sweep("high", [0.5 + i / 100 for i in range(16)])
    found = compare(low, high)
    assert found.superiority == 1.0 and found.p_rank < 1e-5 and found.p_rate == 1.0
    back = compare(high, low)
    assert back.superiority == 0.0 and back.p_rank == pytest.approx(found.p_rank)


def test_equal_variants_are_equal() -> None:
    found = compare(sweep("a", [0.0] * 8), sweep("b", [0.0] * 8))
    assert (found.superiority, found.p_rank, found.p_rate) == (0.5, 1.0, 1.0)
    with pytest.raises(UserError, match="without seeds"):
        compare(sweep("a", []), sweep("b", [0.0]))


def test_closer_rates_need_more_seeds() -> None:
    assert seeds_needed(0.1, 0.6) < seeds_needed(0.1, 0.3) < seeds_needed(0.1, 0.2)
    assert seeds_needed(0.5, 0.7) == seeds_needed(0.7, 0.5) == pytest.approx(93, abs=2)  # Cohen (1988), h = 0.41
    with pytest.raises(UserError, match="Equal rates"):
        seeds_needed(0.1, 0.1)


def test_a_shrunk_recipe_shrinks_its_whole_schedule() -> None:
    small = sweeps.shrunk(get_recipe("microadder"), 5)
    assert (small.steps, small.warmup_steps) == (12_000, 200)
    assert isinstance(small.problems, AdditionProblems) and small.problems.carry_mix == CarryMix(0.8, 3_000, 9_000)
    assert small.problems.digit_curriculum == ((400, 3), (1_400, 6))
    metric = Recipe(problems=AdditionProblems(carry_mix=MetricCarryMix()))
    assert sweeps.shrunk(metric, 5).problems.carry_mix.last_step == 20_000


def test_the_ladder_s_table_is_the_paper_s_from_the_configurations() -> None:
    rows = microadder.ladder_table()
    assert rows.parameters.tolist() == [one.n_parameters for one in LADDER]
    assert rows.saving.sum() == 242 - 57 and len(rows) == 13
    assert (rows["what changes"].iloc[1:] != "").all()


def test_the_zoo_s_curves_are_a_sweep() -> None:
    found = sweeps.read_entry_sweep("microadder-67", "67")
    assert (found.n, found.grokked, found.parameters) == (64, 1, 67)
    assert max(found.best_exact) == 1.0 and all(0 <= token <= 1 for token in found.token)
    assert SeedSweep.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_trained_arm_is_read_back(tmp_path: Path) -> None:

    recipe = Recipe(steps=20, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=2)
    arm = sweeps.Arm("tiny", "microadder-57", recipe, "some/arm")
    found = sweeps.train_arms(Settings(out=tmp_path, progress=False, say=lambda _: None), [arm], 2)
    assert [one.label for one in found] == ["tiny"] and found[0].finished and found[0].seeds == (0, 1)
    none = sweeps.train_arms(Settings(out=tmp_path / "other", minutes=1e-9, say=lambda _: None), [arm], 2)
    assert none == []
    with pytest.raises(UserError, match="small and full"):
        sweeps.arms_of(Settings(size="huge"), [("a", "microadder-57")], "x")


def test_pictures_show_every_seed_twice() -> None:
    figure = seeds_by_variant([sweep("a", [0.1, 0.9]), sweep("b", [0.2])], "Title")
    assert sorted(len(trace.x) for trace in figure.data) == [1, 1, 2, 2]


def test_rows_of_one_label_are_told_apart_and_no_number_is_said_twice() -> None:
    parameters = sweep("100 parameters", [0.5]).parameters
    named = f"{parameters} parameters"
    twice = [sweep(named, [0.5]), replace(sweep(named, [0.5]), steps=7_000), sweep("tied", [0.5])]
    labels = list(seeds_by_variant(twice, "t").layout.yaxis.ticktext)
    assert labels == [f"{named} ({twice[0].steps:,} steps)", f"{named} (7,000 steps)", f"tied ({parameters})"]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_stored_results_hold_together(path: Path) -> None:
    data = json.loads(path.read_text())
    sweeps = [SeedSweep.from_dict(one) for one in data["sweeps"]]
    assert sweeps and len(table(sweeps)) == len(sweeps)
    by_label = {one.label: one for one in sweeps}
    for one in sweeps:
        assert one.n == len(set(one.seeds)) == len(one.best_exact) == len(one.token) == len(one.on_test)
        assert one.parameters == sum(p.numel() for p in models.build(one.model).parameters())
        assert all(right is None or best == 1.0 for right, best in zip(one.on_test, one.best_exact, strict=True))
    for stored in data.get("comparisons", []):
        again = compare(by_label[stored["a"]], by_label[stored["b"]])
        assert stored == pytest.approx(again.__dict__)


def test_a_sweep_keeps_the_weights_of_the_seeds_that_it_reports(tmp_path: Path) -> None:
    recipe = Recipe(steps=4, batch_size=8, eval_every=2, warmup_steps=1, validation_size=16, snapshots=0)
    arm = sweeps.Arm("57", "microadder-57", recipe, "two")
    settings = Settings(out=tmp_path, progress=False, say=lambda _: None)
    (fresh,) = sweeps.train_arms(settings, [arm], 2)
    assert fresh.weights == {} and fresh.grokked == 0
    assert len(fresh.curves) == 2 and len(fresh.curves[0]) == len(fresh.curve_steps) > 1
    assert fresh.made_with["torch"] and fresh.made_with["carrylens"]
    with pytest.raises(UserError):
        fresh.model_of(0)

    # One seed that answers everything: the zoo's numbers put where the run keeps its best.
    folder = RunFolder(sweeps.folder_of(settings, arm))
    loaded = folder.load_checkpoint()
    assert loaded is not None
    step, tensors, state = loaded
    perfect = models.load("microadder-57")
    flat = torch.cat([p.detach().flatten() for p in perfect.weight_map.parameters()])
    tensors["best_theta"] = torch.stack([flat, tensors["best_theta"][1]])
    state["seeds"][0]["best_exact"] = 1.0
    folder.save_checkpoint(step, tensors, state)
    found = SeedSweep.from_dict(json.loads(json.dumps(sweeps.read_arm(folder.path, arm).to_dict())))
    assert found.grokked == 1 and list(found.weights) == ["0"]
    assert models.score(found.model_of(0)).correct == 10_010
