"""Learning coefficients of losses whose coefficient is known, and of models next to their Hessians."""

from __future__ import annotations

import math
import sys

import pandas as pd
import pytest
import torch

import models
from benchmarks.circuits.learning_coefficient import Mode, learning_coefficient, mode_of
from models.errors import UserError
from studies.claims.stored_texts import read_stored
from studies.comparison.curvature import (
    MODELS,
    RATIO,
    chosen,
    finding_of,
    known,
    largest_errors,
    losses_of,
    planted,
    verdict,
)
from studies.papers import DATA


@pytest.mark.slow
def test_the_mode_and_what_its_hessian_predicts():
    """Of ten numbers four are curved, and away from the start the mode balances the slope and the localisation."""
    losses, start = planted()["flat"]
    mode = mode_of(losses, start + 1, 0.5)
    assert mode.half_rank == 2 and mode.gaussian == pytest.approx(4 / (2 * 1.5))
    slope = torch.func.grad(lambda w: losses(w[None])[0])(mode.point) + 0.5 * (mode.point - start - 1)
    assert slope.abs().max() < 1e-8 and mode.loss == pytest.approx(float(losses(mode.point[None])))


@pytest.mark.parametrize(("ratio", "point"), [(0.0, 0.0), (-1.0, 0.0), (1.0, float("nan"))])
def test_points_and_ratios_that_have_no_mode_are_refused(ratio: float, point: float):
    losses, start = planted()["round"]
    with pytest.raises(UserError):
        mode_of(losses, start + point, ratio)
    with pytest.raises(UserError, match="eigenvalue"):
        mode_of(lambda w: -losses(w), start, 0.5)


def test_integrals_have_the_limits_of_theory():
    """Both planted integrals: exponential walls have the Gaussian at low temperature and less at high; (a b)^2 of four
    pairs has less than four times the coefficient 1/2 of its singularity, and without flat directions none at zero."""
    wall, singular = (mode_of(*planted()[name], RATIO) for name in ("wall", "singular"))
    assert known("wall", wall, 1e9) == pytest.approx(wall.gaussian, rel=1e-3)
    assert known("wall", wall, 34.0) < 2 and singular.gaussian == pytest.approx(0, abs=1e-9)
    values = [known("singular", singular, n_beta) for n_beta in (34.0, 1e5, 1e9)]
    assert 2 > values[0] > values[1] > values[2] > 0


def test_the_setting_is_that_with_the_least_largest_error():
    rows = [("a", 1, "x", 1.0, 0.1), ("a", 1, "y", 1.0, 0.3), ("b", 2, "x", 1.0, 0.15), ("b", 2, "y", 1.0, 0.05)]
    rows += [("a", 1, "x", 9.0, float("inf")), ("b", 2, "x", 9.0, 0.5)]
    errors = largest_errors(pd.DataFrame(rows, columns=["sampler", "step", "loss", "n_beta", "error"]))
    found = chosen(errors)
    assert found[["n_beta", "sampler", "trusted"]].to_numpy().tolist() == [[1.0, "b", True], [9.0, "b", False]]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.9, 1.1, "agrees"), (1.1, 1.9, "agrees"), (0.1, 0.5, "differs"), (1.3, 9.0, "differs"), (-50.0, 90.0, "open")]
    + [(float("nan"), float("nan"), "left")],
)
def test_an_interval_that_is_wide_agrees_with_nothing(low: float, high: float, said: str):
    assert verdict(low, high, 1.0) == said


def test_the_stored_finding_is_that_of_the_stored_rows():
    stored = read_stored(DATA / "comparison-curvature.json")
    tables = [pd.DataFrame(stored[part]) for part in ("errors", "known", "models")]
    assert finding_of(*tables) == stored["finding"]
    rows = tables[-1]
    again = [verdict(*each) for each in rows[["low", "high", "gaussian"]].itertuples(index=False)]
    assert rows["verdict"].tolist() == again and set(rows["model"]) == set(MODELS)
    assert set(rows["n_beta"]) == set(chosen(tables[0]).query("trusted")["n_beta"])


@pytest.mark.parametrize("unknown", ["open", "left"])
def test_what_is_not_known_is_no_evidence_that_coefficients_differ(unknown: str):
    stored = read_stored(DATA / "comparison-curvature.json")
    errors, right, rows = (pd.DataFrame(stored[part]) for part in ("errors", "known", "models"))
    said = finding_of(errors, right, rows.assign(verdict=unknown))["claim"]
    assert "0 have another" in said and f"of {rows['model'].nunique()} it is not known" in said


def test_the_loss_of_a_model_is_its_cross_entropy():
    model = models.load("microadder-11")
    losses, w = losses_of(model, n=4, seed=1)
    problems = model.task.sample(4, torch.Generator().manual_seed(1))
    logits = model(model.task.encode(problems))[:, list(model.task.query_positions)]
    right = torch.nn.functional.cross_entropy(logits.flatten(0, 1), model.task.targets(problems).flatten())
    assert torch.allclose(losses(torch.stack((w, w))), right) and len(w) == 11 and right > 0


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "devinterp.optim", None)
    with pytest.raises(UserError, match=r"pip install 'carrylens\[llc\]'"):
        learning_coefficient(planted()["round"][0], _round(), 1e4)


def _round() -> Mode:
    return mode_of(*planted()["round"], RATIO)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["round", "stiff", "flat", "wall"])
def test_chains_find_known_coefficients_where_the_loss_is_quadratic(name: str):
    pytest.importorskip("devinterp")
    losses, start = planted()[name]
    mode = mode_of(losses, start, RATIO)
    found = learning_coefficient(losses, mode, 1e7, "whitened", 0.03, chains=16)
    assert found.failed == 0 and found.low < found.value < found.high
    assert found.value == pytest.approx(known(name, mode, 1e7), rel=0.1)


@pytest.mark.slow
def test_plain_chains_miss_flat_directions_of_a_stiff_loss_and_steps_that_are_too_long_are_counted_as_failed():
    pytest.importorskip("devinterp")
    losses, start = planted()["stiff"]
    mode = mode_of(losses, start, RATIO)
    assert learning_coefficient(losses, mode, 1e7, "sgld", 0.03, steps=400).value < 0.7 * mode.gaussian
    left = learning_coefficient(losses, mode, 1e7, "sgld", 1.5, steps=2000)
    assert left.failed == 8 and math.isnan(left.value)
    again = [learning_coefficient(losses, mode, 1e7, "whitened", 0.03, steps=50, seed=3) for _ in range(2)]
    assert again[0] == again[1]


@pytest.mark.slow
def test_the_slope_at_a_mode_away_from_the_start_adds_no_noise():
    """Where the localisation holds the mode off the minimum, the loss has a slope there: n_beta times it is large."""
    pytest.importorskip("devinterp")
    losses, start = planted()["stiff"]
    mode = mode_of(losses, start + 1, RATIO)
    found = learning_coefficient(losses, mode, 1e9, "whitened", 0.03)
    assert found.value == pytest.approx(mode.gaussian, rel=0.1) and found.high - found.low < 1
