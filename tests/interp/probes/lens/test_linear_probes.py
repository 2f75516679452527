"""Linear probes: what they must find, what they must not learn by heart, and what they must not have seen."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from interp.core.batches import distinct
from interp.core.controls import untrained_twin
from interp.core.named_places import positions_for, stream_points
from interp.core.results import Provenance
from interp.probes.lens import compute_linear_probes, linear_probes
from interp.probes.lens.probe_labels import SIGNALS, column_labels, pair_folds
from interp.probes.lens.ridge_probe import directions, held_out_predictions
from models.errors import UserError
from models.tasks.named.addition import TenDigitAddition, TwoDigitAddition
from studies.papers import DATA
from tests.interp.probes.lens.made import random_model

TASK = TenDigitAddition()


def made_up(n: int = 3000, seed: int = 0):
    """(problems, variables, labels of column 4 for every signal)."""
    problems = TASK.sample(n, torch.Generator().manual_seed(seed))
    variables = TASK.variables(problems)
    labels = [column_labels(variables, TASK.target_roles[4], signal) for signal in SIGNALS]
    return problems, variables, [found for found in labels if found is not None]


def probed(activations: np.ndarray, labels):
    found = compute_linear_probes(
        {"here": activations[:, None]}, [labels], ["s4"], "made up", "query", Provenance(len(activations), 0, "made up")
    )
    return found.table[found.table.column == "s4"].set_index("signal")


# ---- labels and folds


def test_labels_are_the_algorithms_and_the_carry_in_is_the_carry_out_below():
    _, variables, labels = made_up()
    found = {each.signal: each for each in labels}
    assert np.array_equal(found["digit_sum"].value, variables["digit_sum"][:, 4].numpy())
    assert np.array_equal(found["nine"].value, variables["propagate"][:, 4].numpy())
    assert np.array_equal(found["carry_out"].value, variables["carry_out"][:, 4].numpy())
    assert np.array_equal(found["carry_in"].value, variables["carry_in"][:, 4].numpy())
    assert np.array_equal(found["carry_in"].value, variables["carry_out"][:, 3].numpy())
    assert column_labels(variables, TASK.target_roles[0], "carry_in") is None  # nothing is carried into the units


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_label_is_a_function_of_its_type_and_the_control_deals_the_same_labels_anew(signal: str):
    _, _, labels = made_up()
    (found,) = [each for each in labels if each.signal == signal]
    dealt = found.shuffled(np.random.default_rng(1))
    for values in (found.value, dealt):
        for kind in np.unique(found.type):
            assert len(np.unique(values[found.type == kind])) == 1
            assert len(np.unique(found.pair[found.type == kind])) == 1
    _, first = np.unique(found.type, return_index=True)
    assert sorted(found.value[first]) == sorted(dealt[first])
    assert (found.value != dealt).any()


@given(st.integers(0, 2**32 - 1), st.integers(2, 11))
def test_no_pair_is_in_two_folds_in_either_order_and_every_fold_has_small_and_large_sums(seed: int, folds: int):
    a, b = np.divmod(np.arange(100), 10)
    fold = pair_folds(np.minimum(a, b) * 10 + np.maximum(a, b), folds, np.random.default_rng(seed)).reshape(10, 10)
    assert np.array_equal(fold, fold.T) and set(fold.ravel()) == set(range(folds))
    sums = (a + b).reshape(10, 10)
    for each in range(folds):
        assert sums[fold == each].min() < 9 < sums[fold == each].max()
    if folds == 5:
        assert sorted({fold[i, 9 - i] for i in range(10)}) == list(range(5))


def test_a_problem_counts_once():
    problems = torch.tensor([[3, 4], [5, 6], [3, 4], [4, 3]])
    assert distinct(problems).tolist() == [[3, 4], [5, 6], [4, 3]]


# ---- what a probe finds


def test_digits_that_lie_linearly_give_sum_and_carry_but_not_the_nine():
    _, variables, labels = made_up()
    x = torch.stack([variables[name][:, 4] for name in ("a", "b")], 1).double().numpy()
    table = probed(x + 0.01 * np.random.default_rng(0).standard_normal(x.shape), labels)
    assert table.accuracy["digit_sum"] > 0.99 and table.score["digit_sum"] > 0.999
    assert table.accuracy["carry_out"] > 0.9 and table.score["carry_out"] > 0.98
    assert table.score["nine"] < 0.6 and table.accuracy["carry_in"] < 0.6
    assert table.selectivity["carry_out"] > 0.35 and table.accuracy_shuffled["digit_sum"] < 0.2


def test_a_table_of_pairs_is_learnt_by_heart_only_where_the_pairs_were_seen():
    _, _, labels = made_up()
    labels = [each for each in labels if each.signal == "carry_out"]
    table = probed(np.eye(100)[labels[0].pair], labels)
    assert table.accuracy_memorised["carry_out"] > 0.93  # all but the pairs of a nine, which hold two types
    assert table.accuracy_shuffled["carry_out"] < 0.6 and table.accuracy["carry_out"] < 0.65
    assert table.score["carry_out"] < 0.6


def test_noise_gives_the_commonest_label():
    _, _, labels = made_up()
    table = probed(np.random.default_rng(0).standard_normal((3000, 6)), labels)
    assert (abs(table.selectivity) < 0.1).all() and (table.score < 0.6).all()


def test_intervals_hold_the_estimate_and_pairs_are_the_wider_clusters():
    _, variables, labels = made_up()
    x = torch.stack([variables[name][:, 4] for name in ("a", "b")], 1).double().numpy()
    table = probed(x, labels)
    for low, high in (("accuracy_low", "accuracy_high"), ("problem_low", "problem_high")):
        assert ((table[low] <= table.accuracy) & (table.accuracy <= table[high])).all()
    wide, narrow = table.accuracy_high - table.accuracy_low, table.problem_high - table.problem_low
    assert wide["carry_out"] > narrow["carry_out"]


def test_predictions_are_ridge_regressions_of_the_other_folds():
    rng = np.random.default_rng(2)
    x, y, fold = rng.standard_normal((60, 4)), rng.standard_normal((60, 2)), np.arange(60) % 3
    found = held_out_predictions(x, y, fold, ridge=0.1)
    train, test = fold != 1, fold == 1
    z = (x - x[train].mean(0)) / x[train].std(0)
    padded = np.concatenate((z, np.ones((60, 1))), 1)  # the intercept is not shrunk
    penalty = 0.1 * train.sum() * np.diag([1.0] * 4 + [0.0])
    weights = np.linalg.solve(padded[train].T @ padded[train] + penalty, padded[train].T @ y[train])
    np.testing.assert_allclose(found[test], padded[test] @ weights, atol=1e-6)
    read = (x[test] - x[train].mean(0)) @ directions(x[train], y[train], ridge=0.1) + y[train].mean(0)
    np.testing.assert_allclose(read, found[test], atol=1e-12)


# ---- on models


@pytest.mark.slow
def test_an_untrained_copy_stands_beside_every_accuracy():
    """The carry of two digits is read from random features nearly as well: ToyGPT, at the position of b0."""
    model = models.load("toygpt-learned-pre")
    found = linear_probes(model, signals="carry_out", sites=["L0 mid", "L1 post"], n=1500)
    rows = found.overall("carry_out")
    assert rows.accuracy_untrained.notna().all() and rows.score_untrained.notna().all()
    twin = linear_probes(untrained_twin(model, model.task, 0), signals="carry_out", sites="L1 post", n=1500)
    assert rows.accuracy_untrained[1] == twin.overall("carry_out").accuracy[0]


def test_several_positions_are_read_together_and_heads_are_flattened():
    model = models.load("microadder-57")
    both = linear_probes(model, n=512, at="own operands", sites="L0 pre", signals="digit_sum")
    assert both.overall("digit_sum").score[0] > 0.99 and "s10" not in set(both.table.column)
    head = linear_probes(model, n=512, sites="blocks.0.attn.hook_z", signals="carry_out")
    assert head.overall("carry_out").score[0] > 0.99


def test_scratchpad_digits_of_many_operands_are_columns_too():
    model = models.build("position-coupling-hand-built", max_operands=3, max_digits=3)
    found = linear_probes(model, task=model.task.at(3, 2), n=600, sites="L0 mid", signals="digit_sum")
    assert {"b1[0]", "b2[1]", "b3[0]"} <= set(found.table.column)
    assert found.left_out == {"digit_sum": ("b3[2]",)}  # its digits are two zeros, or a zero and a one
    assert found.overall("digit_sum").score[0] > 0.98


def test_a_probe_finds_a_threshold_on_units_pairs_it_never_saw_and_nothing_in_dealt_labels():
    cell = np.repeat(np.arange(100), 10)
    rng = np.random.default_rng(0)
    total = cell // 10 + cell % 10
    x = np.stack([cell // 10, cell % 10], 1) + 0.01 * rng.standard_normal((1000, 2))
    dealt = rng.permutation(np.arange(100) % 2 == 0)[cell]
    labels = np.stack([total >= 10, dealt], 1)
    right = (held_out_predictions(x, np.where(labels, 1.0, -1.0), (cell % 7 + cell // 7) % 5) > 0) == labels
    assert right[:, 0].mean() > 0.93
    assert right[:, 1].mean() < 0.65


def test_a_probe_does_not_learn_the_table_of_pairs_by_heart():
    cell = np.repeat(np.arange(100), 5)
    labels = np.random.default_rng(1).random(100)[cell] < 0.5
    predicted = held_out_predictions(np.eye(100)[cell], np.where(labels, 1.0, -1.0)[:, None], cell % 5)
    assert ((predicted[:, 0] > 0) == labels).mean() < 0.65


@pytest.mark.slow
def test_the_stored_probes_of_two_digit_adders_are_found_again():
    stored = json.loads((DATA / "toygpt-carry.json").read_text())
    model = models.load(stored["model"])
    outputs = [f"blocks.{i}.hook_{part}_out" for i in range(model.cfg.n_layers) for part in ("attn", "mlp")]
    asked: dict[str, Any] = {"problems": TwoDigitAddition().domain.every(), "signals": "carry_out", "columns": "s0"}
    asked["sites"] = [*stream_points(model), *outputs]
    found = {at: linear_probes(model, at=at, **asked) for at in ("a1", "a0", "b1", "b0", "s0", "s1")}
    assert 0.75 < max(each.table.accuracy_untrained.max() for each in found.values()) < 1  # random features have it too
    rows = [(at, row) for at, each in found.items() for row in each.overall("carry_out").to_dict("records")]
    for (at, now), then in zip(rows, stored["probes"], strict=True):
        assert (at, now["site"], now["n"]) == (then["position"], then["site"], then["n"])
        assert now["accuracy"] == pytest.approx(then["accuracy"], abs=2e-3)  # other builds round differently
        assert now["accuracy_shuffled"] == pytest.approx(then["control"], abs=2e-3)
        assert now["accuracy_low"] <= now["accuracy"] <= now["accuracy_high"]


def test_columns_are_chosen_by_label_and_an_unknown_one_is_refused():
    model = models.build("toygpt-learned-pre")
    both = linear_probes(model, n=300, sites="L0 pre", signals="carry_out")
    one = linear_probes(model, n=300, sites="L0 pre", signals="carry_out", columns="s0")
    assert set(both.table.column) == {"s0", "s1", "all"} and set(one.table.column) == {"s0", "all"}
    units, pooled = (one.table[one.table.column == column].iloc[0] for column in ("s0", "all"))
    assert units.accuracy == pooled.accuracy == both.table[both.table.column == "s0"].iloc[0].accuracy
    with pytest.raises(UserError):
        linear_probes(model, n=300, sites="L0 pre", signals="carry_out", columns="s7")


def test_a_trained_parity_has_its_running_parity_behind_the_attention():
    model = models.load("parity-coupling-1l4h-small")
    found = linear_probes(model, task=model.task.at(8), signals="parity", n=250)
    rows = found.overall("parity").set_index("site")
    last = rows.index[-1]
    assert rows.accuracy[last] > 0.9 and rows.accuracy_shuffled[last] < 0.7


# ---- bad input


def test_a_place_is_a_query_a_role_or_a_position():
    task = TwoDigitAddition()
    assert positions_for(task, 1, "query") == [4] and positions_for(task, 1, "b0") == [3]
    assert positions_for(task, 0, "own operands") == [1, 3]
    with pytest.raises(UserError, match="Did you mean 'own operands'"):
        positions_for(task, 0, "own operand")


def test_bad_input_is_named():
    model = random_model("ln")
    with pytest.raises(UserError, match="Did you mean 'carry_out'"):
        linear_probes(model, signals="carry-out")
    with pytest.raises(UserError, match=r"Did you mean 'blocks\.0\.hook_resid_mid'"):
        linear_probes(model, sites="blocks.0.hook_resid_mide", n=200)
    with pytest.raises(UserError, match="without the positions after the batch"):
        linear_probes(model, sites="blocks.0.attn.hook_pattern", n=200)
    with pytest.raises(UserError, match="never fired|use_attn_result"):
        linear_probes(model, sites="blocks.0.attn.hook_result", n=200)
    for signals, sites in (([], None), ("nine", [])):
        with pytest.raises(UserError, match="at least one signal and one site"):
            linear_probes(model, signals=signals, sites=sites)
    with pytest.raises(UserError, match="folds must be"):
        linear_probes(model, folds=12)
    with pytest.raises(UserError, match="at least 100 different problems"):
        linear_probes(model, problems=TwoDigitAddition().domain.every()[:3].repeat(100, 1))
    with pytest.raises(UserError):
        linear_probes(models.load("parity-coupling-1l4h-small"), signals="carry_in")


def test_diverged_activations_and_questions_without_two_answers_are_refused():
    _, _, labels = made_up(200)
    with pytest.raises(UserError, match="diverged"):
        probed(np.full((200, 2), np.nan), labels)
    same = [type(each)(each.signal, each.value * 0, each.pair, each.type) for each in labels]
    with pytest.raises(UserError, match="both answers"):
        probed(np.zeros((200, 2)), same)
