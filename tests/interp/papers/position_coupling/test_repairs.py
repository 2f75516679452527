"""Where larger problems go wrong: pairs of position ids that never met in training."""

from __future__ import annotations

import torch

import interp
import models
from interp.papers.position_coupling.repairs import CONTROL, REPAIRED, WHOLE, as_many, met_in_training, repair
from models.tasks.multi_addition import MultiOperandAddition


def test_no_pair_of_the_training_shape_is_new():
    task = MultiOperandAddition(4, 3)
    assert met_in_training(task, (4, 3)).all()


def test_pairs_are_new_where_ids_are_farther_apart_than_in_training():
    task = MultiOperandAddition(4, 3)
    ids = task.position_ids(task.encode([(1, 2, 3, 4)]))[0].tolist()
    found = met_in_training(task, (2, 2))  # whose ids go from 1 to 4 and from 1 to 3
    for query, row in zip(task.query_positions, found.tolist(), strict=True):
        for key, met in enumerate(row):
            apart = [abs(a - b) for a, b in zip(ids[query], ids[key], strict=True)]
            assert met == ((apart[0] <= 3 and apart[1] <= 2) or ids[key] == [0, 0])


def test_the_construction_needs_no_pair_that_short_problems_do_not_have():
    model = models.load("position-coupling-hand-built")
    found = repair(model, model.task.at(6, 6), (2, 2), n=20)
    assert found[WHOLE] == found[REPAIRED] == 20 and set(found["single"].values()) == {20}


def test_a_trained_head_loses_larger_problems_to_pairs_that_it_never_met():
    """One head that is kept from them adds what the whole model does not: 12 operands of 12 digits, trained on 10."""
    model = models.load("position-coupling-1l4h-s10x10-ids40-small")
    task = model.task.at(12, 12)
    found = repair(model, task, (10, 10), n=20)
    assert found["heads"] == ["L0H3"] and found[WHOLE] < 10 and found[REPAIRED] == found["single"]["L0H3"] == 20
    # The head is needed: what it writes elsewhere is not the trouble.
    silent = interp.pattern_substitution(model, task=task, n=20, heads=[(0, 3)])
    assert silent.table.sel(pattern="zero", unit="L0H3").right == 0


def test_the_control_keeps_as_many_visible_keys_per_target_and_the_first_token():
    task = MultiOperandAddition(5, 4)
    allowed = met_in_training(task, (2, 2))
    visible = torch.arange(allowed.shape[1]) <= torch.tensor(task.query_positions)[:, None]
    drawn = as_many(allowed, task, seed=0)
    assert torch.equal(drawn.sum(1), (allowed & visible).sum(1)) and not (drawn & ~visible).any()
    assert drawn[:, 0].all() and not torch.equal(drawn, allowed & visible)
    assert not torch.equal(drawn, as_many(allowed, task, seed=1))


def test_what_never_attends_to_new_pairs_is_not_repaired_and_random_keys_break_it():
    model = models.build("position-coupling-hand-built", max_operands=4, max_digits=4)
    found = repair(model, model.task.at(4, 4), (2, 2), n=10)
    assert found[WHOLE] == found[REPAIRED] == 10 and set(found["single"].values()) == {10}
    assert len(found["heads"]) == 1  # of subsets that do as well, the smallest
    assert repair(model, model.task.at(4, 4), (4, 4), n=4)[CONTROL] == [4, 4, 4]  # all keys are all keys
