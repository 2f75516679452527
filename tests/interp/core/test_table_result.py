"""A table with keys and measures: its numbers, its figure and its file follow from what it says of its columns."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from interp.core.estimate import Estimate
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult, at, largest
from interp.core.wording import listed, sentence
from models.errors import UserError

PROVENANCE = Provenance(50, 0, "made-up problems")
COPYING = Measure("copying", "share", ("uniform", "untrained"))


def heads(**columns: list) -> TableResult:
    table = pd.DataFrame(
        {
            "layer": [0, 0, 1, 1],
            "head": [0, 1, 0, 1],
            "copying": [0.2, 0.9, 0.5, math.nan],
            "copying_low": [0.1, 0.8, 0.4, math.nan],
            "copying_high": [0.3, 0.95, 0.6, math.nan],
            "copying_untrained": [0.1, 0.15, 0.1, 0.1],
        }
        | columns
    )
    return TableResult("it copies", table, PROVENANCE, ("layer", "head"), (COPYING,))


def test_a_cell_is_the_number_of_its_row_with_interval_control_and_n() -> None:
    found = heads().cell("copying", layer=0, head=1)
    assert (found.value, found.low, found.high, found.n) == (0.9, 0.8, 0.95, 50)
    assert (found.control, found.control_note, found.unit) == (0.15, "an untrained copy", "share")
    assert str(found) == "90.0% [80.0%, 95.0%]" and found.against == "an untrained copy 15.0%"


def test_the_largest_is_that_of_the_rows_that_have_a_number_which_are_its_parts() -> None:
    found = heads().largest("copying")
    assert found.value == 0.9 and [part.value for part in found.parts] == [0.2, 0.9, 0.5]
    assert largest("copying")(heads()).note == found.name == "L0H1"
    assert at("copying", layer=1, head=0)(heads()).value == 0.5


def test_the_largest_at_a_key_is_called_by_the_others() -> None:
    found = heads().largest("copying", layer=1)
    assert (found.value, found.name, len(found.parts)) == (0.5, "0", 1)
    assert largest("copying", head=0)(heads()).value == 0.5
    with pytest.raises(UserError):
        heads().largest("copying", neuron=0)


def test_a_row_that_has_its_own_n_gives_it() -> None:
    assert heads(n=[7, 8, 9, 9]).cell("copying", layer=1, head=0).n == 9


def test_the_first_control_that_has_a_number_is_the_one_beside_it() -> None:
    uniform = heads(copying_uniform=[0.5, math.nan, 0.5, 0.5])
    assert uniform.cell("copying", layer=0, head=0).control == 0.5
    assert uniform.cell("copying", layer=0, head=1).control == 0.15
    assert heads(copying_untrained=[math.nan] * 4).cell("copying", layer=0, head=0).against == ""


@pytest.mark.parametrize(
    "ask",
    [
        lambda found: found.cell("copying", layer=0),
        lambda found: found.cell("copying", layer=3, head=0),
        lambda found: found.cell("copying", neuron=3),
        lambda found: found.cell("looking", layer=0, head=0),
        lambda found: heads(copying=[math.nan] * 4).largest("copying"),
        lambda found: TableResult("", found.table, PROVENANCE, ("head",), (COPYING,)).pivot("copying"),
    ],
)
def test_what_no_row_or_more_than_one_row_has_is_refused(ask) -> None:
    with pytest.raises(UserError):
        ask(heads())


def test_a_measure_over_two_keys_is_a_grid_that_shows_its_values() -> None:
    table = heads().table.rename(columns={"layer": "place", "head": "digit"})
    places = TableResult("so", table, PROVENANCE, ("place", "digit"), (COPYING,))
    shown = np.asarray(places.figure().data[0].z, dtype=float)
    np.testing.assert_allclose(shown, [[0.2, 0.9], [0.5, math.nan]])
    np.testing.assert_allclose(places.pivot("copying"), shown)


def test_few_heads_are_points_by_name_and_many_a_grid_of_layers_by_heads() -> None:
    few = heads().figure().data[0]
    assert list(few.y) == [0.2, 0.9, 0.5]
    layers, numbers = np.divmod(np.arange(32), 8)
    table = pd.DataFrame({"layer": layers, "head": numbers, "copying": np.arange(32) / 32})
    many = TableResult("so", table, PROVENANCE, ("layer", "head"), (COPYING,)).figure().data[0]
    assert np.asarray(many.z).shape == (4, 8)


def test_a_measure_over_one_key_is_points_with_intervals_and_controls() -> None:
    one = TableResult("it copies", heads().table.query("layer == 0").assign(head=["a", "b"]), PROVENANCE)
    one = TableResult("it copies", one.table, PROVENANCE, ("head",), (COPYING,))
    measured, control = one.figure().data
    assert list(measured.y) == [0.2, 0.9]
    np.testing.assert_allclose(measured.error_y.array, [0.1, 0.05])
    assert list(control.y) == [0.1, 0.15]


def test_a_key_of_numbers_is_an_axis_and_a_key_with_one_value_is_none() -> None:
    table = pd.DataFrame({"of": ["all"] * 3, "step": [0, 10, 30], "loss": [3.0, 2.0, 1.0]})
    figure = TableResult("it falls", table, PROVENANCE, ("of", "step"), (Measure("loss", "nats"),)).figure()
    assert list(figure.data[0].x) == [0, 10, 30] and "lines" in figure.data[0].mode


def test_the_first_of_three_keys_has_a_panel_for_each_of_its_values() -> None:
    places = heads().table.rename(columns={"layer": "place", "head": "digit"})
    both = pd.concat([places.assign(kind=kind, copying=value) for kind, value in (("query", 0.1), ("key", 0.4))])
    figure = TableResult("they compose", both, PROVENANCE, ("kind", "place", "digit"), (COPYING,)).figure()
    assert [float(np.nanmax(np.asarray(trace.z, dtype=float))) for trace in figure.data] == [0.1, 0.4]


def test_all_but_the_last_two_keys_have_a_panel_each_and_a_value_of_a_key_selects_rows() -> None:
    table = pd.DataFrame([(*at, sum(at)) for at in np.ndindex(2, 2, 3, 3)], columns=[*"abcd", "x"]).astype(str)
    found = TableResult("so", table.astype({"x": float}), PROVENANCE, tuple("abcd"), (Measure("x"),))
    assert [np.asarray(trace.z, dtype=float)[0, 0] for trace in found.figure().data] == [0, 1, 1, 2]
    (chosen,) = found.figure(a="1", b="0").data
    np.testing.assert_allclose(np.asarray(chosen.z, dtype=float), 1 + np.add.outer(range(3), range(3)))
    for bad in ({"a": "7"}, {"e": "0"}):
        with pytest.raises(UserError):
            found.figure(**bad)


def test_without_keys_and_measures_the_first_column_is_the_key_and_every_number_a_measure() -> None:
    found = TableResult("so", heads().table, PROVENANCE)
    assert found.keys == ("layer",)
    assert [each.name for each in found.measures] == ["head", "copying", "copying_untrained"]


@pytest.mark.parametrize("labelled", [False, True])
def test_a_result_after_json_has_the_same_table_keys_and_numbers(labelled: bool) -> None:
    found = heads()
    if labelled:
        dataset = xr.Dataset({"copying": (("layer", "head"), [[0.2, 0.9], [0.5, math.nan]])})
        dataset = dataset.assign_coords(layer=[0, 1], head=[0, 1])
        found = TableResult("it copies", dataset, PROVENANCE, ("layer", "head"), (COPYING,))
    again = TableResult.from_dict(found.to_dict())
    pd.testing.assert_frame_equal(again.to_dataframe(), found.to_dataframe())
    assert again.largest("copying") == found.largest("copying") and again.measures == found.measures


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.99999999, unit="share"), "100%"),
        (Estimate(2.5, 2.25, 2.75, unit="nats"), "2.5 [2.25, 2.75]"),
        (Estimate(2.5, 2.25, math.inf), "2.5"),
        (Estimate(2.5, 2.5, 2.5000001), "2.5"),
        (Estimate(2.5), "2.5"),
    ],
)
def test_an_estimate_is_written_with_the_interval_that_it_has(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text


def test_names_are_listed_up_to_a_number_and_clauses_become_sentences() -> None:
    assert listed([]) == "none" and listed(["a"]) == "a" and listed("abc") == "a, b and c"
    assert listed("abcdef", most=2) == "a, b and 4 more"
    assert sentence("it is so") == sentence("it is so.") == "It is so."
