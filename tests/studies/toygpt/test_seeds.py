"""Seeds and budgets compared, and the experiments that make ToyGPT's tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import models
from models.errors import UserError
from models.training.named_recipes import get_recipe
from models.training.run_folder import RunFolder
from studies.runs.study import Settings, reproduce
from studies.runs.training_runs import OutOfTime, TrainingRun, train_all
from studies.toygpt.seeds import budget_table, largest_gap, orderings, over_seeds, seed_curves
from studies.toygpt.studies import BEST, POSITIONS, claims, measured, runs_of

VARIANTS = {"x": "X", "y": "Y"}
RIGHT = {
    "x": {1_000: (490, 480, 500), 5_000: (500, 500)},
    "y": {1_000: (480, 485, 50), 5_000: (500, 495)},
}
ROWS = [
    {"model": model, "seed": seed, "step": step, "test": test, "train": 9_000.0}
    for model, tests in RIGHT.items()
    for step, right in tests.items()
    for seed, test in enumerate(right)
]
LOSSES = [{"model": m, "seed": s, "step": 25 * i, "loss": 1.0 / (i + 1)} for m in "xy" for s in (0, 1) for i in (0, 40)]


def compared():
    return seed_curves(VARIANTS, ROWS, LOSSES)


def test_an_ordering_is_counted_seed_by_seed_at_every_budget():
    found = orderings(compared()).set_index("iterations")
    assert (found.loc[1_000, "holds in"], found.loc[1_000, "seeds"]) == (2, 3)
    assert (found.loc[5_000, "holds in"], found.loc[5_000, "seeds"]) == (1, 2)
    assert found.loc[1_000, "mean difference"] == pytest.approx((10 - 5 + 450) / 3 / 500)


def test_two_seeds_have_no_interval() -> None:
    assert over_seeds(np.array([0.2, 0.6])) == (0.4, -np.inf, np.inf)
    mean, low, high = over_seeds(np.array([0.2, 0.4, 0.6]))
    assert (mean, low, high) == pytest.approx((0.4, 0.4 - 4.302653 * 0.2 / 3**0.5, 0.4 + 4.302653 * 0.2 / 3**0.5))


def test_a_row_has_mean_interval_extremes_and_the_gap_between_two_groups_of_seeds():
    table = budget_table(compared(), {"x": 0.9, "y": 0.7}).set_index("variant")
    assert table.loc["X", "test mean [95%]"].startswith("98.0 [93.0, 100.0]")
    assert table.loc["Y", "test range"] == "10.0–97.0"
    assert table.loc["Y", "largest gap"] == "86.0"
    assert table.loc["X", "paper test"] == "90.00" and table.loc["X", "seeds"] == 3


@pytest.mark.parametrize(("values", "gap"), [([], 0), ([0.5], 0), ([0.1, 0.9, 0.2], 0.7)])
def test_the_largest_gap_is_between_neighbours(values: list[float], gap: float):
    assert largest_gap(np.array(values)) == pytest.approx(gap)


def test_a_variant_without_a_seed_is_named():
    with pytest.raises(UserError, match="no score of z"):
        seed_curves({"x": "X", "z": "Z"}, ROWS, LOSSES)


# ---- runs


TINY = get_recipe("toygpt").replace(steps=6, batch_size=4, eval_every=3, validation_size=4, snapshots=2)


@pytest.mark.slow
def test_a_run_in_slices_passes_through_the_same_parameters(tmp_path: Path):
    sliced, whole = (TrainingRun(BEST, TINY, tmp_path / name, 3) for name in ("sliced", "whole"))
    train_all([(sliced, (2, 4, 6))], "cpu", None)
    whole.train_to(6)
    one, other = (RunFolder(run.folder).snapshots() for run in (sliced, whole))
    assert sorted(one) == [0, 1, 2, 4, 6]
    assert all((one[6][key] == other[6][key]).all() for key in one[6])
    assert [step for step, _ in sliced.losses()] == [3, 6]
    model = sliced.model_at(4)
    assert all((dict(model.weight_map.named_parameters())[key] == one[4][key][0]).all() for key in one[4])


def test_no_minutes_mean_no_step_and_the_page_says_that_nothing_is_there(tmp_path: Path):
    run = TrainingRun(BEST, TINY, tmp_path / "run")
    with pytest.raises(OutOfTime):
        train_all([(run, (6,))], "cpu", 0.0)
    assert not run.folder.exists() and measured(run) == []
    settings = Settings(out=tmp_path, minutes=0.0, say=lambda _: None)
    with pytest.raises(UserError, match=f"no score of {BEST}"):
        reproduce("toygpt:table-positions", settings)


def test_runs_go_seed_by_seed_through_all_variants():
    runs = runs_of(Settings(seeds=2), list(POSITIONS))
    assert [(run.model, run.seed) for run in runs[:4]] == [*((name, 0) for name in POSITIONS), (BEST, 1)]
    assert {run.recipe.steps for run in runs} == {5_000}


def test_the_claims_are_those_that_the_paper_prints_of_registered_models():
    assert set(claims()) <= set(models.names(sweeps=True))
    assert claims()["toygpt-learned-pre"] == pytest.approx(0.9980)
    assert claims()["toygpt-learned-none"] == pytest.approx(0.0760)
