"""Key sets of any task, and the questions about heads that take them."""

from __future__ import annotations

import numpy as np
import pytest

import interp
import models
from interp.compare.construction.key_sets import key_sets, keys_by_role
from interp.compare.head_matching import known_mean
from interp.core.significance import permutation_p
from interp.core.stats import mean_interval, mean_intervals
from models.errors import UserError
from models.tasks import TenDigitAddition


@pytest.mark.parametrize("task", [TenDigitAddition(), models.build("parity-hand-built", max_bits=5).task])
def test_the_keys_of_a_task_are_the_positions_that_it_gives_roles_to(task):
    keys = keys_by_role(task)
    for target, query in enumerate(task.query_positions):
        for name, positions in task.relative_roles(target).items():
            seen = [p for p in positions if p <= query and task.roles[p].kind != "bos"]
            if name in keys.roles:
                assert np.flatnonzero(keys.member[keys.index(name), target]).tolist() == sorted(seen)
            else:
                assert name == "rest" or not seen
    assert not (keys.member & ~keys.visible).any() and (keys.defined.any(1)).all()
    assert keys.only(["no such role"]).roles == ()


def test_keys_that_a_query_does_not_see_are_left_out():
    task = TenDigitAddition()
    keys = key_sets(task, lambda target: {"first": [0], "last": [task.input_length - 1]})
    assert keys.member[0].any(1).all()
    assert keys.member[1].any(1).tolist() == [q == task.input_length - 1 for q in task.query_positions]


def test_heads_of_another_task_play_the_roles_of_its_positions():
    model = models.load("adder-456")
    found = interp.key_attention(model, n=16, keys=keys_by_role)
    assert found.role(0, 0) == "own operands"
    cell = found.table.sel(layer=0, head=0, role="own operands")
    assert float(cell.weight) > 0.8 > 0.2 > float(cell.overlap_shuffled_high)
    assert "own operands" in found.figure().to_json()
    with pytest.raises(UserError):
        interp.key_attention(model, n=16)


def test_an_adder_s_head_writes_digits_on_a_line_and_two_bits_always_lie_on_one():
    found = interp.ov_output_shape(models.load("adder-456"), n=64)
    assert found.table.linear.item() > 0.99 and found.table.p_value.item() < 0.01
    with pytest.raises(UserError):
        interp.ov_output_shape(models.build("parity-hand-built", max_bits=5), n=16)


def test_intervals_and_permutations_cell_by_cell_are_those_of_each_cell():
    rng = np.random.default_rng(0)
    values, null = rng.normal(size=(7, 2, 3)), rng.normal(size=(19, 2, 3))
    values[2, 1, 1] = np.nan
    values[:, 0, 0] = np.nan
    mean, low, high = mean_intervals(values)
    p = permutation_p(values[0], null)
    assert np.isnan([mean[0, 0], low[0, 0], high[0, 0]]).all()
    for cell in ((0, 1), (1, 1)):
        kept = values[(slice(None), *cell)]
        assert (mean[cell], low[cell], high[cell]) == mean_interval(kept[~np.isnan(kept)])
        assert p[cell] == permutation_p(float(values[(0, *cell)]), null[(slice(None), *cell)])


def test_a_mean_over_targets_leaves_out_what_is_missing():
    assert known_mean(np.array([[1.0, np.nan, 3.0], [np.nan] * 3])).tolist()[0] == 2
    assert np.isnan(known_mean(np.full((1, 2), np.nan))).all()
