"""Which keys heads attend to, next to the constructed heads, and ideal patterns in their place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
import models
from interp.compare.construction.key_attention import compute_key_attention
from interp.compare.construction.key_sets import KeySets
from interp.compare.construction.needed_keys import key_sets
from interp.compare.construction.pattern_patching import EVERYONE, compute_pattern_patching
from interp.core.results import Provenance
from interp.core.runs import read_patterns
from interp.probes.ov_output_shape import compute_ov_output_shape
from models.errors import UserError
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition

HAND_BUILT_HEADS = {0: "sum", 1: "carry", 2: "arrow", 3: "eos"}  # heads 1-4 of the theorem, counted from 0
MADE_UP = Provenance(8, 0, "made-up problems")


def rows_of(model, task, n=8):
    tokens = task.encode(task.sample(n, torch.Generator().manual_seed(0)))
    return np.concatenate(list(read_patterns(model, tokens, key_sets(task).queries)))


# ---- roles


@pytest.mark.parametrize("shape", [(2, 2), (4, 3), (6, 4)])
def test_the_four_hand_built_heads_come_out_as_exactly_their_roles(hand_built, shape):
    result = interp.key_attention(hand_built, task=hand_built.task.at(*shape), n=8)
    assert {head: role for (_, head), role in result.roles().items()} == HAND_BUILT_HEADS
    for head, role in HAND_BUILT_HEADS.items():
        cell = result.table.sel(layer=0, head=head)
        assert float(cell.overlap.sel(role=role)) == pytest.approx(1, abs=1e-4)
        assert float(cell.share.sel(role=role)) == pytest.approx(1, abs=1e-4)
        assert (cell.overlap.drop_sel(role=role).values < 0.7).all()
    summing = result.table.sel(layer=0, head=0, role="sum")
    assert float(summing.bos) == pytest.approx(1 / 3, abs=1e-4)
    assert float(summing.weight) == pytest.approx(2 / 3, abs=1e-4)
    assert float(result.attended.sel(unit="L0H0")) == 2


def test_a_role_that_untrained_heads_play_as_well_is_not_granted(hand_built):
    task = hand_built.task.at(3, 3)
    rows = rows_of(hand_built, task)
    control = np.ones((1, 1, 4, 4))
    result = compute_key_attention([rows], key_sets(task), MADE_UP, untrained=control, resamples=99)
    assert set(result.roles().values()) == {None}


def one_digit_each(keys: KeySets, which: tuple[int, ...]) -> np.ndarray:
    """Rows of one head that looks, in each problem, at one of the digits of the sum's role, and else at BOS."""
    rows = np.zeros((len(which), 1, 1, *keys.visible.shape))
    rows[..., 0] = 1
    for target in np.flatnonzero(keys.defined[0]):
        rows[..., target, 0] = 0
        digits = np.flatnonzero(keys.member[0, target])
        for problem, chosen in enumerate(which):
            rows[problem, ..., target, digits[chosen]] = 1
    return rows


def test_a_head_that_looks_at_one_of_the_two_digits_is_half_a_digit_sum_head():
    keys = key_sets(MultiOperandAddition(3, 3))
    rows = one_digit_each(keys, (0, 0))
    result = compute_key_attention([rows], keys, MADE_UP, resamples=99)
    assert result.role(0, 0) == "sum"
    assert float(result.table.overlap.sel(layer=0, head=0, role="sum")) == pytest.approx(0.5)
    assert float(result.table.share.sel(layer=0, head=0, role="sum")) == pytest.approx(1)
    assert result.attended.values.tolist() == [1, 1]


def test_a_choice_by_value_shows_in_single_rows_and_not_in_their_mean():
    keys = key_sets(MultiOperandAddition(3, 3))
    rows = one_digit_each(keys, (0, 1))
    cell = compute_key_attention([rows], keys, MADE_UP, resamples=99).table.sel(layer=0, head=0, role="sum")
    assert (float(cell.overlap), float(cell.overlap_each)) == pytest.approx((1, 0.5))


def test_the_number_of_keys_grows_with_the_operands_where_attention_is_even(hand_built):
    attended = []
    for operands in (2, 3, 4):
        keys = key_sets(MultiOperandAddition(operands, 2))
        even = np.where(keys.visible, 1.0, 0)
        even /= even.sum(-1, keepdims=True)
        found = compute_key_attention([np.stack([even[None, None]] * 2)], keys, MADE_UP, resamples=9)
        where = keys.defined[0]
        assert found.attended.values == pytest.approx([keys.visible[where].sum(-1).mean()] * 2)
        attended.append(found.attended.values[0])
    assert attended[0] < attended[1] < attended[2]


def test_without_scratchpad_only_digit_sum_and_carry_are_asked_for():
    model = models.build("position-coupling-1l4h-nope-no-scratchpad-small")
    result = interp.key_attention(model, task=model.task.at(3, 2), n=8)
    assert result.table.role.values.tolist() == ["sum", "carry"]
    with pytest.raises(UserError):
        result.role(3, 0)


def test_a_head_that_rests_on_bos_plays_no_role_with_what_is_left(hand_built):
    task = hand_built.task.at(3, 3)
    rows = rows_of(hand_built, task)
    resting = 0.05 * rows
    resting[..., 0] += 0.95
    result = compute_key_attention([resting], key_sets(task), MADE_UP, resamples=99)
    assert set(result.roles().values()) == {None}
    assert float(result.table.share.sel(layer=0, head=0, role="sum")) == pytest.approx(1, abs=1e-3)


# ---- substitution


@pytest.fixture(scope="module")
def substituted(hand_built):
    return interp.pattern_patching(hand_built, task=hand_built.task.at(3, 3), n=40)


def test_the_constructed_patterns_replace_the_hand_built_heads_without_loss(substituted):
    own = substituted.table[substituted.table["own_role"]]
    assert own["unit"].tolist() == [f"L0H{head}" for head in range(4)] + [EVERYONE]
    assert (own["exact"] == 1).all() and (own["exact_whole_model"] == 1).all() and own["bos"].all()
    assert all(substituted.cell("exact", unit=f"L0H{head}", pattern="own mean").value == 1 for head in range(4))


def test_a_silenced_head_or_another_role_s_pattern_breaks_the_hand_built_model(substituted):
    silenced = substituted.table.query("pattern == 'zero'")
    assert len(silenced) == 4 and (silenced["exact"] == 0).all() and (silenced["lost"] == 40).all()
    assert (silenced["p_changed"] < 1e-9).all()
    assert substituted.cell("exact", unit="L0H0", pattern="ideal carry").value == 0
    assert substituted.cell("exact", unit="L0H1", pattern="ideal digit sum").value == 0


def test_without_the_share_of_bos_the_constructed_sum_is_half_too_large(hand_built):
    result = interp.pattern_patching(hand_built, task=hand_built.task.at(3, 3), n=20, heads=[(0, 0)], bos=False)
    assert result.cell("exact", unit="L0H0", pattern="ideal digit sum").value == 0
    assert result.table["unit"].unique().tolist() == ["L0H0", EVERYONE] and not result.table["bos"].any()


def test_substitution_counts_what_is_lost_and_won():
    before = np.array([[True, True]] * 6 + [[True, False]] * 4)
    after = np.array([[True, True]] * 4 + [[False, True]] * 4 + [[True, True]] * 2)
    result = compute_pattern_patching(before, {("L0H0", "zero"): after}, {"L0H0": None}, Provenance(10, 0, "x"))
    (row,) = result.table.to_dict("records")
    assert (row["exact_whole_model"], row["right"], row["lost"], row["won"]) == (0.6, 6, 2, 2)
    assert row["p_changed"] == 1 and row["tokens"] == pytest.approx(0.8)
    assert row["exact_low"] < 0.6 < row["exact_high"] and not row["own_role"]


def test_substitution_leaves_no_hook_behind_and_refuses_unknown_heads(hand_built, substituted):
    assert not hand_built.hook_dict["blocks.0.attn.hook_pattern"].fwd_hooks
    with pytest.raises(UserError, match="no head L0H9"):
        interp.pattern_patching(hand_built, task=hand_built.task.at(2, 2), n=4, heads=[(0, 9)])


# ---- what heads write


def test_hand_built_sum_and_carry_heads_write_the_digit_on_a_line_and_the_others_nothing(hand_built):
    result = interp.ov_output_shape(hand_built, task=hand_built.task.at(3, 3), n=64)
    linear = result.table.linear.values[0]
    assert linear[:2] == pytest.approx(1, abs=1e-6) and np.isnan(linear[2:]).all()
    assert (result.table.p_value.values[0, :2] < 0.01).all()
    steps = np.diff(result.line_of.values[0, 0])
    assert steps == pytest.approx(steps.mean(), abs=1e-4) and steps.mean() > 0


def test_random_codes_of_digits_are_as_linear_as_chance():
    random = np.random.default_rng(0).normal(size=(10, 400))
    result = compute_ov_output_shape(random[None, None], MADE_UP)
    assert float(result.table.linear[0, 0]) == pytest.approx(1 / 9, abs=0.05)
    assert float(result.table.p_value[0, 0]) > 0.01
