"""Distances and matchings on arrays whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from interp.compare import weight_circuits as circuits
from interp.compare.head_matching import head_distances, shuffled_roles
from interp.compare.matching import centred_rows, match, relabelled_distances, scaled_distance
from interp.compare.neuron_matching import correlations, unit_distances, varying
from interp.compare.paired_readings import common_columns, read
from interp.compare.weight_circuits import inner_products

seeds = st.integers(0, 2**31 - 1)


@given(seeds)
def test_permuted_heads_are_matched_with_themselves(seed: int):
    rng = np.random.default_rng(seed)
    roles = rng.dirichlet(np.full(4, 0.5), (3, 5, 6))
    order = rng.permutation(5)
    distance = head_distances(roles[:, order], roles).mean(0)
    assert [int(order[i]) for _, i in match(distance)] == list(range(5))
    assert sum(distance[i, j] for j, i in match(distance)) == 0


def test_roles_without_keys_take_no_part_in_the_shuffle():
    rng = np.random.default_rng(0)
    roles = rng.dirichlet(np.ones(5), (4, 2, 3))
    roles[:, :, 1, 2] = 0
    shuffled = shuffled_roles(roles, rng)
    assert (shuffled[:, :, 1, 2] == 0).all()
    assert np.sort(shuffled, -1) == pytest.approx(np.sort(roles, -1))
    assert not np.allclose(shuffled, roles)


@given(seeds, st.floats(1e-3, 1e3), st.floats(-5, 5))
def test_tables_are_compared_up_to_a_scale_and_a_constant_a_row(seed: int, scale: float, shift: float):
    table = np.random.default_rng(seed).normal(size=(3, 4))
    other = scale * table + shift * np.arange(3)[:, None]
    distance, factor = scaled_distance(centred_rows(table), centred_rows(other))
    assert distance == pytest.approx(0, abs=1e-9)
    assert factor == pytest.approx(scale, rel=1e-9)


def test_the_factor_is_that_of_least_squares_and_leaves_the_stated_share():
    a, b = np.random.default_rng(0).normal(size=(2, 5, 6))
    b = b + a
    distance, factor = scaled_distance(a, b)
    assert factor == pytest.approx(np.linalg.lstsq(a.reshape(-1, 1), b.ravel(), rcond=None)[0][0])
    left = ((b - factor * a) ** 2).sum() / (b**2).sum()
    assert 1 - (1 - distance) ** 2 == pytest.approx(left)


@pytest.mark.parametrize(("rows", "both"), [(4, False), (4, True), (1, False)])
def test_relabelled_tables_are_compared_as_one_by_one(rows: int, both: bool):
    a, b = np.random.default_rng(1).normal(size=(2, rows, 4))
    found = relabelled_distances(a, b, both, 20, np.random.default_rng(7))
    orders = np.argsort(np.random.default_rng(7).random((20, 4)), axis=1)
    for distance, order in zip(found, orders, strict=True):
        moved = a[:, order] if rows == 1 else a[np.ix_(order, order)] if both else a[order]
        assert distance == pytest.approx(scaled_distance(moved, b)[0])


def test_opposite_tables_are_as_far_as_unrelated_ones_and_zeros_say_nothing():
    table = np.array([[1.0, -1.0], [2.0, -2.0]])
    assert scaled_distance(table, -table) == (1.0, 0.0)
    assert scaled_distance(table, 0 * table)[0] == 1.0
    assert np.isnan(scaled_distance(0 * table, 0 * table)[0])


def test_keys_that_are_not_seen_do_not_move_a_rows_mean():
    table = np.array([[1.0, 3.0, np.nan], [1.0, 2.0, 6.0]])
    assert centred_rows(table).tolist() == [[-1.0, 1.0, 0.0], [-2.0, -1.0, 3.0]]


def test_inner_products_see_no_rotation_and_no_shift():
    rng = np.random.default_rng(0)
    points, (q, _) = rng.normal(size=(6, 4)), np.linalg.qr(rng.normal(size=(4, 4)))
    assert inner_products(points @ q + 3) == pytest.approx(inner_products(points))


def test_a_unit_that_does_the_opposite_is_far_unless_its_sign_is_free():
    rng = np.random.default_rng(0)
    units = rng.normal(size=(20, 3, 2))
    values = correlations(units, -2 * units + 1)
    assert np.diag(unit_distances(values, sign_free=False)).tolist() == [1.0, 1.0]
    assert np.diag(unit_distances(values, sign_free=True)).tolist() == [0.0, 0.0]
    assert values == pytest.approx(-np.corrcoef(units.reshape(-1, 2).T))


def test_constant_units_are_said_not_to_vary():
    units = np.random.default_rng(0).normal(size=(10, 3, 3))
    units[..., 1] = 0.7
    assert varying(units).tolist() == [True, False, True]


def test_tables_leave_out_tokens_that_no_problem_has_where_the_vocabulary_is_large(monkeypatch: pytest.MonkeyPatch):
    """They would be as wide as the vocabulary squared; the other entries stay as they are, but for the rows' means."""
    model = models.load("microadder-57")
    problems = model.task.sample(40, torch.Generator().manual_seed(0)) * 0 + 12  # no 3 to 9 anywhere
    at = common_columns(model.task, problems, model.task.encode(problems))
    whole = circuits.head_tables(read(model, at), at)
    monkeypatch.setattr(circuits, "MOST_TOKENS", 4)
    few, seen = circuits.head_tables(read(model, at), at), at.tokens.unique().numpy()
    assert len(seen) < model.cfg.d_vocab == len(whole["OV: token"][0])
    assert few["OV: token"] == pytest.approx(whole["OV: token"][:, seen])
    square = whole["QK: token -> token"][:, seen][:, :, seen]
    assert few["QK: token -> token"] == pytest.approx(centred_rows(square))
    digits = model.W_E.detach().double().numpy()[seen[seen < 10]]
    assert circuits.model_tables(read(model, at), at)["digits"] == pytest.approx(circuits.inner_products(digits))
