"""Figures state what the result holds, label what they show, and know no model."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import interp
import models
from interp.core.results import Result
from interp.figures import theme

ADDER = models.build("microadder-57", seed=1)
RESULTS: dict[str, Callable[[], tuple[Result, go.Figure]]] = {
    "attention": lambda: (r := interp.attention_by_role(ADDER, n=32), r.figure()),
    "pattern": lambda: (r := interp.attention_by_role(ADDER, n=32), r.figure("pattern")),
    "units": lambda: (r := interp.carry_units(ADDER, n=128), r.figure()),
    "ablation": lambda: (r := interp.carry_units(ADDER, n=128), r.figure("ablation")),
    "circle": lambda: (r := interp.circle_fit(ADDER.W_E), r.figure()),
    "noise": lambda: (
        r := interp.circle_fit(torch.randn(9, 4, generator=torch.Generator().manual_seed(0))),
        r.figure(),
    ),
    "helix": lambda: (r := interp.helix_fit(ADDER.W_pos[:10]), r.figure()),
    "fourier": lambda: (r := interp.fourier_spectrum(ADDER.W_E), r.figure()),
}


@pytest.fixture(params=RESULTS, scope="module")
def drawn(request: pytest.FixtureRequest) -> tuple[Result, go.Figure]:
    return RESULTS[request.param]()


def axes(figure: go.Figure) -> list[go.layout.XAxis | go.layout.YAxis]:
    return [*figure.select_xaxes(), *figure.select_yaxes()]


def test_the_subtitle_states_n_and_how_strong_the_claim_is(drawn):
    result, figure = drawn
    assert str(result.provenance) in figure.layout.title.subtitle.text.replace("<br>", " ")
    assert f"n = {result.provenance.n:,}" in str(result.provenance)


def test_every_first_axis_is_labelled(drawn):
    _, figure = drawn
    assert all(axis.title.text for axis in (figure.layout.xaxis, figure.layout.yaxis))


def test_a_figure_survives_the_trip_to_html(drawn):
    _, figure = drawn
    html = figure.to_html(include_plotlyjs=False)
    assert len(html) > 1000
    assert "NaN" not in figure.layout.title.text
    assert "nan" not in figure.layout.title.text


def test_every_result_has_a_sentence_a_table_and_an_html_form(drawn):
    result, _ = drawn
    assert result.sentence().endswith(".")
    assert "nan" not in result.sentence()
    assert len(result.to_dataframe()) > 0
    assert type(result).__name__ in result._repr_html_()


def test_the_attention_title_is_computed_from_the_gap():
    result = interp.attention_by_role(ADDER, n=32)
    mean, low, high = result.mean_gap()
    title = result.figure().layout.title.text.replace("<br>", " ")
    assert f"{mean:.3f} nats [{low:.3f}, {high:.3f}]" in title


def test_the_attention_heat_map_shows_the_weights_and_leaves_empty_roles_blank():
    result = interp.attention_by_role(ADDER, n=32)
    heat = next(trace for trace in result.figure().data if trace.type == "heatmap")
    weight = result.table.weight.isel(layer=0, head=0).values
    empty = result.table.n_keys.values == 0
    assert np.isnan(np.array(heat.z, dtype=float)[empty]).all()
    assert np.array(heat.z, dtype=float)[~empty] == pytest.approx(weight[~empty])


def test_the_pattern_picture_is_labelled_by_role_and_blank_where_nothing_is_visible():
    heat = interp.attention_by_role(ADDER, n=32).figure("pattern")
    assert list(heat.layout.xaxis.ticktext[:3]) == ["a0", "a1", "a2"]
    assert heat.layout.xaxis.ticktext[10] == "+"
    shown = ~np.isnan(np.array(heat.data[0].z, dtype=float))
    assert shown.sum(1).tolist() == list(range(22, 34))


def test_the_unit_picture_fills_exactly_the_columns_with_a_carry_out(published_57):
    figure = interp.carry_units(published_57, n=512).figure()
    traces = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(traces) == 4  # two units, carry in 0 and 1
    for trace in traces:
        filled = [colour != "white" for colour in trace.marker.color]
        carry = int(trace.name.removeprefix("carry in "))
        assert filled == [row[0] + carry >= 10 for row in trace.customdata]
    assert "exact switches of carry out" in figure.layout.title.text


def test_the_ablation_picture_states_the_double_dissociation_in_numbers(published_57):
    result = interp.carry_units(published_57, n=512)
    figure = result.figure("ablation")
    right = result.double_dissociation("carry_out").set_index(["unit", "present"])["ablated"]
    title = figure.layout.title.text.replace("<br>", " ")
    for value in right:
        assert f"{value:.3f}" in title
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.y[1] for bar in bars] == [right[0, False], right[0, True]]


def test_an_untrained_model_is_not_said_to_have_switches():
    result = interp.carry_units(ADDER, n=128)
    assert result.figure().layout.title.text.startswith("<b>None of 2")
    assert "No double dissociation" in result.figure("ablation").layout.title.text


def test_long_titles_are_wrapped_within_the_figure():
    figure = theme.finish(go.Figure(), "word " * 60, interp.Provenance(1, 0, "x"), width=800)
    assert max(len(line) for line in figure.layout.title.text.split("<br>")) < 800 / 8


def test_figures_import_no_model_but_the_error_class(package_dir: Path):
    files = sorted((package_dir / "figures").rglob("*.py"))
    assert {"coupled", "two_digit"} <= {file.parent.name for file in files}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(name == "models.errors" or not name.startswith(("models", "torch")) for name in names), file


def test_a_unit_that_carries_nothing_gets_a_panel_beside_one_that_does():
    """The stored 57 with its second unit cut off from its input: one switch and one unit of no single signal."""
    adder = models.load("microadder-57")
    with torch.no_grad():
        adder.weight_map.W_fc1[1] = 0.0
    units = interp.carry_units(adder, n=512)
    assert [units.verdict(0, unit)["kind"] for unit in (0, 1)] == ["switch", "none"]
    titles = " ".join(annotation.text for annotation in units.figure().layout.annotations)
    assert "no single signal" in titles and "carry out" in titles
    assert "1 of 2 MLP units is an exact switch of carry out" in units.figure().layout.title.text
