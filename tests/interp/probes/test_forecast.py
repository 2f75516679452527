"""A forecast of grokking is held against curves in which who will grok is planted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import interp
from interp.papers.studies.comparison_forecast import adders, choose, of_seeds
from interp.probes.forecast import Forecast
from models.errors import UserError

STEPS = [100 * (i + 1) for i in range(10)]


def run_folder(folder: Path, name: str, token: np.ndarray, exact: np.ndarray) -> Path:
    """A run folder with these curves [seed, evaluation]; NaN is written as null."""
    folder = folder / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"first_seed": 0, "model": name}))
    known = lambda row: [None if x != x else x for x in row]  # noqa: E731
    lines = [{"step": step, "exact": known(exact[:, i]), "token": known(token[:, i])} for i, step in enumerate(STEPS)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def planted(seeds: int = 40, grok: int = 10, knows_from: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The first seeds grok at the last evaluation; their token accuracy is above the others' from one evaluation on."""
    rng = np.random.default_rng(0)
    token = 0.3 + 0.01 * rng.random((seeds, len(STEPS)))
    token[:grok, knows_from:] += 0.1
    exact = np.zeros_like(token)
    exact[:grok, -1] = 1.0
    return token, exact


def test_auroc_is_a_half_before_the_measure_knows_and_one_from_then_on(tmp_path: Path):
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", *planted()), shares=(0.3, 0.4, 0.9))
    row = found.table.sel(model="adder")
    assert row.auroc.values[1:].tolist() == [1.0, 1.0]
    assert 0.3 < row.auroc.values[0] < 0.7 and row.low.values[0] < 0.5 < row.high.values[0]
    assert row.will.values.tolist() == [10] * 3 and row.never.values.tolist() == [30] * 3


def test_auroc_is_that_of_the_pairs_of_seeds(tmp_path: Path):
    rng = np.random.default_rng(1)
    token, exact = rng.integers(0, 6, (12, 10)) / 10, np.zeros((12, 10))
    exact[[1, 4, 7], -1] = 1.0
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", token, exact), shares=(0.5,))
    value = token[:, 4]
    wins = [(value[i] > value[j]) + (value[i] == value[j]) / 2 for i in (1, 4, 7) for j in set(range(12)) - {1, 4, 7}]
    assert found.table.auroc.sel(model="adder").item() == pytest.approx(np.mean(wins))


def test_a_seed_that_has_grokked_already_is_no_success_of_the_forecast(tmp_path: Path):
    token, exact = planted()
    exact[:9, 4:] = 1.0  # all but one had grokked by half of the steps
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", token, exact), shares=(0.5,))
    assert found.table.will.sel(model="adder").item() == 1
    assert found.ranked(0.5)["seeds"].sum() == 31


def test_nothing_is_told_apart_where_every_seed_has_grokked_already(tmp_path: Path):
    token, _ = planted()
    row = interp.grokking_forecast(run_folder(tmp_path, "adder", token, np.ones_like(token)), shares=(0.5,)).table
    assert row.will.sum().item() == row.never.sum().item() == 0 and row.auroc.isnull().all()


def test_an_easy_model_next_to_a_hard_one_is_no_forecast(tmp_path: Path):
    """Token accuracy differs between the models, of which one groks often; within each it says nothing."""
    rng = np.random.default_rng(2)
    folders = []
    for name, level, grok in (("easy", 0.8, 30), ("hard", 0.2, 3)):
        token, exact = level + 0.01 * rng.random((40, 10)), np.zeros((40, 10))
        exact[:grok, -1] = 1.0
        folders.append(run_folder(tmp_path, name, token, exact))
    row = interp.grokking_forecast(folders, shares=(0.5,)).table.sel(model="all models")
    assert row.low.item() < 0.5 < row.high.item() and row.auroc.item() < 0.7


def test_halving_counts_what_it_keeps_and_what_it_spends(tmp_path: Path):
    token, exact = planted()
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", token, exact), shares=(0.5,))
    row = found.halved([(0.5, 0.25)]).set_index("model").loc["adder"]
    assert (row["grok"], row["grok with the rule"]) == (10, 10)
    assert row["runs"] == pytest.approx(40) and row["runs with the rule"] == pytest.approx(10 + 30 * 0.5)
    assert row["gain"] == pytest.approx(40 / 25)
    blind = found.halved([(0.1, 0.25)]).set_index("model").loc["adder"]  # before token accuracy knows anything
    assert blind["grok with the rule"] < 10


def test_a_seed_that_ended_early_costs_the_steps_until_then(tmp_path: Path):
    token, exact = planted()
    exact[0, 1:3] = 1.0
    token[0, 3:] = exact[0, 3:] = math.nan
    row = interp.grokking_forecast(run_folder(tmp_path, "adder", token, exact), shares=(0.5,)).halved([(1.0, 1.0)])
    assert row["runs"].iloc[0] == pytest.approx(39 + 0.3)


@pytest.mark.parametrize("rule", [[(0.5, 0.0)], [(0.5, 0.25), (0.2, 0.1)], [(0.2, 0.1), (0.5, 0.5)], [(1.5, 0.5)]])
def test_a_rule_that_makes_no_sense_is_refused(rule: list[tuple[float, float]], tmp_path: Path):
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", *planted()), shares=(0.5,))
    with pytest.raises(UserError):
        found.halved(rule)


@pytest.mark.parametrize("bad", [{"measure": "mood"}, {"shares": ()}, {"shares": (0.0,)}])
def test_what_curves_do_not_hold_is_refused(bad: dict[str, object], tmp_path: Path):
    with pytest.raises(UserError):
        interp.grokking_forecast(run_folder(tmp_path, "adder", *planted()), **bad)


def test_stored_seeds_are_told_apart_early():
    found = interp.grokking_forecast(["adder-456", "microadder-170", "microadder-226"], shares=(0.25,))
    row = found.table.sel(model="all models")
    assert row.will.item() + row.never.item() <= 64 and row.low.item() > 0.5
    again = Forecast.from_dict(found.to_dict())
    assert again.table.equals(found.table) and again.figure().data


def test_the_study_chooses_its_rule_on_even_seeds_and_judges_it_on_odd_ones(tmp_path: Path):
    token, exact = planted(seeds=40, grok=8, knows_from=1)  # after a fifth of the steps a fifth of the seeds is known
    found = interp.grokking_forecast(run_folder(tmp_path, "adder", token, exact), shares=(0.5,))
    assert [of_seeds(found, odd).curves.of("adder").seed.values[0] for odd in (0, 1)] == [0, 1]
    rule = choose(of_seeds(found, 0))
    row = of_seeds(found, 1).halved(rule).iloc[-1]
    assert rule[0][0] >= 0.2 and row["grok with the rule"] == row["grok"] == 4
    assert row["gain"] == pytest.approx(1 / (0.2 + 0.25 * 0.8))


def test_only_adders_with_many_seeds_from_random_starts_are_asked():
    names = adders()
    assert {"microadder-57", "adder-456"} <= set(names)
    assert not {"microadder-11", "addlm-adder-ten-digit", "toygpt-none-none"} & set(names)
