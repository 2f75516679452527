"""The keys that multi-operand addition needs, with the hand-built model as ground truth."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
import models
from interp.compare.construction.needed_keys import key_sets
from interp.core.runs import read_patterns
from models.errors import UserError
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition

SHAPES = [(1, 2), (2, 3), (4, 3), (6, 2)]
NO_SCRATCHPAD = AdditionFormat(scratchpad=False)


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
    for head, role in enumerate(("sum", "carry", "arrow", "eos")):
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
        interp.key_attention(untrained, task=task, n=4)
