"""The heat maps show the counts of their results, say under which policy, and need no model."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest
import xarray as xr

from interp.core.stats import clopper_pearson
from models.number_format import in_percent
from studies.position_coupling.grid_panels import ExactMatchGrid, GridPanel, GridPanels


def sums(seed: int = 0, offsets: str = "ids start at 1", operands: int = 6, digits: int = 5) -> ExactMatchGrid:
    """Counts as of a model trained on up to 3 digits and 4 operands whose tables end at 5 operands of 5 digits."""
    rng = np.random.default_rng(seed)
    n = np.full((digits, operands - 1), 80)
    n[4:, 4:] = 0
    table = {"n": n, "correct": (n * rng.random(n.shape)).astype(int)}
    sizes = {"digits": range(1, digits + 1), "operands": range(2, operands + 1)}
    about = {"task": "multi-operand-addition", "format": "scratchpad", "offsets": offsets, "requested": 80, "seed": 0}
    about |= {"early_exit": 50, "trained": {"operands": (2, 4), "digits": (1, 3)}, "method": "teacher_forced"}
    return ExactMatchGrid.made(
        "a-model", xr.Dataset({k: (("digits", "operands"), v) for k, v in table.items()}, sizes), about
    )


def bits(seed: int, final: bool = True) -> ExactMatchGrid:
    rng = np.random.default_rng(seed)
    correct = (100 * rng.random(30)).astype(int)
    table = {"n": np.full(30, 100), "correct": correct}
    if final:
        table |= {"answer": 50 + correct // 2, "answer_forced": 50 + correct // 2}
    about = {"task": "parity", "format": "scratchpad", "offsets": "no position ids", "requested": 100, "seed": 0}
    about |= {"early_exit": None, "trained": {"bits": (1, 20)}, "method": "teacher_forced"}
    return ExactMatchGrid.made(
        "p", xr.Dataset({k: (("bits",), v) for k, v in table.items()}, {"bits": range(1, 31)}), about
    )


def maps(figure: go.Figure) -> list[go.Heatmap]:
    return [trace for trace in figure.data if trace.type == "heatmap" and len(trace.colorscale) > 2]


def subtitle(figure: go.Figure) -> str:
    return figure.layout.title.subtitle.text.replace("<br>", " ")


def test_a_panel_shows_the_accuracy_of_every_size_on_the_scale_from_0_to_1():
    grid = sums()
    figure = grid.figure()
    (trace,) = maps(figure)
    shown = np.array(trace.z, dtype=float)
    expected = grid.table.correct.values / np.where(grid.table.n.values > 0, grid.table.n.values, np.nan)
    np.testing.assert_array_equal(shown, expected)
    assert list(trace.x) == [2, 3, 4, 5, 6] and list(trace.y) == [1, 2, 3, 4, 5]
    assert (trace.zmin, trace.zmax) == (0, 1)
    assert figure.layout.xaxis.title.text == "operands" and "digits" in figure.layout.yaxis.title.text


def test_sizes_out_of_reach_are_grey_and_explained():
    grid = sums()
    figure = grid.figure()
    grey = next(trace for trace in figure.data if len(trace.colorscale) == 2)
    np.testing.assert_array_equal(~np.isnan(np.array(grey.z, dtype=float)), grid.out_of_reach.values)
    assert "Grey: beyond the position tables" in subtitle(figure)
    reached = sums(operands=5, digits=4).figure()
    assert len(reached.data) == 1 and "Grey" not in subtitle(reached)


def test_the_red_box_is_the_training_range():
    rim, box = sums().figure().layout.shapes
    for shape in (rim, box):
        assert (shape.x0, shape.x1, shape.y0, shape.y1) == (1.5, 4.5, 0.5, 3.5)
    assert box.line.color != rim.line.color and rim.line.width > box.line.width


def test_a_panel_of_several_seeds_shows_their_median():
    grids = tuple(sums(seed) for seed in range(4))
    figure = GridPanels("Methods", (GridPanel("a", grids), GridPanel("b", grids[:1]))).figure()
    first, second = maps(figure)
    median = np.median([grid.accuracy.values for grid in grids], 0)
    np.testing.assert_array_equal(np.array(first.z, dtype=float), median)
    np.testing.assert_array_equal(np.array(second.z, dtype=float), grids[0].accuracy.values)
    assert "median of 4 seeds" in subtitle(figure)
    assert [note.text for note in figure.layout.annotations] == ["a", "b"]


def test_parity_is_lines_with_exact_intervals_a_guess_and_the_training_range():
    grid = bits(0)
    figure = GridPanels("Parity", (GridPanel("coupled", (grid,)), GridPanel("none", (bits(1),)))).figure()
    lines = [trace for trace in figure.data if trace.mode == "lines+markers"]
    assert [line.name for line in lines] == ["coupled", "none", "coupled", "none"]
    np.testing.assert_allclose(lines[0].y, grid.share("answer"))
    np.testing.assert_allclose(lines[2].y, grid.share())
    low, high = clopper_pearson(int(grid.table.answer[4]), 100)
    assert lines[0].customdata[4] == pytest.approx([low, high])
    assert sum(line.showlegend is not False for line in lines) == 2
    spans = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert {(span.x0, span.x1) for span in spans} == {(1, 20)}
    assert any(note.text == "a guess" for note in figure.layout.annotations)
    assert "95% interval" in subtitle(figure) and "no position ids" in subtitle(figure)


def test_seeds_of_a_line_are_summarised_by_median_and_range():
    figure = GridPanels("Parity", (GridPanel("coupled", tuple(bits(seed) for seed in range(3))),)).figure()
    line = next(trace for trace in figure.data if trace.mode == "lines+markers")
    shares = np.stack([bits(seed).share("answer").values for seed in range(3)])
    np.testing.assert_allclose(line.y, np.median(shares, 0))
    np.testing.assert_allclose(line.customdata, np.stack((shares.min(0), shares.max(0)), -1))
    assert "range over seeds" in subtitle(figure)


def test_the_title_of_panels_orders_them_by_what_they_reach():
    panels = GridPanels("Methods", (GridPanel("weak", (sums(3),)), GridPanel("strong", (sums(0),))))
    outside = dict(zip(("weak", "strong"), (mean for _, mean in panels.means()), strict=True))
    best = max(outside, key=lambda label: outside[label])
    assert f"outside the training range {in_percent(outside[best])} with {best};" in panels.sentence()
