"""The construction in its own words: its residual stream by name, and the number that its MLP reads."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import interp
import models
from interp.compare.construction.construction_units import tabulate
from interp.compare.construction.residual_by_dimension import as_fraction
from models.errors import UserError
from tests.parity.printed_tables import FROM_EQUALS, OFFSETS, TABLES, TOKENS

WRITTEN_BY = {
    "tokens": {"NUM", "IS_BOS", "FULL_ONES"},
    "positions": {"POS_1", "POS_1_NEXT", "POS_2", "POS_2_NEXT"},
    "L0H0": {"PRE_SUM"},
    "L0H1": {"PRE_CARRY"},
    "L0H2": {"PRE_ARROW"},
    "L0H3": {"PRE_EOS"},
    "L0.mlp": {"SUM", "ARROW", "EOS"},
}


@pytest.fixture(scope="module")
def built():
    """Three bits a level: room for the paper's offsets."""
    return models.build("position-coupling-hand-built", max_operands=7, max_digits=2)


@pytest.fixture(scope="module")
def example(built):
    return interp.residual_by_dimension(built, TOKENS, offsets=OFFSETS)


def test_every_name_is_written_by_one_stage_alone(example):
    for stage, names in WRITTEN_BY.items():
        assert {name for name, by in example.writers().items() if by == [stage]} == names


def test_what_the_stages_write_adds_up_to_the_stream(built, example):
    tokens = built.task.tokenise(TOKENS)
    ids = torch.tensor([example.ids])
    with torch.no_grad():
        _, cache = built.run_with_cache(tokens, position_ids=ids)
    stream = cache["resid_post", 0][0].T.double().numpy()
    assert np.abs(example.table["value"].sum("stage").values - stream).max() < 1e-5


def test_the_heads_write_what_the_paper_prints(example):
    printed = {"L0H0": 8, "L0H1": 12, "L0H2": 16, "L0H3": 20}
    for stage, number in printed.items():
        (name,) = WRITTEN_BY[stage]
        row = example.table["value"].sel(stage=stage, dim=name).values[FROM_EQUALS:]
        assert [as_fraction(value) or "0" for value in row] == TABLES[number].rows[name].split()


def test_the_predicted_tokens_are_those_of_the_paper(example):
    assert "".join(example.predicted[FROM_EQUALS:]) == TABLES[26].rows["O"].replace(" ", "")
    assert all(example.right) and len(example.right) == len(TOKENS) - FROM_EQUALS - 1


def test_a_wrong_digit_in_the_response_is_not_counted_as_right(built):
    wrong = interp.residual_by_dimension(built, TOKENS.replace(">750>", ">740>"), offsets=OFFSETS)
    assert 0 < sum(wrong.right) < len(wrong.right)


def test_the_figure_has_a_row_for_each_dimension_that_is_written_and_names_its_stages(example):
    figure = example.figure()
    rows = [name for trace in figure.data if trace.type == "heatmap" for name in trace.y]
    assert len(rows) == len(set(rows)) and "IS_BOS" not in rows  # zero from "=" on
    assert {"NUM", "PRE_SUM", "SUM[7]", "EOS", "POS_1[0]"} <= set(rows) and "SUM[9]" not in rows
    said = " ".join(annotation.text for annotation in figure.layout.annotations)
    assert all(stage in said for stage in WRITTEN_BY)
    assert "15 of 15" in figure.layout.title.text


def test_a_figure_of_some_stages_shows_the_query_too_and_nothing_else(example):
    figure = example.figure(stages=["L0H0"], response_only=False)
    (trace,) = figure.data
    assert list(trace.y) == ["PRE_SUM"] and len(trace.x) == len(TOKENS)


@given(st.integers(-30, 30), st.integers(1, 20))
def test_small_fractions_are_printed_as_such(above: int, below: int):
    text = as_fraction(above / below)
    assert float(Fraction(text or 0)) == pytest.approx(above / below, abs=1e-4)


def test_other_numbers_get_two_decimals():
    assert as_fraction(np.pi) == "3.14"


@pytest.mark.parametrize(
    ("tokens", "offsets", "message"),
    [
        ("$057+048", None, "no '='"),
        (TOKENS, (9, 2), "needs id"),
        (TOKENS, (1,), "2 offsets"),
        (TOKENS, (0, 1), "from 1"),
    ],
)
def test_a_sequence_that_cannot_be_read_is_a_clear_error(built, tokens, offsets, message):
    with pytest.raises(UserError, match=message):
        interp.residual_by_dimension(built, tokens, offsets=offsets)


def test_a_stage_that_does_not_exist_is_a_clear_error(example):
    with pytest.raises(UserError, match="L0H3"):
        example.figure(stages=["L0H4"])


def test_a_trained_model_has_no_names_to_read():
    trained = models.build("position-coupling-1l4h-small")
    with pytest.raises(UserError):
        interp.residual_by_dimension(trained, TOKENS)
    with pytest.raises(UserError):
        interp.construction_units(trained)
    assert "construction_units" not in interp.probes(trained).index
    assert "construction_units" in interp.probes(models.build("position-coupling-hand-built", max_operands=2)).index


# ---- the number that the MLP reads


@pytest.fixture(scope="module")
def units():
    return interp.construction_units(models.build("position-coupling-hand-built", max_operands=5, max_digits=4), n=60)


def test_the_units_read_the_sum_and_a_tenth_of_the_carry(units):
    assert units.weights == pytest.approx({"PRE_SUM": 1, "PRE_CARRY": 0.1, "NUM": -0.1})


def test_a_reading_is_the_column_s_total_less_a_tenth_of_the_carry_before(units):
    total = units.table["x"] + units.table["carry_before"] / 10
    assert total.to_numpy() == pytest.approx(total.round(), abs=1e-3)
    assert (total.round() % 10 == units.table["digit"]).all()
    assert units.table["carry"].any() and units.table["carry_before"].any()


def test_sum_is_one_hot_at_every_reading_with_the_slack_of_the_formula(units):
    assert units.table["one_hot"].all()
    # The plateau of f_k begins 0.21 before k, and the leftmost readings are k - 0.1.
    assert units.table["slack"].min() == pytest.approx(0.11, abs=0.011)


def test_the_curve_is_the_trapezoids_of_the_paper(units):
    x = units.curve.x.values
    for digit in (0, 4, 9):
        g = x + 0.21
        hat = lambda k: np.clip(1 - 2 * np.maximum(np.abs(g - k - 0.25) - 0.25, 0), 0, 1)  # noqa: B023, E731
        expected = hat(digit) + hat(digit + 10)
        assert np.abs(units.curve.sel(digit=digit).values - expected).max() < 1e-4


def test_moved_readings_are_not_one_hot(units):
    rows = units.table.loc[units.table.index.repeat(units.table["digits"])]
    x, *rest = (rows[name].to_numpy() for name in ("x", "digit", "carry", "carry_before"))
    again, moved = tabulate(units.curve, x, *rest), tabulate(units.curve, x + 0.6, *rest)
    assert again["one_hot"].all() and (again["digits"] == units.table["digits"]).all()
    assert not moved["one_hot"].any() and not moved["slack"].any()


# ---- what is read off weights is not said of a model that computes something else


@pytest.mark.parametrize("hook", ["blocks.0.attn.hook_z", "blocks.0.hook_attn_out", "blocks.0.hook_mlp_out"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda model: interp.residual_by_dimension(model, "$05+03=00>50>80"),
        lambda model: interp.construction_units(model, n=2),
        lambda model: interp.ov_output_shape(model, n=2),
    ],
)
def test_a_construction_whose_parts_are_replaced_is_refused(ask, hook):
    model: Any = models.build("position-coupling-hand-built", max_operands=2, max_digits=1)
    ask(model)
    model.add_perma_hook(hook, lambda value, hook: torch.zeros_like(value))
    with pytest.raises(UserError):
        ask(model)


@pytest.mark.parametrize(("weight", "axis", "name"), [("W_out", 1, "SUM"), ("W_in", 0, "PRE_SUM")])
def test_units_that_write_no_sum_or_do_not_read_it_are_refused(weight, axis, name):
    model: Any = models.build("position-coupling-hand-built", max_operands=2, max_digits=1)
    matrix = model.weight_map.get_buffer(f"blocks/0/mlp/{weight}")
    matrix.index_fill_(axis, torch.arange(matrix.shape[axis])[model.weight_map.dims[name]], 0)
    with pytest.raises(UserError):
        interp.construction_units(model, n=2)
