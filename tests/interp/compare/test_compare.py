"""Two models beside each other: what is the same is at distance 0, whatever basis and order it is written in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import plotly.graph_objects as go
import pytest
import torch
from torch import Tensor

import interp
import models
from interp.compare.comparison_result import Comparison
from interp.compare.weight_circuits import NAMES
from models.errors import UserError
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from tests.comparing import numbers_are_finite
from tests.interp.compare.gauge import CONFIG, TASK, Change, dense, permute, rescale, rotate

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def itself() -> Comparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("interp.compare.compare"), "UNTRAINED", 3)
        return interp.compare(dense(), dense(), n=12)


@pytest.fixture
def without_copies(monkeypatch):
    monkeypatch.setattr(import_module("interp.compare.compare"), "UNTRAINED", 0)


@pytest.fixture(scope="module")
def seeds() -> Comparison:
    return interp.compare(models.build("microadder-57", seed=1), models.build("microadder-57", seed=2), n=24)


def test_a_model_is_at_distance_zero_from_itself_and_matched_with_itself(itself: Comparison):
    assert itself.table["distance"].max() < 1e-7
    assert all(a == b for a, b in itself._head_pairs)
    assert (itself.unit_pairs["a"] == itself.unit_pairs["b"]).all()
    assert len(itself._head_pairs) == 3 and len(itself.unit_pairs) == 5
    assert (itself.table["distance_untrained"] > 0.05).all()
    assert itself.table["factor"].dropna().to_numpy() == pytest.approx(1)
    assert itself.parameters is not None and (itself.parameters["difference"] == 0).all()


def test_every_kind_of_table_is_there(itself: Comparison):
    assert set(itself.table["part"]) == {"heads", "units", "circuits", "responses", "embeddings"}
    assert set(NAMES.values()) <= set(itself.table["quantity"])


@pytest.mark.usefixtures("without_copies")
def test_permuted_heads_and_units_give_the_permutation():
    two_layers = CONFIG.replace(n_layers=2)
    result = interp.compare(dense(config=two_layers), dense(change=permute, config=two_layers), n=8)
    assert result.table["distance"].max() < 1e-7
    assert {(a, b) for a, b in result._head_pairs} == {
        (f"L{layer}H{(head + 1) % 3}", f"L{layer}H{head}") for layer in (0, 1) for head in range(3)
    }
    pairs = set(zip(result.unit_pairs["a"], result.unit_pairs["b"], strict=True))
    assert pairs == {(f"L{layer}N{4 - unit}", f"L{layer}N{unit}") for layer in (0, 1) for unit in range(5)}


@pytest.mark.usefixtures("without_copies")
@pytest.mark.parametrize("change", [rotate, rescale], ids=["basis of the stream", "scales within heads"])
def test_what_a_basis_changes_is_not_seen(change: Change):
    other = dense(change=change)
    tokens = TASK.encode([(12345, 67890), (9999999999, 1)])
    assert torch.allclose(other(tokens), dense()(tokens))  # the same model
    assert not torch.allclose(other.W_Q, dense().W_Q)
    result = interp.compare(dense(), other, n=12)
    assert result.table["distance"].max() < 1e-7
    assert all(a == b for a, b in result._head_pairs)


def test_another_seed_is_as_far_as_untrained_copies_are(seeds: Comparison):
    assert seeds.control[1] == 39
    row = seeds.table[seeds.table["quantity"] == NAMES["logits"]].iloc[0]
    assert row["p_untrained"] > 0.05
    assert row["distance"] > 0.1


def test_trained_models_are_closer_to_each_other_than_untrained_ones_are():
    result = interp.compare(models.load("microadder-57"), models.load("microadder-67"), n=48)
    rows = result.table.set_index("quantity")
    for quantity in ("attention by role", NAMES["logits"], NAMES["MLP"], NAMES["OV: token"]):
        assert rows.loc[quantity, "p_untrained"] == pytest.approx(1 / 40), quantity
        assert rows.loc[quantity, "distance"] < 0.1 < rows.loc[quantity, "distance_untrained"], quantity
    assert rows.loc["2 matched neurons", "p_shuffled"] == pytest.approx(1 / 40)
    assert rows.loc[NAMES["logits"], "p_shuffled"] == pytest.approx(1 / 200)


def test_copies_are_of_the_model_that_has_something_to_draw(monkeypatch):
    monkeypatch.setattr(import_module("interp.compare.compare"), "UNTRAINED", 1)
    built = models.build("position-coupling-hand-built", max_operands=2, max_digits=2)
    trained = models.build("position-coupling-1l4h-small")
    task = MultiOperandAddition(2, 2)
    forth = interp.compare(trained, built, task=task, n=6)
    assert forth.control == ("position-coupling-1l4h-small", 1)
    assert (forth.table["nothing"] == "b").any(), "the constructed heads write nothing that W_U reads"
    alone = interp.compare(built, built, n=6)
    assert alone.control == ("", 0)
    assert alone.table["p_untrained"].isna().all()
    assert alone.table["distance"].max() < 1e-7


def test_numbers_set_by_hand_are_no_control_and_the_order_of_the_two_changes_no_distance():
    trained, by_hand = models.load("microadder-57"), models.build("microadder-57-by-hand")
    forth, back = interp.compare(trained, by_hand, n=24), interp.compare(by_hand, trained, n=24)
    assert forth.control == back.control == ("microadder-57", 39)
    for column in ("distance", "distance_untrained", "p_untrained"):
        assert forth.table[column].to_numpy() == pytest.approx(back.table[column].to_numpy()), column
    logits = forth.table.set_index("quantity").loc[NAMES["logits"]]
    assert logits["distance"] < 0.1 < logits["distance_untrained"] and logits["p_untrained"] == pytest.approx(1 / 40)
    assert forth.parameters is not None and len(forth.parameters) == 57


@pytest.mark.usefixtures("without_copies")
def test_models_with_different_numbers_of_heads_and_units_are_matched_as_far_as_they_go():
    small = dense(config=CONFIG.replace(n_heads=2, d_mlp=3))
    result = interp.compare(dense(), small, n=8)
    assert len(result._head_pairs) == 2 and len(result.unit_pairs) == 3
    assert result.parameters is None
    assert result.heads.sizes == {"a": 3, "b": 2}


@pytest.mark.usefixtures("without_copies")
def test_a_model_without_mlp_has_no_units():
    bare = dense(config=CONFIG.replace(d_mlp=0))
    result = interp.compare(bare, bare, n=8)
    assert result.unit_pairs.empty and "units" not in set(result.table["part"])
    assert isinstance(result.figure(), go.Figure)


@pytest.mark.usefixtures("without_copies")
def test_units_that_never_vary_are_left_out():
    def still(table: Mapping[str, Tensor]) -> None:
        table["blocks/0/mlp/W_in"][:, 2] = 0

    result = interp.compare(dense(change=still), dense(), n=8)
    assert "L0N2" not in set(result.unit_pairs["a"]) and len(result.unit_pairs) == 4


@pytest.mark.parametrize("ask", [interp.compare, interp.swap_components])
def test_what_is_no_pair_of_models_of_one_format_is_refused(ask: Callable[..., Any]):
    with pytest.raises(UserError, match="different formats"):
        ask(models.build("microadder-57"), models.build("adder-456"))
    for pair in (("microadder-57", dense()), (dense(), "microadder-57"), (dense(), 3)):
        with pytest.raises(UserError, match="not a model"):
            ask(*pair)
    for n in (0, 1):
        with pytest.raises(UserError):
            ask(dense(), dense(), n=n)


def test_of_other_formats_the_way_out_is_named():
    a, b = models.build("microadder-57"), models.build("adder-456")
    with pytest.raises(UserError, match=r"different formats .*interp\.compare_models\(\[a, b\]\)"):
        interp.compare(a, b)
    with pytest.raises(UserError, match="different formats"):
        interp.compare(a, models.build("position-coupling-hand-built"))


def test_a_pair_of_heads_that_no_untrained_copy_has_is_given_no_p_value():
    found = interp.compare(dense(config=CONFIG.replace(n_heads=1)), dense(config=CONFIG.replace(n_heads=4)), n=16)
    rows = found.table[found.table["quantity"] == "attention by role"]
    assert rows["distance"].notna().all() and numbers_are_finite(found.sentence())
