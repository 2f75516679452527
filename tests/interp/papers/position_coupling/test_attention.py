"""Where heads look in multi-operand addition, with the hand-built model as ground truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
import models
from interp.core.controls import untrained_copy
from interp.core.results import Provenance
from interp.papers.position_coupling.attention import compute_needed_attention
from interp.papers.position_coupling.keys import HAND_BUILT_HEADS, key_sets
from interp.probes.key_sets import KeySets, measure_rows, read_patterns
from models.errors import UserError
from models.tasks.multi_addition import AdditionFormat, MultiOperandAddition

SHAPES = [(1, 2), (2, 3), (4, 3), (6, 2)]
NO_SCRATCHPAD = AdditionFormat(scratchpad=False)


@pytest.fixture(scope="module")
def hand_built():
    return models.build("position-coupling-hand-built", max_operands=6, max_digits=4)


@pytest.fixture(scope="module")
def untrained():
    return models.build("position-coupling-1l4h-small", seed=1)


def random_rows(keys: KeySets, seed: int, n: int = 3) -> np.ndarray:
    """Made-up rows [n, 1, 2, target, key] that sum to 1 over BOS and the visible keys."""
    weights = np.random.default_rng(seed).random((n, 1, 2, *keys.visible.shape)) ** 4
    weights[..., 1:] *= keys.visible[:, 1:]
    return weights / weights.sum(-1, keepdims=True)


# ---- the ground truth


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4))
def test_needed_tokens_are_those_whose_position_ids_match(operands, digits):
    task = MultiOperandAddition(operands, digits)
    keys = key_sets(task)
    ids = task.position_ids(task.encode(torch.zeros(1, operands, digits, dtype=torch.long)))[0].numpy()
    query = ids[list(keys.queries)]
    for role, offset in (("sum", 1), ("carry", 0)):
        matching = (ids[:, 0] == query[:, :1] + offset) & (ids[:, 1] == query[:, 1:] - 1) & keys.visible
        where = keys.defined[keys.index(role)]
        assert (keys.member[keys.index(role)][where] == matching[where]).all()
    total, carry, arrow, eos = keys.member
    assert not (total & ~arrow).any()
    assert ((carry.astype(int) + arrow + eos) <= 1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_ideal_patterns_are_the_hand_built_ones(hand_built, shape):
    task = hand_built.task.at(*shape)
    keys = key_sets(task)
    tokens = task.encode(task.sample(4, torch.Generator().manual_seed(0)))
    rows = np.concatenate(list(read_patterns(hand_built, tokens, keys.queries)))
    for head, role in HAND_BUILT_HEADS.items():
        where = keys.defined[keys.index(role)]
        assert where.any()
        expected = np.broadcast_to(keys.ideal(role, bos=True)[where], rows[:, 0, head][:, where].shape)
        assert rows[:, 0, head][:, where] == pytest.approx(expected, abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_shuffled_key_sets_keep_their_sizes_and_see_no_future(seed):
    keys = key_sets(MultiOperandAddition(3, 2))
    shuffled = keys.shuffled(5, seed)
    assert not (shuffled & ~keys.visible).any()
    for side in (keys.in_query, ~keys.in_query):
        assert ((shuffled & side).sum(-1) == (keys.member & side).sum(-1)).all()
    assert (shuffled != keys.member).any()


def test_without_scratchpad_every_operand_is_needed_and_two_roles_have_no_counterpart():
    keys = key_sets(MultiOperandAddition(4, 2, NO_SCRATCHPAD))
    assert keys.roles == ("sum", "carry")
    assert set(keys.member[0].sum(-1)[keys.defined[0]]) == {4}
    with pytest.raises(UserError, match="no role 'eos'"):
        keys.index("eos")


@pytest.mark.parametrize(
    "task", [MultiOperandAddition(2, 2, AdditionFormat(zero_padding=False)), models.tasks.TenDigitAddition()]
)
def test_other_tasks_are_refused(untrained, task):
    with pytest.raises(UserError):
        interp.needed_attention(untrained, task=task, n=4)


def test_an_untrained_copy_has_other_weights_and_leaves_the_model_alone(untrained, hand_built):
    before = untrained.W_Q.clone()
    copy = untrained_copy(untrained, 5)
    assert copy is not None and not torch.equal(copy.W_Q, before) and torch.equal(untrained.W_Q, before)
    assert untrained_copy(hand_built, 5) is None


# ---- measures of rows


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_measures_of_rows_are_what_their_definition_says(seed):
    keys = key_sets(MultiOperandAddition(2, 2))
    rows = random_rows(keys, seed)
    found = measure_rows(rows, keys)
    role, target = 0, int(np.flatnonzero(keys.defined[0])[-1])
    row = rows[1, 0, 1, target]
    needed = np.flatnonzero(keys.member[role, target])
    rest = np.where(np.arange(len(row)) > 0, row, 0)
    assert found["share"][1, 0, 1, target, role] == pytest.approx(row[needed].sum(), abs=1e-6)
    assert found["keys"][1, 0, 1, target] == (rest > 0.01).sum()
    p = rest[rest > 0] / rest.sum()
    assert found["effective"][1, 0, 1, target] == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-4)
    assert found["top"][1, 0, 1, target, role] == (set(np.argsort(-rest)[:2]) == set(needed))
    assert np.isnan(found["share"][..., ~keys.defined[0], 0]).all()


def test_a_head_that_looks_at_bos_alone_attends_to_no_token():
    keys = key_sets(MultiOperandAddition(2, 2))
    rows = np.zeros((1, 1, 1, *keys.visible.shape))
    rows[..., 0] = 1
    found = measure_rows(rows, keys)
    assert (found["keys"] == 0).all() and np.isnan(found["effective"]).all() and (found["bos"] == 1).all()


# ---- needed attention


@pytest.mark.parametrize("head, role", [(0, "sum"), (1, "carry")])
def test_hand_built_heads_put_two_thirds_on_the_two_needed_tokens(hand_built, head, role):
    result = interp.needed_attention(hand_built, task=hand_built.task.at(4, 3), n=16)
    cell = result.table.sel(layer=0, head=head, role=role)
    assert float(cell.share) == pytest.approx(2 / 3, abs=1e-5)
    assert float(cell.off_bos) == pytest.approx(1, abs=0.02)
    assert float(cell.agreement) == 1 and float(cell["first"]) == 1
    assert float(cell.choice) < 1e-6 and cell.quantiles.values == pytest.approx(2 / 3, abs=1e-5)
    assert float(cell.shuffled_high) < 0.2 and float(cell.p_value) == pytest.approx(1 / 200)
    other = result.table.sel(layer=0, head=head, role="carry" if role == "sum" else "sum")
    assert float(other.share) < 1e-5


def test_an_untrained_decoder_attends_to_the_needed_tokens_no_more_than_to_shuffled_ones(untrained):
    result = interp.needed_attention(untrained, task=untrained.task.at(4, 3), n=24)
    assert (result.table.share.values < 0.2).all() and (result.table.agreement.values < 0.2).all()
    assert (np.abs(result.table.share - result.table.shuffled).values < 0.1).all()
    assert (result.heads["keys"].values > 10).all()
    assert 0 < float(result.table.untrained.sel(role="sum")) <= float(result.table.untrained_max.sel(role="sum")) < 0.2


def test_a_head_that_picks_one_of_two_digits_by_value_has_the_same_mean_and_another_spread():
    task = MultiOperandAddition(3, 2)
    keys = key_sets(task)
    length, n = len(keys.key_labels), 200
    coin = np.random.default_rng(0).random((n, len(keys.queries))) < 0.5
    patterns = np.zeros((n, 1, 2, length, length))
    patterns[..., 0] = 1
    for target in np.flatnonzero(keys.defined[0]):
        query, pair = keys.queries[target], np.flatnonzero(keys.member[0, target])
        patterns[:, :, :, query] = 0
        patterns[:, 0, 0, query, pair] = 0.5
        patterns[np.arange(n), 0, 1, query, np.where(coin[:, target], pair[0], pair[1])] = 1
    result = compute_needed_attention([patterns], keys, task.shape, Provenance(n, 0, "made-up problems"))
    both, one = (result.table.sel(layer=0, head=head, role="sum") for head in (0, 1))
    assert float(both.share) == float(one.share) == pytest.approx(1)
    assert np.abs(result.pattern.values[0, 0] - result.pattern.values[0, 1]).max() < 0.15
    assert float(both.choice) < 1e-6 and float(one.choice) == pytest.approx(0.5, abs=0.02)
    assert float(both.agreement) == 1 and float(one.agreement) == 0 and float(one["first"]) == 1


def test_the_mean_pattern_is_the_mean_over_problems_whatever_the_chunks(hand_built):
    task = hand_built.task.at(2, 2)
    tokens = task.encode(task.sample(6, torch.Generator().manual_seed(0)))
    whole = np.concatenate(list(read_patterns(hand_built, tokens)))
    provenance = Provenance(6, 0, "made-up problems")
    parts = [whole[:1], whole[1:5], whole[5:]]
    first, second = (compute_needed_attention(x, key_sets(task), task.shape, provenance) for x in ([whole], parts))
    assert first.pattern.values == pytest.approx(whole.mean(0), abs=1e-6)
    assert first.pattern.values == pytest.approx(second.pattern.values, abs=1e-9)
    assert first.to_dataframe().select_dtypes("number").equals(second.to_dataframe().select_dtypes("number"))


def test_a_result_states_what_it_rests_on(untrained):
    result = interp.needed_attention(untrained, task=untrained.task.at(2, 2), n=8, seed=3)
    assert "sampled: n = 8 problems of T_A(2, 2), seed 3" in str(result)
    frame = result.to_dataframe()
    assert len(frame) == 4 * 2 and {"share", "low", "high", "q05", "q95", "keys", "untrained"} <= set(frame)
    assert "NeededAttention" in result._repr_html_()
    with pytest.raises(UserError, match="no head 9"):
        result.row(0, 9)


# ---- growth


def test_hand_built_digit_sum_attends_to_two_tokens_whatever_the_operands_and_the_arrow_head_to_more(hand_built):
    result = interp.attended_growth(hand_built, operands=(2, 3, 4, 5), digits=2, n=4)
    total = result.slopes.sel(unit="L0H0", measure="keys")
    assert float(total.slope) == pytest.approx(0) and float(total.high) == pytest.approx(0)
    assert result.table["keys"].sel(unit="L0H0").values == pytest.approx(2)
    assert float(result.slopes.slope.sel(unit="L0H2", measure="keys")) == pytest.approx(1.5)
    assert (result.table.needed.values == 2).all() and (result.table.exact.values == 1).all()


@pytest.mark.parametrize("measure", ["keys", "effective"])
def test_uniform_attention_on_what_is_needed_grows_by_one_token_an_operand_without_scratchpad(measure):
    model = models.build("position-coupling-1l4h-nope-no-scratchpad-small")

    def needed_only(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        operands = next(m for m in range(2, 6) if model.task.at(m, 3).input_length == pattern.shape[-1])
        keys = key_sets(model.task.at(operands, 3))
        made = torch.zeros_like(pattern)
        made[..., 0] = 1
        made[:, :, list(keys.queries)] = torch.from_numpy(keys.ideal("sum")).to(made)
        return made

    model.hook_dict["blocks.0.attn.hook_pattern"].add_perma_hook(needed_only)
    result = interp.attended_growth(model, operands=(2, 3, 4, 5), digits=3, n=4, untrained=[])
    slope = result.slopes.sel(unit="L0H1", measure=measure)
    assert [float(slope[name]) for name in ("slope", "low", "high")] == pytest.approx([1, 1, 1], abs=1e-5)
    assert result.table[measure].sel(unit="L0H1").values == pytest.approx([2, 3, 4, 5], abs=1e-5)
    assert result.table.needed.values.tolist() == [2, 3, 4, 5]


def test_an_untrained_head_spreads_over_longer_sequences(untrained):
    result = interp.attended_growth(untrained, operands=(2, 3, 4), digits=2, n=4)
    assert (result.slopes.slope.sel(measure="effective").values[:-1] > 1).all()
    assert (result.slopes.untrained.sel(measure="effective").values > 1).all()


def test_a_slope_needs_three_points_and_a_spread_two_problems(hand_built):
    with pytest.raises(UserError, match="at least 3"):
        interp.attended_growth(hand_built, operands=(2, 3), n=4)
    with pytest.raises(UserError, match="at least 2"):
        interp.attended_growth(hand_built, n=1)
