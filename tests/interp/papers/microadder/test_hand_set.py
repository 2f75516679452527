"""Trained next to hand-set numbers: certificates, counts, digits kept, and symmetries."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest
import torch

import interp
import models
from interp.core.sections import records
from interp.core.stored_data import DATA
from interp.papers.microadder.gap import show_gap
from interp.papers.microadder.hand_set import (
    aligned,
    compare_numbers,
    digits_kept,
    discoverability_gap,
    over_the_reals,
    significant,
)
from interp.papers.studies import find_study
from models.errors import UserError

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # a proof is some 10^6 calls


@pytest.mark.parametrize("name", ["adder-4-by-hand", pytest.param("microadder-57-by-hand", marks=pytest.mark.slow)])
def test_hand_set_models_are_right_on_all_pairs_with_rounding(name: str) -> None:
    found = interp.certify(models.build(name), arithmetic="float32")
    assert (found.status, found.provenance.rung) == ("certified", "certified with rounding")


def test_both_twins_are_one_function_so_that_one_certificate_is_about_both() -> None:
    small, large = (models.build(f"microadder-{n}-by-hand").effective_weights() for n in (57, 67))
    assert small.keys() == large.keys() and all(torch.equal(small[key], large[key]) for key in small)


def test_three_numbers_are_right_on_all_pairs_over_the_reals() -> None:
    found = interp.certify(models.build("adder-3-by-hand"), arithmetic="interval")
    assert found.status == "certified" and found.provenance.n == 10**20 and found.smallest_margin < 0.002


@pytest.mark.slow
def test_the_gap_is_read_off_the_registry_and_the_zoo() -> None:
    names = [
        "microadder-11",
        "microadder-57",
        "microadder-67",
        "adder-3-by-hand",
        "adder-4-by-hand",
        "toygpt-learned-pre",
    ]
    found = discoverability_gap(over_the_reals, names)
    table = found.table.set_index("model")
    assert list(found.table.numbers) == [3, 4, 11, 57, 67] and "toygpt-learned-pre" not in table.index
    assert list(table.made[:3]) == ["by hand", "by hand", "trained from another model"]
    assert table.rung["adder-3-by-hand"] == "certified in intervals"  # the judge's
    assert table.rung["microadder-57"] == "certified with rounding"  # the stored certificate's
    assert table["values"]["adder-4-by-hand"] == 4
    assert found.factor == 57 / 3
    assert len(found.figure().data) == 3
    assert found.provenance.rung == "certified in intervals"


def test_models_that_no_method_judges_count_as_sampled() -> None:
    def refuses(model):
        raise UserError("not today")

    found = discoverability_gap(refuses, ["adder-3-by-hand", "microadder-57"])
    assert list(found.table.rung) == ["sampled", "certified with rounding"]
    with pytest.raises(UserError, match="No certified model was by hand"):
        found.sentence()


@pytest.mark.parametrize(
    ("name", "enough"),
    [
        ("adder-4-by-hand", 4),
        ("adder-3-by-hand", 4),
        ("microadder-57-by-hand", 3),
    ],
)
@pytest.mark.slow
def test_hand_set_numbers_can_be_rounded_to_so_many_digits(name: str, enough: int) -> None:
    found = digits_kept(models.build(name), (3, 4) if enough == 4 else (2, 3))
    assert found.enough == enough and found.table.status.tolist() == ["refuted", "certified"]
    assert (found.table.counterexample != "").tolist() == [True, False]
    assert len(found.figure().data) == 3


@pytest.mark.slow
def test_the_trained_model_needs_four_digits() -> None:
    assert digits_kept(models.load("microadder-57"), (3, 4)).enough == 4


def test_where_no_number_of_digits_is_enough_there_is_none() -> None:
    nothing = digits_kept(models.load("microadder-57"), (1,))
    assert nothing.enough is None


def test_rounding_keeps_significant_digits() -> None:
    assert significant(torch.tensor([0.0123456, -98765.0, 0.0]), 2).tolist() == pytest.approx([0.012, -99000.0, 0.0])
    with pytest.raises(UserError, match="at least one"):
        significant(torch.ones(1), 0)


@pytest.mark.parametrize("n", [57, 67])
def test_moving_along_the_symmetries_changes_no_answer_and_comes_nearer(n: int) -> None:
    trained, built = models.load(f"microadder-{n}"), models.build(f"microadder-{n}-by-hand")
    own, goal = ({k: v.detach() for k, v in m.weight_map.named_parameters()} for m in (trained, built))
    near = aligned(own, goal)
    moved = copy.deepcopy(trained)
    moved.weight_map.load_state_dict({k: v.float().reshape(own[k].shape) for k, v in near.items()})
    tokens = trained.task.encode([(1234567890, 987654321), (9999999999, 1)])
    before, after = trained.double()(tokens).detach(), moved.double()(tokens).detach()
    assert torch.allclose(before, after, rtol=1e-4, atol=1e-2 * float(before.abs().max()) / 100)

    def distance(numbers) -> float:
        return sum(float((numbers[k] - goal[k]).norm() / goal[k].norm()) ** 2 for k in ("out_A", "out_B"))

    assert distance(near) < distance(own)


def test_trained_and_hand_set_key_matrices_are_nearly_one() -> None:
    found = compare_numbers(models.load("microadder-57"), models.build("microadder-57-by-hand"), n=200)
    assert len(found.table) == 57 and found.correlation > 0.95
    rows = found.table.set_index(["name", "index"])
    assert (rows.difference == rows.as_read - rows.by_hand).all()
    amounts = found.amounts.set_index("quantity")
    ratio = amounts.loc["weight of the next column over the own"]
    assert np.log([ratio.trained, ratio.by_hand]) == pytest.approx([np.log(10)] * 2, abs=0.05)
    for column in ("trained", "by_hand"):  # one unit is on with a carry out of the column, the other without
        assert amounts[column]["unit 0, with carry-out: least"] > amounts[column]["unit 0, without carry-out: most"]
        assert amounts[column]["unit 1, without carry-out: least"] > amounts[column]["unit 1, with carry-out: most"]
    assert len(found.figure().data) == 3


def test_models_of_other_numbers_are_not_compared() -> None:
    with pytest.raises(UserError, match="do not have the same free numbers"):
        compare_numbers(models.load("microadder-57"), models.build("microadder-67-by-hand"))
    with pytest.raises(UserError, match="do not have the same free numbers"):
        compare_numbers(models.load("adder-456"), models.build("adder-3-by-hand"))


def test_the_experiment_is_found_by_its_name() -> None:
    assert find_study("microadder:gap").target == "microadder:gap"


def test_the_page_of_the_gap_has_what_its_data_hold():
    stored = json.loads((DATA / "experiments" / "microadder-gap.json").read_text())
    (only,) = show_gap(stored)
    assert len(only.figures) == 1 and only.tables[0].numbers.tolist() == [row["numbers"] for row in stored["gap"]]
    both = compare_numbers(models.load("microadder-57"), models.build("microadder-57-by-hand"), 200)
    numbers = {"numbers": records(both.to_dataframe()), "amounts": records(both.amounts)}
    pages = show_gap(stored | {"problems": 200, "microadder-57-by-hand": numbers})
    shown = pages[-1]
    assert shown.text == f"{both.sentence()}." and len(shown.figures) == 1
    pd.testing.assert_frame_equal(shown.tables[1], both.to_dataframe())
