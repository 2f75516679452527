"""Figures of right answers by stratum: intervals over one kind of strata, a heat map over two.

Heat maps are laid out like Position Coupling's, from light (0) to dark blue (1); a red box is the training range; grey
is beyond the model's position tables, and white was not asked.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import band, cells, curve, hover, points
from interp.figures.panels import QUARTERS, Mark, Panel, compose, hline, label
from interp.probes.score_result import GridPanel, GridPanels, Scores, error_bound

#: Light to dark blue. 0 is not white, which means that a cell was not asked.
SCALE = sample_colorscale("Blues", np.linspace(0.1, 1, 9).tolist())
BOX = "#C00000"
BEYOND = "#BDBDBD"
_AXES = {
    "digits": "digits of each operand",
    "first digits": "digits of the first factor",
    "second digits": "digits of the second factor",
}


@drawing(Scores)
def scores(result: Scores) -> go.Figure:
    """Intervals over one kind of strata; a heat map over two, and lines for sizes of one kind."""
    if len(result.strata) == 1 and not result.trained:
        return intervals(result)
    return grid_panels(GridPanels(result.model, (GridPanel(result.model, (result,)),)), result.sentence())


def intervals(result: Scores) -> go.Figure:
    """Shares right with their 95% intervals, one colour per series; or error rates on a logarithmic axis. There, a
    triangle is the 95% upper bound of a stratum without an error, and a square a stratum tried in full."""
    (stratum,) = result.strata
    frame = result.to_dataframe().query("n > 0")
    chosen = result.about.get("chosen")
    groups = frame.groupby(result.series, sort=False) if result.series else [(result.counted, frame)]
    layers = []
    for i, (name, rows) in enumerate(groups):
        colour = theme.SEVEN[i % 7] if chosen is None else theme.BLUE if name == chosen else theme.GREY
        title = str(name) if isinstance(name, str) else f"{result.series} {name}{', in the zoo' * (name == chosen)}"
        layers += _errors(rows, stratum, title, colour) if result.errors else _shares(rows, stratum, title, colour, i)
    values = frame[stratum].unique()
    category = {"type": "category", "categoryorder": "array", "categoryarray": values, "tickfont": {"size": 11}}
    x: dict[str, Any] = {"title": stratum.replace("_", " ")} | (category if values.dtype.kind == "O" else {})
    y: dict[str, Any] = {"title": f"answers {result.counted}", "range": [-0.03, 1.05], "tickformat": ".0%"}
    if result.errors:
        y = {"title": "error rate", "type": "log", "exponentformat": "power", "dtick": 1}
    note = ". Triangles: nothing wrong, 95% upper bound; squares: every problem tried" if result.errors else ""
    room = 10 * max((len(str(value)) for value in values), default=0) if len(values) > 12 else 0
    return compose(
        [Panel(layers, x=x, y=y)], result.sentence(), result.provenance, note=f"Bars: 95% intervals{note}",
        height=560 + room // 2, margin={"b": 70 + room // 2}, showlegend=len(layers) > 1,
    )  # fmt: skip


def _shares(rows: Any, stratum: str, name: str, colour: str, i: int) -> list[go.Scatter]:
    said = hover(f"{name}, {{x}}: {{correct:,}} of {{n:,}} ({{y:.3f}})", correct=rows.correct, n=rows.n)
    style: dict[str, Any] = {"ends": (rows.low, rows.high), "symbol": theme.SYMBOLS[i % 7]}
    return [curve(rows[stratum], rows.accuracy, name, colour, theme.DASHES[i % 7], 1, **style, **said)]


def _errors(rows: Any, stratum: str, name: str, colour: str) -> list[go.Scatter]:
    rung = rows.rung if "rung" in rows else np.full(len(rows), "sampled")
    wrong, none = rows[rows.accuracy < 1], rows[(rows.accuracy == 1) & (rung == "sampled")]
    symbols = ["circle" if each == "sampled" else "square" for each in rung[rows.accuracy < 1]]
    bounds = [error_bound(int(n)) for n in none.n]
    said = hover(f"{name}, {{x}}: {{wrong:,}} of {{n:,}} wrong ({{y:.2g}})", wrong=wrong.n - wrong.correct, n=wrong.n)
    bound = hover(f"{name}, {{x}}: all {{n:,}} right; error rate below {{y:.2g}} (95%)", n=none.n)
    found = [
        (
            wrong,
            points(
                wrong[stratum], 1 - wrong.accuracy, name, colour, symbols, ends=(1 - wrong.high, 1 - wrong.low), **said
            ),
        ),
        (none, points(none[stratum], bounds, name, colour, "triangle-down-open", 10, **bound)),
    ]
    return [layer for rows, layer in found if len(rows)]  # the legend would show an empty first one


@drawing(GridPanels)
def grid_panels(result: GridPanels, title: str = "") -> go.Figure:
    """Lines if one size varies, heat maps if two do."""
    draws = accuracy_by_length if result.is_lines else exact_match_panels
    return draws(result, title or result.sentence())


def exact_match_panels(result: GridPanels, title: str) -> go.Figure:
    """Small multiples: exact match by operands (x) and digits (y), one panel per model, one scale from 0 to 1."""
    panels, first = result.panels, result.panels[0].grids[0]
    columns = len(panels) if len(panels) < 4 else 4 if len(panels) % 4 == 0 and len(panels) > 4 else 3
    rows = math.ceil(len(panels) / columns)
    width = min(max(560, 110 + 270 * columns), 1000) if len(panels) > 1 else 640  # no wider than other figures
    side = (width - 150) / columns  # side of a panel, which is square as in the paper
    notes: list[str] = []
    if "format" in first.about:
        notes.append(f"Whole responses, scratchpad and EOS included{_seeds(result)}")
    if any(panel.grids[0].trained for panel in panels):
        notes.append("Red box: training range")
    if any(bool(panel.grids[0].out_of_reach.any()) for panel in panels):
        notes.append("Grey: beyond the position tables")
    if result.planned is not None and result.planned > len(panels):
        notes.append(f"{len(panels)} of {result.planned} panels so far")
    return compose(
        [_panel(panel, side, number % columns == 0) for number, panel in enumerate(panels)],
        title, result.provenance, note=". ".join(notes), columns=columns, width=width,
        plots=rows * side + (rows - 1) * 84, gaps=(46, 84), margin={"t": 10, "b": 64, "r": 60},
    )  # fmt: skip


def _seeds(result: GridPanels) -> str:
    texts = sorted({panel.seeds_text for panel in result.panels})
    return f"; {' or '.join(texts)}"


def _panel(panel: GridPanel, side: float, first: bool) -> Panel:
    grid, median = panel.grids[0], panel.median()
    y_axis, x_axis = (str(axis) for axis in median.dims)
    x, y = median[x_axis].values, median[y_axis].values
    layers, marks = [], []
    if grid.out_of_reach.values.any():
        beyond = np.where(grid.out_of_reach.values, 1.0, np.nan)
        said = hover(f"{{x}} {x_axis}, {{y}} {y_axis}: beyond the position tables")
        layers.append(cells(beyond, x, y, scale=[[0, BEYOND], [1, BEYOND]], gap=0, hoverongaps=False, **said))
    tried = np.stack([grid.table.n.values for grid in panel.grids], -1).max(-1)
    said = hover(f"{{x}} {x_axis}, {{y}} {y_axis}: {{z:.3f}} ({panel.seeds_text}, {{tried}} problems)", tried=tried)
    bar = {"title": "exact match", "thickness": 14} | ({"tickvals": QUARTERS} if "format" in grid.about else {})
    limits = (0, 1) if "format" in grid.about else (float(np.nanmin(median.values)), 1)
    layers.append(cells(median.values, x, y, scale=SCALE, limits=limits, bar=bar, gap=0, hoverongaps=False, **said))
    if grid.trained and x_axis in grid.trained and y_axis in grid.trained:
        (x0, x1), (y0, y1) = grid.trained[x_axis], grid.trained[y_axis]
        ends = {"x0": max(x0, x[0]) - 0.5, "x1": x1 + 0.5, "y0": max(y0, y[0]) - 0.5, "y1": y1 + 0.5}
        lines = ({"color": "white", "width": 6}, {"color": BOX, "width": 3})  # the rim sets it off from dark cells
        marks += [Mark("add_shape", {"type": "rect", "line": line} | ends) for line in lines]
    title = "<br>".join(textwrap.wrap(panel.label, max(18, int(side / 7.2))))
    y_title = _AXES.get(y_axis, y_axis) if first else ""
    return Panel(layers, title, _axis(x, _AXES.get(x_axis, x_axis)), _axis(y, y_title), marks)


def _axis(values: np.ndarray, title: str) -> dict[str, Any]:
    if values.dtype.kind not in "iuf":
        return {"title": title, "type": "category"}
    step = 1 if values[-1] <= 12 else 5
    ticks = [int(v) for v in values if v == values[0] or (v % step == 0 and (step == 1 or v - values[0] >= 3))]
    return {
        "tickvals": ticks, "range": [values[0] - 0.5, values[-1] + 0.5], "ticks": "outside", "ticklen": 4,
        "tickcolor": "white", "title": {"text": title, "standoff": 4}, "constrain": "domain",
    }  # fmt: skip


def accuracy_by_length(result: GridPanels, title: str) -> go.Figure:
    """Parity: final answers by greedy decoding, and whole responses, over the number of bits.

    Bands are the exact 95% interval of one seed's problems, or the range over seeds around their median.
    """
    measures = [("correct", "whole response")]
    if all("answer" in grid.table for panel in result.panels for grid in panel.grids):
        measures.insert(0, ("answer", "final answer (greedy decoding)"))
    (axis,) = (str(name) for name in result.panels[0].grids[0].table.n.dims)
    trained = result.panels[0].grids[0].trained
    panels = []
    for what, words in measures:
        layers = [layer for i, panel in enumerate(result.panels) for layer in _line(panel, what, axis, i)]
        marks = []
        if trained and axis in trained:
            (x0, x1), grey = trained[axis], {"fillcolor": theme.LIGHT, "opacity": 0.7, "line_width": 0}
            marks.append(Mark("add_vrect", {"x0": x0, "x1": x1, "layer": "below"} | grey))
        if what == "answer":
            at: dict[str, Any] = {"xref": "x domain", "xanchor": "left", "yanchor": "top"}
            marks += [hline(0.5), label(0, 0.5, "a guess", colour=theme.GREY, **at)]
        y = {"range": [-0.03, 1.03], "tickformat": ".0%", "title": "" if panels else "right"}
        panels.append(Panel(layers, words, f"{axis} of the query", y, marks))
    over = "range over seeds" if any(len(panel.grids) > 1 for panel in result.panels) else "95% interval"
    note = f"Band: {over}{_seeds(result)}. Grey: training range"
    return compose(
        panels, title, result.provenance, note=note, columns=len(measures), height=600, shared="y",
        gaps=(36, 0), margin={"t": 24, "b": 80 + 24 * math.ceil(len(result.panels) / 3)},
    )  # fmt: skip


def _line(panel: GridPanel, what: str, axis: str, number: int) -> list[go.Scatter]:
    median = panel.median(what)
    if len(panel.grids) > 1:
        shares: Any = np.stack([grid.share(what).values for grid in panel.grids])
        low, high = np.min(shares, axis=0), np.max(shares, axis=0)
    else:
        frame: Any = next(iter(panel.grids)).to_dataframe().set_index(axis).reindex(list(median[axis].values))
        prefix = "" if what == "correct" else f"{what}_"
        low, high = frame[f"{prefix}low"].values, frame[f"{prefix}high"].values
    known = ~np.isnan(median.values)
    x, y, low, high = median[axis].values[known], median.values[known], low[known], high[known]
    every = max(1, len(x) // 12)  # few lengths get one mark each; many marks would merge into a band
    sizes = [8 if (i + number) % every == 0 else 0 for i in range(len(x))]
    colour, dash, symbol = (of[number % 7] for of in (theme.SEVEN, theme.DASHES, theme.SYMBOLS))
    said = hover(f"{panel.label}, {{x}} {axis}: {{y:.3f}} [{{low:.3f}}, {{high:.3f}}]", low=low, high=high)
    return [
        band(x, low, high, colour, legendgroup=panel.label),
        curve(x, y, panel.label, colour, dash, symbol=symbol, size=sizes, **said),
    ]
