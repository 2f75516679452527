"""Figures state what the result holds, label what they show, and know no model."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

import interp
import models
from interp.core.results import Provenance, Result
from interp.core.stats import Proportion
from interp.core.views import Bars, Picture, Series
from interp.figures import drawings, theme, traces
from interp.figures.dot_plot import dot_plot
from interp.figures.draw_views import draw_picture
from interp.figures.figure_panels import Panel, compose
from interp.probes.circle_fit import fit_circle
from interp.probes.score_result import Scores
from tests.comparing import numbers_are_finite
from tests.interp.figures import planted

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
    assert numbers_are_finite(figure.layout.title.text)


def test_the_attention_title_is_computed_from_the_gap():
    result = interp.attention_by_role(ADDER, n=32)
    title = result.figure().layout.title.text.replace("<br>", " ")
    assert f"{result.mean_gap()} nats" in title


def test_the_attention_heat_map_shows_the_weights_and_leaves_empty_roles_blank():
    result = interp.attention_by_role(ADDER, n=32)
    heat = next(trace for trace in result.figure().data if trace.type == "heatmap")
    weight = result.table.weight.isel(layer=0, head=0).values
    empty = result.table.n_keys.values == 0
    assert np.isnan(np.array(heat.z, dtype=float)[empty]).all()
    assert np.array(heat.z, dtype=float)[~empty] == pytest.approx(weight[~empty])


def test_the_pattern_picture_is_labelled_by_role_and_blank_where_nothing_is_visible():
    heat = interp.attention_by_role(ADDER, n=32).figure("pattern")
    assert list(heat.data[0].x[:3]) == ["a0", "a1", "a2"]
    assert heat.data[0].x[10] == "+"
    shown = ~np.isnan(np.array(heat.data[0].z, dtype=float))
    assert shown.sum(1).tolist() == list(range(22, 34))


def test_the_unit_picture_fills_exactly_the_columns_with_a_carry_out(published_57):
    figure = interp.carry_units(published_57, n=512).figure()
    traces = [trace for trace in figure.data if trace.mode == "markers"]
    assert len(traces) == 4  # two units, carry in 0 and 1
    for trace in traces:
        filled = [colour != "white" for colour in trace.marker.color]
        carry = int(trace.name.removeprefix("carry in "))
        assert filled == [row[2] + carry >= 10 for row in trace.customdata]  # low, high, digit sum


def test_the_ablation_picture_shows_what_is_right_with_each_neuron_at_zero(published_57):
    result = interp.carry_units(published_57, n=512)
    figure = result.figure("ablation")
    right = result._without_units("carry_out").set_index(["unit", "present"])["ablated"]
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert [bar.y[1] for bar in bars] == [right[0, False], right[0, True]]


def test_an_untrained_model_is_not_said_to_have_switches():
    result = interp.carry_units(ADDER, n=128)
    assert result.verdicts()["signal"].isna().all()
    assert result.figure().data and result.figure("ablation").data


def test_long_titles_are_wrapped_within_the_figure():
    figure = theme.finish(go.Figure(), "word " * 60, interp.Provenance(1, 0, "x"), width=800)
    assert max(len(line) for line in figure.layout.title.text.split("<br>")) < 800 / 8


@pytest.mark.parametrize("width", range(500, 1000, 50))
def test_no_line_of_a_subtitle_ends_within_a_name(width: int):
    """A page writes the subtitle as one paragraph, in which "ten-digit- addition" would stand."""
    name = "position-coupling-1l4h-small"
    figure = theme.finish(go.Figure(), "word", interp.Provenance(1, 0, f"{name} " * 30), width=width)
    assert {*figure.layout.title.subtitle.text.replace("<br>", " ").split()} > {name}
    assert "- " not in figure.layout.title.subtitle.text.replace("<br>", " ")


def test_names_on_a_short_arc_stand_at_two_distances():
    for degrees, rings in ((4.5, 2), (9.0, 1)):
        angles = np.radians(degrees) * np.arange(10)
        fit = fit_circle(np.stack((np.cos(angles), np.sin(angles)), axis=1), 1)
        names = next(trace for trace in fit.figure().data if trace.mode == "text")
        x, y = names.x - fit.centre[0], names.y - fit.centre[1]
        assert len(names.text) == 10 and len(set(np.hypot(x, y).round(3))) == rings


def test_figures_import_no_model_and_nothing_that_runs_one(package_dir: Path):
    files = sorted((package_dir / "figures").glob("*.py"))
    assert {"traces.py", "figure_panels.py"} <= {file.name for file in files}
    # Words, numbers and writing files.
    allowed = (
        "models.errors",
        "models.number_format",
        "models.files",
        "models.transformer",
        "models.tasks",
    )
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert all(name in allowed or not name.startswith(("models", "torch")) for name in names), file


def test_a_unit_that_carries_nothing_gets_a_panel_beside_one_that_does():
    """The stored 57 with its second unit cut off from its input, after which most digits are wrong."""
    adder = models.load("microadder-57")
    with torch.no_grad():
        adder.weight_map.W_fc1[1] = 0.0
    units = interp.carry_units(adder, n=512)
    assert [units.verdict(0, unit)["kind"] for unit in (0, 1)] == ["not able", "none"]
    titles = " ".join(annotation.text for annotation in units.figure().layout.annotations)
    assert "no single signal" in titles and "carry out" in titles
    assert units.verdicts()["signal"].dropna().tolist() == ["carry_out"]


@pytest.mark.parametrize("make", planted.PLANTED, ids=lambda make: make.__name__)
def test_a_planted_result_draws_every_picture_of_its_type(make):
    result = make()
    for kind in drawings(type(result)):
        figure = result.figure(kind)
        assert str(result.provenance) in figure.layout.title.subtitle.text.replace("<br>", " ")
        assert len(figure.data) > 0
        for trace in figure.data:
            assert trace.hoverinfo == "skip" or trace.hovertemplate, trace.name


def test_a_result_that_was_not_asked_for_but_read_has_its_picture():
    """What draws it stands in its package, of which nothing else need be imported yet."""
    code = "from interp.core.drawings import drawings; from interp.probes.score_result import Scores"
    code += "; print(len(drawings(Scores)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(drawings(Scores)) == 1


def by_name(figure: go.Figure) -> dict[str, list[go.Scatter]]:
    found: dict[str, list[go.Scatter]] = {}
    for trace in figure.data:
        found.setdefault(trace.name, []).append(trace)
    return found


def test_errors_by_chain_are_a_bound_everywhere_and_a_rate_where_there_are_errors():
    (drawn,) = planted.accuracy_by_chain().figure().data
    assert list(drawn.x) == [0, 1, 2] and list(drawn.y) == pytest.approx([1 - 0.05 ** (1 / 20)] * 2 + [0.25])
    assert [colour == "white" for colour in drawn.marker.color] == [True, True, False]
    assert drawn.customdata[2][2:4].tolist() == [15, 20]  # right, of all


def test_grokking_curves_are_grouped_by_whether_the_seed_was_ever_perfect():
    traces = by_name(planted.grokking_curves().figure())
    (stored,), (other,), (never,) = (
        traces[name] for name in ("seed 0, in the zoo", "perfect at some point (1)", "never perfect (1)")
    )
    for trace, values in ((stored, [0.0, 0.5, 1.0]), (other, [0.0, 1.0, 0.9]), (never, [0.0, 0.1])):
        np.testing.assert_array_equal(trace.y, [*values, np.nan])  # the last ended after two evaluations


def test_hovering_writes_no_exponents():
    assert traces.hover("{x:.4g} {y:,.3g} {z:.2f} {low:.3~g}", low=[1e-7])["hovertemplate"] == (
        "%{x:.4~r} %{y:,.3~r} %{z:.2f} %{customdata[0]:.3~r}<extra></extra>"
    )


def test_hovering_names_its_fields():
    said = traces.hover("{y} at {x}: {z:.2f} [{low:.1f}] {n:,}", low=[[1.0, 2.0]], n=[[3], [4]])
    assert said["hovertemplate"] == "%{y} at %{x}: %{z:.2f} [%{customdata[0]:.1f}] %{customdata[1]:,}<extra></extra>"
    assert said["customdata"].shape == (2, 2, 2) and said["customdata"][1, 0].tolist() == [1.0, 4]


def test_the_legend_keeps_clear_of_a_title_of_two_lines():
    """Below the panel stand the tick labels, the axis title and the legend; each further line moves the legend down."""

    def below(title: str) -> float:
        series = traces.points([0, 1], [0, 1], "series", theme.BLUE, "circle", 5)
        layout = compose([Panel([series], x=title)], "", Provenance(2, None, "points"), height=500).layout
        return -layout.legend.y * (layout.height - layout.margin.t - layout.margin.b)

    assert below("one") + 15 < below("one<br>two") < below("one<br>two<br>three") - 15


def test_a_scale_has_one_bar_and_a_series_one_place_in_the_legend():
    one = [traces.cells([[0.5]], ["a"], ["b"], bar="share"), traces.points([1], [2], "series")]
    other = [traces.cells([[0.7]], ["a"], ["b"], bar="share"), traces.points([1], [3], "series")]
    own = [traces.cells([[7.0]], ["a"], ["b"], limits=(0, 9), bar="count")]
    figure = compose([Panel(one), Panel(other), Panel(own)], "A title", planted.PROVENANCE, columns=3)
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    assert [trace.showscale for trace in maps] == [True, False, True]
    assert maps[0].colorbar.x < figure.layout.xaxis3.domain[0] < maps[2].colorbar.x
    assert [trace.showlegend for trace in figure.data if trace.name == "series"] == [None, False]
    assert {trace.legendgroup for trace in figure.data if trace.name == "series"} == {"series"}


def test_intervals_end_where_they_are_said_to():
    estimate = traces.points([1, 2], [0.5, 0.7], ends=([0.4, 0.1], [0.6, 0.9]))
    np.testing.assert_allclose(estimate.y - np.array(estimate.error_y.arrayminus), [0.4, 0.1])
    np.testing.assert_allclose(estimate.y + np.array(estimate.error_y.array), [0.6, 0.9])
    lying = traces.bars([0.5], ["a"], across=True, ends=([0.4], [0.6]))
    assert lying.orientation == "h" and lying.error_y.array is None
    np.testing.assert_allclose(lying.error_x.array, 0.1)


def test_signed_cells_have_one_scale_blue_above_zero_and_vermilion_below():
    layer = traces.cells([[-1.0, 4.0]], ["a", "b"], ["c"], signed=True)
    assert (layer.zmin, layer.zmax) == (-4.0, 4.0) and layer.reversescale is None
    ends = [colour for _, colour in layer.colorscale]
    assert ends == [theme.NEGATIVE, "#FFFFFF", theme.POSITIVE] == ["#D55E00", "#FFFFFF", "#0072B2"]


def test_a_dot_plot_has_a_row_a_label_a_mark_a_series_and_the_ends_of_every_interval():
    share = Proportion(10, 20, 0.4, 0.7, 20.0)
    series = {"one": {"a": share, "b": (0.2, 0.1, 0.2)}, "two": {"b": (1.0, 0.9, 1.0)}}
    figure = dot_plot(series, "Found", interp.Provenance(20, 0, "problems"), x="share", rows=["b", "a"])
    one, two = figure.data
    assert list(one.x) == [0.5, 0.2] and list(one.y) == ["a", "b"] and one.name == "one"
    np.testing.assert_allclose([one.error_x.array, one.error_x.arrayminus], [[0.2, 0.0], [0.1, 0.1]])
    assert list(two.y) == ["b"] and one.marker.symbol != two.marker.symbol
    assert list(figure.layout.yaxis.categoryarray) == ["b", "a"] and "n = 20" in figure.layout.title.subtitle.text


@pytest.mark.parametrize(("shares", "low"), [([0.2, -0.44], -0.44), ([0.2, 0.9], 0.0)])
def test_bars_of_negative_shares_are_on_the_axis(shares: list[float], low: float):
    bars = Bars("part", "share", series=[Series("one", ["a", "b"], shares)], scale="share")
    figure = draw_picture(Picture([bars], title="T", provenance=interp.Provenance(2, 0, "problems")))
    start, end = figure.layout.yaxis.range
    assert low - 0.1 < start <= low and end >= 1
