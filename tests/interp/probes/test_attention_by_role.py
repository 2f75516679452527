"""Attention by role: the arithmetic on known patterns, the 10 to 1 of MicroAdder, and what shows neither."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import interp
import models
from interp.core.results import Provenance
from interp.core.thresholds import MAJORITY
from interp.probes.attention_by_role import AttentionByRole, compute_attention_by_role
from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition
from models.weight_maps import DenseWeights
from tests.interp.probes.free_weights import dense_model
from tests.toy_task import ToyAddition

TASK = TenDigitAddition()
ROLES = [TASK.relative_roles(target) for target in range(12)]
TARGETS = [role.label for role in TASK.target_roles]
KEYS = [role.label for role in TASK.roles][:33]


def compute(pattern: np.ndarray) -> AttentionByRole:
    """The result for patterns [n, layer, head, target, key] of the ten-digit task."""
    provenance = Provenance(len(pattern), 0, "made-up patterns")
    return compute_attention_by_role([pattern], ROLES, TARGETS, KEYS, provenance, resamples=49)


def softmax_patterns(scores: np.ndarray) -> np.ndarray:
    """Rows over the visible keys of each target."""
    visible = np.arange(33) < np.array([22 + target for target in range(12)])[:, None]
    weights = np.where(visible, np.exp(scores - scores.max(-1, keepdims=True)), 0.0)
    return weights / weights.sum(-1, keepdims=True)


def by_role_scores(**score: float) -> np.ndarray:
    """Scores [1, 1, 1, target, key] that depend on the role only; names with underscores."""
    scores = np.zeros((1, 1, 1, 12, 33))
    for target, groups in enumerate(ROLES):
        for role, positions in groups.items():
            scores[..., target, positions] = score.get(role.replace(" ", "_"), 0.0)
    return scores


def random_patterns(seed: int, n: int = 3, layers: int = 2, heads: int = 2) -> np.ndarray:
    return softmax_patterns(3 * np.random.default_rng(seed).normal(size=(n, layers, heads, 12, 33)))


@given(st.integers(0, 10_000))
def test_role_weights_sum_to_one_and_are_sums_of_the_pattern(seed):
    pattern = random_patterns(seed)
    result = compute(pattern)
    assert result.table.weight.sum("role").values == pytest.approx(1.0)
    assert result.table.weight_uniform.sum("role").values == pytest.approx(1.0)
    assert float(result.table.weight.sel(layer=1, head=0, target="s4", role="previous operands")) == pytest.approx(
        pattern[:, 1, 0, 4, [3, 14]].sum(-1).mean()
    )


@given(st.integers(0, 10_000))
def test_entropy_lies_between_zero_and_that_of_an_even_spread(seed):
    entropy = compute(random_patterns(seed)).table.entropy
    assert float(entropy.min()) >= 0
    assert (entropy.max(("layer", "head")).values <= np.log(np.arange(22, 34)) + 1e-9).all()


def test_an_even_spread_has_the_entropy_of_its_number_of_keys():
    even = compute(softmax_patterns(np.zeros((2, 1, 1, 12, 33)))).table
    assert even.entropy.values.ravel() == pytest.approx(np.log(np.arange(22, 34)))
    assert even.weight.isel(layer=0, head=0).values == pytest.approx(even.weight_uniform.values)


@given(st.floats(-4, 4), st.floats(-2, 2))
def test_the_gap_is_the_difference_of_the_scores(own, previous):
    scores = by_role_scores(own_operands=own, previous_operands=previous, previous_output=-own)
    result = compute(np.repeat(softmax_patterns(scores), 2, 0))
    gap = result.table.gap.isel(layer=0, head=0)
    assert gap.sel(target=TARGETS[1:10]).values == pytest.approx(own - previous, abs=1e-9)
    assert np.isnan(gap.sel(target=["s0", "s10", "EOS"]).values).all()  # one of the two groups is empty there
    assert result.mean_gap().value == pytest.approx(own - previous, abs=1e-9)


def planted(own: tuple[float, float], below: tuple[float, float], output: float, swap: bool = False) -> np.ndarray:
    """Patterns [2, 1, 1, 12, 33] with these weights on the operands of the two columns and on the previous output.

    What is left of a row, and the whole of a row without two columns, is spread evenly over the other keys. ``swap``
    exchanges the own operands in every second target.
    """
    pattern = np.zeros((12, 33))
    for target, groups in enumerate(ROLES):
        if groups["own operands"] and groups["previous operands"]:
            pattern[target, groups["own operands"]] = own[::-1] if swap and target % 2 else own
            pattern[target, groups["previous operands"]] = below
            pattern[target, groups["previous output"]] = output
        left = [key for role in ("rest", "delimiters") for key in groups[role]]
        pattern[target, left] = (1 - pattern[target].sum()) / len(left)
    return np.broadcast_to(pattern, (2, 1, 1, 12, 33))


EVEN = planted((0.435, 0.435), (0.0435, 0.0435), 0.0435 - 0.0005)
APART = {
    "one operand of the own column": planted((0.87, 0.0), (0.0435, 0.0435), 0.043),
    "either operand of the own column in turn": planted((0.87, 0.0), (0.0435, 0.0435), 0.043, swap=True),
    "one operand of the previous column": planted((0.435, 0.435), (0.087, 0.0), 0.043),
    "the previous output alone": planted((0.435, 0.435), (0.0, 0.0), 0.13),
    "the previous operands alone": planted((0.435, 0.435), (0.065, 0.065), 0.0),
}


def choosing(share: float, noise: float, n: int = 200) -> np.ndarray:
    """Inputs in which a head gives its own column's weight to one operand, the first in ``share`` of them."""
    rng = np.random.default_rng(0)
    first = rng.random((n, 1, 1, 1, 1)) < share
    one, other = (planted(own, (0.0435, 0.0435), 0.043)[:1] for own in ((0.87, 0.0), (0.0, 0.87)))
    pattern = np.where(first, one, other) * np.exp(noise * rng.normal(size=(n, 1, 1, 12, 33)))
    return pattern / pattern.sum(-1, keepdims=True)


@pytest.mark.parametrize(("share", "noise"), [(0.5, 0.0), (0.5, 0.1), (0.3, 0.0)])
def test_a_head_that_picks_one_operand_by_value_is_called_bimodal_with_both_values(share, noise):
    result = compute(choosing(share, noise))
    own, below = (result.of_head().sel(role=role) for role in ("own operands", "previous operands"))
    assert (float(own.lower), float(own.higher)) == pytest.approx((0.0, 0.87), abs=0.05)
    assert np.isnan(below.lower) and np.isnan(below.higher)
    assert not result.has_ratio(), "a ratio of means that no input has"


def test_other_spreads_over_inputs_are_not_called_bimodal():
    rng = np.random.default_rng(1)
    for spread in (0.0, 0.1, 1.0):
        scores = by_role_scores(own_operands=3.0) + spread * rng.normal(size=(200, 1, 1, 12, 33))
        assert np.isnan(compute(softmax_patterns(scores)).table.lower).mean() > MAJORITY  # some weights have long tails
    uniform = rng.random((200, 1, 1, 12, 33))
    assert np.isnan(compute(uniform / uniform.sum(-1, keepdims=True)).table.lower).all()
    assert np.isnan(compute(choosing(0.5, 0.0, n=10)).table.lower).all(), "ten inputs do not show two modes"


@pytest.mark.parametrize("name", APART)
def test_a_ratio_is_given_only_where_it_holds_for_every_digit(name):
    """All of these have a weight of 0.87 on the own column and 0.13 on the previous one."""
    assert compute(EVEN).has_ratio() and math.exp(compute(EVEN).mean_gap().value) == pytest.approx(10)
    apart = compute(APART[name])
    assert not (apart.has_ratio() and math.exp(apart.mean_gap().value) == pytest.approx(10))
    assert apart.sentence() != compute(EVEN).sentence()


def test_keys_of_a_role_that_differ_have_their_own_weights_in_the_table():
    for name in ("one operand of the own column", "either operand of the own column in turn"):
        own = compute(APART[name]).of_head().sel(role="own operands", target="s4")
        assert (float(own.strongest), float(own.weakest)) == pytest.approx((0.87, 0.0))
        assert float(own.per_key) == pytest.approx(0.435)


def test_the_gap_is_between_operands_whatever_the_previous_output_gets():
    gap = compute(APART["the previous operands alone"]).mean_gap()
    assert (gap.value, gap.low, gap.high) == pytest.approx([math.log(0.435 / 0.065)] * 3)
    assert np.isnan(compute(APART["the previous output alone"]).table.gap).all()


def drawn_gap(seed: int, n: int = 12) -> AttentionByRole:
    """Inputs that move all targets alike: own weight 0.4 + noise, previous 0.05 - noise/10."""
    noise = 0.1 * np.random.default_rng(seed).normal(size=(n, 1, 1, 1))
    pattern = np.array(np.broadcast_to(planted((0.35, 0.35), (0.05, 0.05), 0.05)[:1], (n, 1, 1, 12, 33)))
    for target, groups in enumerate(ROLES):
        if groups["own operands"] and groups["previous operands"]:
            pattern[..., target, groups["own operands"]] += noise
            pattern[..., target, groups["rest"]] -= 2 * noise / len(groups["rest"])
    return compute(pattern)


@pytest.mark.slow
def test_the_interval_of_the_gap_covers_the_sample_of_inputs():
    """100 samples of 12 inputs; the truth is the gap of the mean weights, ln(0.35 / 0.05), the same at every target."""
    gaps = [drawn_gap(seed).mean_gap() for seed in range(100)]
    covered = [gap.low <= math.log(7) <= gap.high for gap in gaps if gap.low is not None and gap.high is not None]
    assert len(covered) == 100 and np.mean(covered) >= 0.9


def test_spread_is_zero_for_a_constant_pattern_and_the_standard_deviation_for_others():
    constant = compute(np.repeat(random_patterns(1, n=1), 5, 0))
    assert float(constant.pattern_spread.max()) == 0.0
    assert constant.position_only
    pattern = random_patterns(2, n=50)
    varying = compute(pattern)
    assert float(varying.pattern_spread.max()) == pytest.approx(pattern.std(0).max())
    assert not varying.position_only


def test_chunks_of_any_size_give_the_same_result():
    pattern = random_patterns(3, n=10)
    provenance = Provenance(10, 0, "made-up patterns")
    whole = compute(pattern)
    parts = compute_attention_by_role(
        (pattern[i : i + 3] for i in range(0, 10, 3)), ROLES, TARGETS, KEYS, provenance, resamples=49
    )
    for name in ("weight", "spread", "entropy", "entropy_spread"):
        assert parts.table[name].values == pytest.approx(whole.table[name].values), name


def test_the_shuffled_keys_find_a_role_that_is_sought_out_and_none_in_noise():
    sought = compute(np.repeat(softmax_patterns(by_role_scores(previous_output=4.0)), 2, 0)).table.p_value
    assert float(sought.sel(role="previous output").squeeze()) == 0.02  # 1 / (49 + 1), the least there can be
    assert float(sought.sel(role="rest").squeeze()) > 0.5
    noise = compute(random_patterns(4, n=1, layers=12, heads=12)).table.p_value
    assert 0.02 < float((noise <= 0.1).mean()) < 0.2


def test_the_main_head_is_the_one_on_the_own_and_previous_column():
    scores = np.concatenate([by_role_scores(rest=2.0), by_role_scores(own_operands=5.0)], 2)
    result = compute(np.repeat(softmax_patterns(scores), 2, 0))
    assert result.main_head == (0, 1)
    with pytest.raises(UserError, match="no head 2"):
        result.finding(head=2)


@pytest.mark.parametrize(
    ("pattern", "roles"),
    [
        (np.full((1, 1, 1, 12, 33), np.nan), ROLES),
        (np.zeros((1, 1, 1, 12, 33)), ROLES),  # what a hook point makes of NaN scores
        (np.zeros((1, 1, 1, 11, 33)), ROLES),
        (random_patterns(0), [{"one": [0, 1], "two": [1]}] * 12),
    ],
)
def test_patterns_that_do_not_fit_their_roles_are_refused(pattern, roles):
    with pytest.raises(UserError):
        compute_attention_by_role([pattern], roles, TARGETS, KEYS, Provenance(1, 0, "made-up patterns"))


# ---- models


def test_published_adders_weigh_the_own_column_ten_to_one(published):
    result = interp.attention_by_role(published, n=256)
    gap = result.mean_gap()
    assert gap.low is not None and gap.high is not None and gap.low < math.log(10) < gap.high
    assert math.exp(gap.value) == pytest.approx(10, rel=0.03)
    assert result.table.gap.sel(target=TARGETS[1:10]).std() < 0.05
    column = result.table.weight.sel(
        target=TARGETS[1:10], role=["own operands", "previous operands", "previous output"]
    )
    assert column.sum("role").min() > 0.999


def test_the_published_57_has_the_measured_weights(published_57):
    result = interp.attention_by_role(published_57)
    table = result.table.isel(layer=0, head=0)
    assert result.mean_gap().value == pytest.approx(2.296, abs=5e-4)
    assert float(table.per_key.sel(role="own operands", target=TARGETS[1:10]).mean()) == pytest.approx(0.435, abs=1e-3)
    for role in ("previous operands", "previous output"):
        assert float(table.per_key.sel(role=role, target=TARGETS[1:10]).mean()) == pytest.approx(0.044, abs=1e-3)
    assert float(table.weight.sel(target="s10", role="delimiters")) == pytest.approx(0.877, abs=1e-3)


def test_published_attention_does_not_depend_on_the_digits(published):
    result = interp.attention_by_role(published, n=256)
    assert result.position_only


def test_attention_of_free_weights_depends_on_the_input_and_is_measured_in_every_head():
    result = interp.attention_by_role(dense_model(), n=64)
    assert not result.position_only
    assert dict(result.table.weight.sizes) == {"layer": 2, "head": 2, "target": 12, "role": 5}
    assert result.table.weight.sum("role").values == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("name", ["adder-456", "adder-512", "adder-582"])
def test_adders_that_leave_out_the_last_output_weigh_operands_ten_to_one_all_the_same(name):
    result = interp.attention_by_role(models.load(name), n=512)
    table = result.table.per_key.isel(layer=0, head=0).sel(target=TARGETS[1:10]).mean("target")
    assert float(table.sel(role="previous operands")) == pytest.approx(0.0465, abs=0.001)
    assert float(table.sel(role="previous output")) < 1e-3
    assert 2.2 < result.mean_gap().value < 2.31 and result.has_ratio()


def test_positions_that_a_task_gives_no_role_are_the_rest():
    shape = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 6, "d_vocab": 10, "n_ctx": 8}
    weights = DenseWeights(models.TransformerConfig(**shape))
    weights.initialise(torch.Generator().manual_seed(0))
    result = interp.attention_by_role(models.ArithmeticTransformer(weights, ToyAddition()), n=16)
    assert result.table.n_keys.sel(role="rest").values.tolist() == [2, 3]
    assert result.table.weight.sum("role").values == pytest.approx(1.0, abs=1e-5)
    assert math.isnan(result.mean_gap().value)


def test_given_problems_are_used():
    given = interp.attention_by_role(dense_model(), problems=[(1, 2), (3, 4)])
    assert given.provenance.n == 2
    assert "given problems" in str(given)


def test_the_table_has_a_row_for_every_head_target_and_role():
    frame = interp.attention_by_role(dense_model(), n=32).to_dataframe()
    assert len(frame) == 2 * 2 * 12 * 5
    measured = ["weight", "weight_low", "weight_high", "weight_uniform", "per_key", "entropy", "gap", "p_value"]
    assert {*measured, "n", "spread"} <= set(frame.columns)
    assert (frame["weight_low"] <= frame["weight"]).all()


def test_the_heads_figure_has_a_row_a_head_whose_weights_are_means_over_columns():
    result = interp.attention_by_role(models.load("adder-456"), n=16)
    figure = result.figure("heads")
    (heat,) = figure.data
    columns = [f"s{column}" for column in range(1, 10)]
    expected = result.table.weight.sel(target=columns, layer=0, head=0).mean("target").values
    assert np.allclose(np.array(heat.z)[0], expected) and list(heat.y) == ["L0H0"]


def test_targets_that_share_a_label_are_rows_of_their_own_in_the_pictures():
    model = models.load("position-coupling-1l4h-small")
    found = interp.attention_by_role(model, task=model.task.at(3, 3), n=4)
    targets = found.table.target.values.tolist()
    assert targets.count(">") == 1 and "> (3)" in targets and len(set(targets)) == len(targets) == 20
    for kind in ("", "pattern"):
        drawn = found.figure(kind).data[0]
        assert list(drawn.y) == targets and len(drawn.z) == 20
