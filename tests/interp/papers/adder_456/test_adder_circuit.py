"""The probes of an adder's circuit: pairs that differ as said, exact measures on made-up data, and known models."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from interp.core.results import Provenance
from interp.papers.adder_456.attention_signal import attention_signal, compute_attention_signal
from interp.papers.adder_456.carry_routes import KINDS, ROUTES, carry_routes, route_pairs
from interp.papers.adder_456.pattern_ablation import MEAN, NO_PREVIOUS, UNIFORM, WHOLE, pattern_ablation
from interp.papers.adder_456.pattern_dependence import compute_pattern_dependence, pattern_dependence
from models.errors import UserError
from models.tasks import TenDigitAddition

TASK, HERE = TenDigitAddition(), Provenance(0, 0, "made up")
ADDERS = [name for name in ("microadder-57", "adder-456") if name in models.zoo_names()]


@pytest.fixture(scope="module", params=ADDERS)
def adder(request) -> models.ArithmeticTransformer:
    return models.load(request.param)


# ---- pairs


@settings(max_examples=25)
@given(kind=st.sampled_from(KINDS), column=st.integers(2, 9), seed=st.integers(0, 1000))
def test_pairs_differ_in_the_carry_and_agree_in_the_column_above_it(kind: str, column: int, seed: int):
    pairs = route_pairs(TASK, kind, column, 20, seed)
    one, other = (TASK.variables(problems) for problems in (pairs.clean, pairs.corrupted))
    assert not (pairs.clean == pairs.corrupted).all(1).any()
    for name in "ab":
        assert torch.equal(one[name][:, column:], other[name][:, column:])
    differs = one["carry_in"][:, column] != other["carry_in"][:, column]
    assert differs.all() if kind != "control" else not differs.any()
    if kind == "made":  # nothing is written differently before the column
        assert torch.equal(one["s"][:, :column], other["s"][:, :column])
    if kind == "passed":
        assert (one["digit_sum"][:, column - 1] == 9).all() and (other["digit_sum"][:, column - 1] == 9).all()
        assert (one["s"][:, column - 1] != other["s"][:, column - 1]).all()
    if kind == "control":
        assert torch.equal(one["s"], other["s"]) and torch.equal(one["digit_sum"], other["digit_sum"])


def test_a_column_without_such_pairs_is_refused():
    for kind, column in (("passed", 1), ("made", 0), ("control", 10), ("borrowed", 3)):
        with pytest.raises(UserError):
            route_pairs(TASK, kind, column, 4)


# ---- measures on made-up data


def test_dependence_finds_the_factor_that_the_pattern_follows_and_no_other():
    rng = np.random.default_rng(0)
    follows, other = rng.integers(2, size=(2, 3000, 1))
    weight = np.where(follows == 1, 0.8, 0.2) + 0.1 * rng.standard_normal((3000, 1))
    pattern = np.stack((weight, 1 - weight), -1)[:, None, None]  # [n, layer, head, target, key]
    result = compute_pattern_dependence(pattern, {"followed": follows, "other": other}, ["s0"], HERE)
    r2 = result.overall.r2.isel(layer=0, head=0)
    assert float(r2.sel(factor="followed")) == pytest.approx(0.09 / 0.10, abs=0.01)  # 0.3^2 of 0.3^2 + 0.1^2
    assert abs(float(r2.sel(factor="other"))) < 0.005
    assert abs(result.overall.control.values).max() < 0.005
    assert result.max_spread == pytest.approx((2 * 0.10) ** 0.5, rel=0.03)


def test_many_groups_that_mean_nothing_explain_nothing():
    rng = np.random.default_rng(1)
    pattern, labels = rng.random((2000, 1, 1, 1, 4)), rng.integers(100, size=(2000, 1))
    result = compute_pattern_dependence(pattern, {"noise": labels}, ["s0"], HERE)
    assert abs(float(result.overall.r2.squeeze())) < 0.02  # unadjusted it would be 0.05


def test_the_signal_s_coefficients_are_those_it_was_made_of():
    rng = np.random.default_rng(2)
    terms = rng.integers(0, 19, size=(400, 2, 3)).astype(float)
    number = terms @ np.array([10.0, 1.0, -0.5])
    output = number[..., None] * np.array([0.3, -1.0, 2.0]) + 5.0
    result = compute_attention_signal(output, terms, ["s1", "s2"], HERE)
    assert np.allclose(result.table.coefficient.values, [[10.0, 1.0, -0.5]] * 2)
    assert np.allclose(result.table.r2, 1.0) and np.allclose(result.table["first"], 1.0)
    assert float(result.table.control.max()) < 0.1
    with pytest.raises(UserError, match="the same on every problem"):
        compute_attention_signal(np.ones_like(output), terms, ["s1", "s2"], HERE)


# ---- known models


def test_a_trained_adder_s_carry_comes_through_the_column_below_and_its_own_token(adder):
    result = carry_routes(adder, n_per_column=6)
    for kind, route in (("made", "previous operands"), ("made", "attention output")):
        assert result.rate(kind, route).accuracy == 1.0
    assert result.rate("passed", "own token by all its routes").accuracy == 1.0
    for kind in ("made", "passed"):
        assert result.rate(kind, ROUTES[0]).accuracy == 1.0  # the check of the method
        assert result.rate(kind, "operands below").accuracy == 0.0
    assert max(result.rate("control", route).accuracy for route in ROUTES) == 0.0
    assert len(result.to_dataframe()) == len(KINDS) * len(ROUTES)
    assert len(result.figure().data) == len(KINDS)


def test_a_trained_adder_writes_two_columns_as_one_number(adder):
    result = attention_signal(adder, n=200)
    assert 9 < result.mean("own")[0] < 11
    assert float(result.table.r2.min()) > 0.99 > 0.2 > float(result.table.control.max())
    assert result.figure().data and len(result.to_dataframe()) == 9


def test_fixed_patterns_are_scored_beside_the_whole_model(adder):
    result = pattern_ablation(adder, n_per_length=12)
    assert result.total(WHOLE).correct == result.total(WHOLE).n == 132
    assert result.total(UNIFORM).correct == 0 and result.total(NO_PREVIOUS).accuracy < 0.6
    assert set(result.rates) == {WHOLE, MEAN, NO_PREVIOUS, UNIFORM}
    assert len(result.figure().data) == 4 and len(result.to_dataframe()) == 44


def test_microadder_s_pattern_is_constant_and_an_untrained_adder_s_is_not():
    constant = pattern_dependence(models.load("microadder-57"), n=200)
    assert constant.max_spread < 1e-5
    assert constant.overall.r2.isnull().all()  # nothing to explain
    untrained = pattern_dependence(models.build("adder-456"), n=200)
    assert untrained.max_spread > 0.01
    assert len(untrained.figure().data) == 3 and len(untrained.to_dataframe()) == 12 * 5
    mean = pattern_ablation(models.load("microadder-57"), n_per_length=6).total(MEAN)
    assert mean.correct == mean.n


def test_other_models_are_refused_with_a_reason():
    summer = models.build("position-coupling-hand-built")
    for probe in (pattern_dependence, pattern_ablation, attention_signal, carry_routes):
        with pytest.raises(UserError, match="another task"):
            probe(summer)
    with pytest.raises(UserError, match="at least 1"):
        pattern_ablation(models.build("adder-456"), n_per_length=0)
