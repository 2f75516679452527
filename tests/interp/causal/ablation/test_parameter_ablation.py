"""Ablation of parameters: the stacked run is the plain loop, and the tables are what every example gives."""

from __future__ import annotations

import copy
from functools import cache
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models
from interp.causal.ablation import compute_parameter_ablation, parameter_ablation, parameter_names
from interp.causal.ablation.parameter_variants import initial_values, make_variants, run_variants
from interp.compare.parameter_tables import parameter_table
from interp.core.results import Provenance
from interp.core.samples import draw
from models.errors import UserError
from models.training.stacked_objective import ParameterLayout
from tests.conformance.table import dense
from tests.interp.conftest import stock_copy
from tests.sampling import sampled
from tests.toy_task import ToyAddition

ANSWERS = list(range(11))  # the answer digits of ten-digit addition; the twelfth target is EOS
LIKE_LOOP = ["microadder-57", "microadder-67", "adder-456", "a dense model"]


@cache
def load(name):
    if name == "a dense model":
        return dense(n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=3)(0)
    return models.load(name)


@cache
def small():
    """MicroAdder's arc, equals and output factors, one by one and in pairs."""
    return parameter_ablation(load("microadder-57"), n=128, only=["arc_A", "pos_z_hi", "out_B"])


def plain(model, theta, problems, targets):
    """One row of parameters written into the model, which then runs as it always does: (right, loss)."""
    edited = copy.deepcopy(model)
    ParameterLayout(edited).load_into(edited, theta)
    task = model.task
    with torch.no_grad():
        logits = edited(task.encode(problems))[:, [task.query_positions[t] for t in targets]].double()
    wanted = task.targets(problems)[:, targets]
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
    return logits.argmax(-1) == wanted, loss.mean(1)


@pytest.mark.parametrize("name", sampled(LIKE_LOOP, "microadder-57", "a dense model"))
def test_the_stacked_run_is_a_plain_loop_that_edits_the_parameter_and_runs_the_model(name):
    model = copy.deepcopy(load(name)).double()
    problems = draw(model.task, None, 24, 0).problems
    targets = ANSWERS if name != "a dense model" else [0, 1]
    zero = torch.zeros(ParameterLayout(model).n, dtype=torch.float64)
    variants = make_variants(model, zero, None, name == "microadder-57", 0)
    picked = torch.linspace(0, len(variants.theta) - 1, 40).long()  # singles, pairs and controls
    right, loss, _ = run_variants(model, model.task, problems, variants.theta[picked], targets)
    for row, ours, lost in zip(variants.theta[picked], right, loss, strict=True):
        expected, expected_loss = plain(model, row, problems, targets)
        assert torch.equal(ours, expected)
        torch.testing.assert_close(lost, expected_loss, rtol=1e-9, atol=1e-9)


def test_every_single_and_every_pair_is_there_and_replaces_what_its_name_says():
    model = load("microadder-57")
    names, trained = parameter_names(model), ParameterLayout(model).flatten(model)
    variants = make_variants(model, torch.zeros(57), None, True, 0)
    assert variants.theta.shape == (1 + 57 + 57 * 56 // 2 + 57 * 4, 57)
    assert torch.equal(variants.theta[0], trained)
    zeros = (variants.theta == 0) & (trained != 0)
    assert torch.equal(zeros[variants.singles], torch.eye(57, dtype=torch.bool) & (trained != 0))
    pairs = {frozenset(row.nonzero()[:, 0].tolist()) for row in zeros[variants.pair_rows]}
    assert len(pairs) == 1596 and all(len(pair) == 2 for pair in pairs)
    assert names[0] == "arc_A" and "W_qk[3,2]" in names and len(set(names)) == 57
    steps = (variants.theta[variants.pair_rows.stop :] - trained).norm(dim=1).view(57, 4)
    torch.testing.assert_close(steps, trained.abs()[:, None].expand(-1, 4), rtol=1e-4, atol=1e-5)


def test_rows_of_the_table_of_parameters_have_the_same_names():
    model = load("microadder-57")
    table = parameter_table(model)
    rows = table.itertuples(index=False)
    assert table[(table.parameter == "W_qk") & (table["index"] == "2,1")].value.item() == model.weight_map.W_qk[2, 1]
    assert parameter_names(model) == [f"{row.parameter}[{row.index}]" if row.index else row.parameter for row in rows]


def test_names_are_the_weights_own_places():
    model = load("microadder-57")
    place = parameter_names(model).index("W_head[1,3]")
    assert ParameterLayout(model).flatten(model)[place] == dict(model.weight_map.named_parameters())["W_head"][1, 3]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_drops_and_interactions_are_their_definitions(seed):
    rng = np.random.default_rng(seed)
    p, i, j = 4, *np.triu_indices(4, 1)
    right = rng.random((1 + p + 6 + 8, 30, 5)) < rng.random((19, 1, 1))
    losses = rng.exponential(size=(19, 30))
    result = compute_parameter_ablation(
        right, losses, list("abcd"), np.ones(p), np.zeros(p), np.stack((i, j)), Provenance(30, 0, "made-up problems")
    )
    accuracy = right.mean((1, 2))
    drop = accuracy[0] - accuracy
    assert result.table["drop"].values == pytest.approx(drop[1:5])
    assert result.table.rise.values == pytest.approx(losses[1:5].mean(1) - losses[0].mean())
    assert result.table.exact.values == pytest.approx(right[1:5].all(2).mean(1))
    assert result.table.drop_random.values == pytest.approx(drop[11:].reshape(4, 2).mean(1))
    assert result.table.most_random.values == pytest.approx(drop[11:].reshape(4, 2).max(1))
    pairs = result.pairs
    for k, (a, b) in enumerate(zip(i, j, strict=True)):
        cell = pairs.isel(parameter=a, other=b)
        assert float(cell["drop"]) == pytest.approx(drop[5 + k])
        assert float(cell.interaction_accuracy) == pytest.approx(drop[5 + k] - drop[1 + a] - drop[1 + b])
        rise = losses.mean(1) - losses[0].mean()
        assert float(cell.interaction_loss) == pytest.approx(rise[5 + k] - rise[1 + a] - rise[1 + b])
        assert float(cell.interaction_loss_low) <= float(cell.interaction_loss) <= float(cell.interaction_loss_high)
        k0, kp, ka, kb = (np.log((x.sum() + 0.5) / (150 - x.sum() + 0.5)) for x in right[[0, 5 + k, 1 + a, 1 + b]])
        assert float(cell.interaction_logit) == pytest.approx(ka + kb - kp - k0)
        assert float(pairs.drop_low[b, a]) == float(pairs.drop_low[a, b])
    assert np.isnan(np.diagonal(pairs["drop"].values)).all()


def test_two_parameters_that_back_each_other_up_interact_and_independent_ones_do_not():
    problem = np.arange(40)
    good, bad = np.ones((40, 1), bool), np.zeros((40, 1), bool)
    first, second = (problem % 4 == 0)[:, None], (problem % 4 == 1)[:, None]
    backed = np.stack([good, good, good, bad, good, good])  # clean, a, b, both, controls
    apart = np.stack([good, ~first, ~second, ~(first | second), good, good])
    for right, expected in ((backed, 1.0), (apart, 0.0)):
        result = compute_parameter_ablation(
            right, (~right[..., 0]).astype(float), ["a", "b"], np.ones(2), np.zeros(2), np.array([[0], [1]]),
            Provenance(40, 0, "made-up problems"),
        )  # fmt: skip
        assert float(result.pairs.interaction_accuracy.sel(parameter="a", other="b")) == pytest.approx(expected)
        assert float(result.pairs.interaction_loss.sel(parameter="a", other="b")) == pytest.approx(expected)


def test_a_parameter_without_which_more_is_right_does_not_stand_above_its_control():
    """Clean 30 of 40 right, 32 without a, and all with its random steps."""
    right = (np.arange(40) < np.array([30, 32, 40, 40])[:, None])[..., None]
    found = compute_parameter_ablation(
        right,
        np.ones((4, 40)),
        ["a"],
        np.ones(1),
        np.zeros(1),
        np.empty((2, 0), dtype=int),
        Provenance(40, 0, "made-up"),
    )
    assert float(found.table["drop"][0]) > float(found.table.most_random[0]) and found.above_control().empty


def test_a_replacement_by_the_trained_values_is_refused_and_by_some_of_them_is_marked():
    model = load("microadder-57")
    trained = ParameterLayout(model).flatten(model)
    with pytest.raises(UserError, match="changes nothing"):
        parameter_ablation(model, replacement=trained, n=8)
    values = trained.clone()
    values[0] = 0.0
    result = parameter_ablation(model, replacement=values, n=16, only=["arc_A", "pos_z_hi"])
    assert result.table.changed.values.tolist() == [True, False, False, False]
    assert result.table["drop"].values[1:].tolist() == [0, 0, 0]
    assert float(result.table["drop"].values[0]) > 0.5


def test_the_initial_value_is_what_a_build_of_the_seed_starts_from():
    model = load("microadder-57")
    fresh = models.build("microadder-57", seed=5)
    expected = ParameterLayout(fresh).flatten(fresh)
    assert torch.equal(initial_values(model, 5), expected)
    before = ParameterLayout(model).flatten(model)
    result = parameter_ablation(model, replacement="initial", n=8, seed=5, pairs=False)
    assert result.table.replaced_by.values == pytest.approx(expected.numpy())
    assert torch.equal(ParameterLayout(model).flatten(model), before)  # the model itself is left alone
    assert not result.pairs.data_vars


def test_the_place_of_the_last_digit_decides_eos_alone(published_57):
    result = parameter_ablation(published_57, n=512, only=["pos_z_hi"])
    assert (result.table.accuracy.values == 1).all() and (result.table.exact.values == 1).all()
    assert (result.pairs.accuracy.values[~np.eye(3, dtype=bool)] == 1).all()
    assert float(result.table.exact_low.min()) > 0.99


def test_a_collapsed_arc_leaves_ten_equal_logits():
    result = small()
    assert float(result.table.loss.sel(parameter="arc_A")) == pytest.approx(np.log(10), abs=1e-3)
    drops = result.table["drop"].to_series()
    assert drops[drops == 0].index.isin([f"pos_z_hi[{i}]" for i in range(3)]).sum() == 3


def test_a_stock_model_has_its_weights_as_free_parameters(monkeypatch):
    module = import_module("interp.causal.ablation.parameter_ablation")  # the package has the function by this name
    monkeypatch.setattr(module, "require_answered", lambda *_: None)
    model = dense(n_layers=1, d_model=4, n_heads=1, d_head=4, d_mlp=3, biases=False)(0)
    ours = parameter_ablation(model, only=["unembed/W_U"], n=16, pairs=False)
    stock = parameter_ablation(stock_copy(model), task=ToyAddition(), only=["unembed/W_U"], n=16, pairs=False)
    assert ours.table.sizes["parameter"] == 40
    assert ours.table.loss.values == pytest.approx(stock.table.loss.values, rel=1e-4)


BAD = {
    "more than 50% must be right": lambda: parameter_ablation(models.build("microadder-57", seed=1).eval()),
    "no free parameters": lambda: parameter_ablation(models.build("position-coupling-hand-built")),
    "it has no mean": lambda: parameter_ablation(load("microadder-57"), replacement="mean"),
    "more than the 20,000 that are run": lambda: parameter_ablation(load("adder-456")),
    "Did you mean 'W_qk'": lambda: parameter_ablation(load("microadder-57"), only=["W_q"]),
    "57 free parameters": lambda: parameter_ablation(load("microadder-57"), replacement=torch.zeros(3)),
    "An interaction is taken on": lambda: small().figure(scale="nats"),
    "There is no parameter 'W_qk[9,9]'": lambda: parameter_ablation(load("microadder-57"), only="W_qk[9,9]"),
    "the list of names is empty": lambda: parameter_ablation(load("microadder-57"), only=[]),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_sentence(message):
    with pytest.raises(UserError) as error:
        BAD[message]()
    assert message in str(error.value)


def test_single_numbers_may_be_chosen_by_the_names_that_the_table_gives_them():
    found = parameter_ablation(load("microadder-57"), n=16, only="W_qk[0,1]")
    assert found.table.parameter.values.tolist() == ["W_qk[0,1]"]
    assert not found.pairs.data_vars
