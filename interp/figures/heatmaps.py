"""Pictures of grids of exact match and of offset sweeps, laid out like Position Coupling's.

Red is 0 and blue is 1; a red box is the training range; grey is beyond the model's position tables, white not asked.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import band, cells, curve, hover
from interp.figures.panels import Mark, Panel, compose, hline, label
from interp.probes.heatmaps.offset_sweeps import OffsetSweep
from interp.probes.heatmaps.panels import GridPanel, GridPanels

#: Red to blue as in the paper, through near-white at one half; both ends differ in lightness from the middle.
SCALE = "RdBu"
BOX = "#C00000"
BEYOND = "#BDBDBD"
_AXES = {
    "digits": "digits of each operand",
    "first digits": "digits of the first factor",
    "second digits": "digits of the second factor",
}


@drawing(GridPanels)
def grid_panels(result: GridPanels) -> go.Figure:
    """Lines where one size varies, heat maps where two do."""
    return accuracy_by_length(result) if result.is_lines else exact_match_panels(result)


def exact_match_panels(result: GridPanels, columns: int | None = None) -> go.Figure:
    """Small multiples: exact match by operands (x) and digits (y), one panel a model, all on one scale from 0 to 1."""
    panels = result.panels
    columns = columns or (len(panels) if len(panels) < 4 else 4 if len(panels) % 4 == 0 and len(panels) > 4 else 3)
    rows = math.ceil(len(panels) / columns)
    width = max(560, 110 + 270 * columns) if len(panels) > 1 else 640
    side = (width - 150) / columns  # of a panel, which is a square as in the paper
    notes = [f"Whole responses, scratchpad and EOS included{_seeds(result)}"]
    if any(panel.grids[0].trained for panel in panels):
        notes.append("Red box: training range")
    if any(bool(panel.grids[0].out_of_reach.any()) for panel in panels):
        notes.append("Grey: beyond the position tables")
    if result.planned is not None and result.planned > len(panels):
        notes.append(f"{len(panels)} of {result.planned} panels so far")
    return compose(
        [_panel(panel, side, number % columns == 0) for number, panel in enumerate(panels)],
        result.sentence(), result.provenance, note=". ".join(notes), columns=columns, width=width,
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
    bar = {"title": "exact match", "thickness": 14, "tickvals": [0, 0.25, 0.5, 0.75, 1]}
    layers.append(cells(median.values, x, y, scale=SCALE, bar=bar, gap=0, hoverongaps=False, **said))
    if grid.trained and x_axis in grid.trained and y_axis in grid.trained:
        (x0, x1), (y0, y1) = grid.trained[x_axis], grid.trained[y_axis]
        ends = {"x0": max(x0, x[0]) - 0.5, "x1": x1 + 0.5, "y0": max(y0, y[0]) - 0.5, "y1": y1 + 0.5}
        marks.append(Mark("add_shape", {"type": "rect", "line": {"color": BOX, "width": 3}} | ends))
    title = "<br>".join(textwrap.wrap(panel.label, max(18, int(side / 7.2))))
    y_title = _AXES.get(y_axis, y_axis) if first else ""
    return Panel(layers, title, _axis(x, _AXES.get(x_axis, x_axis)), _axis(y, y_title), marks)


def _axis(values: np.ndarray, title: str) -> dict[str, Any]:
    step = 1 if values[-1] <= 12 else 5
    ticks = [int(v) for v in values if v == values[0] or (v % step == 0 and (step == 1 or v - values[0] >= 3))]
    return {
        "tickvals": ticks, "range": [values[0] - 0.5, values[-1] + 0.5], "ticks": "outside", "ticklen": 4,
        "tickcolor": "white", "title": {"text": title, "standoff": 4}, "constrain": "domain",
    }  # fmt: skip


def accuracy_by_length(result: GridPanels) -> go.Figure:
    """Parity: final answers by greedy decoding, and whole responses, against the number of bits.

    Bands are the exact 95% interval of one seed's problems, or the range over seeds around their median.
    """
    measures = [("correct", "whole response")]
    if all("answer" in grid.table for panel in result.panels for grid in panel.grids):
        measures.insert(0, ("answer", "final answer (greedy decoding)"))
    (axis,) = (str(name) for name in result.panels[0].grids[0].table.n.dims)
    trained = result.panels[0].grids[0].trained
    panels = []
    for what, title in measures:
        layers = [layer for i, panel in enumerate(result.panels) for layer in _line(panel, what, axis, i)]
        marks = []
        if trained and axis in trained:
            (x0, x1), grey = trained[axis], {"fillcolor": theme.LIGHT, "opacity": 0.7, "line_width": 0}
            marks.append(Mark("add_vrect", {"x0": x0, "x1": x1, "layer": "below"} | grey))
        if what == "answer":
            at: dict[str, Any] = {"xref": "x domain", "xanchor": "left", "yanchor": "top"}
            marks += [hline(0.5), label(0, 0.5, "a guess", colour=theme.GREY, **at)]
        y = {"range": [-0.03, 1.03], "tickformat": ".0%", "title": "" if panels else "right"}
        panels.append(Panel(layers, title, f"{axis} of the query", y, marks))
    over = "range over seeds" if any(len(panel.grids) > 1 for panel in result.panels) else "95% interval"
    note = f"Band: {over}{_seeds(result)}. Grey: training range"
    return compose(
        panels, result.sentence(), result.provenance, note=note, columns=len(measures), height=600, shared="y",
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
    every = max(1, len(x) // 12)  # few lengths get a mark each; many would merge into a band
    sizes = [8 if (i + number) % every == 0 else 0 for i in range(len(x))]
    colour, dash, symbol = (of[number % 7] for of in (theme.SEVEN, theme.DASHES, theme.SYMBOLS))
    said = hover(f"{panel.label}, {{x}} {axis}: {{y:.3f}} [{{low:.3f}}, {{high:.3f}}]", low=low, high=high)
    return [
        band(x, low, high, colour, legendgroup=panel.label),
        curve(x, y, panel.label, colour, dash, symbol=symbol, size=sizes, **said),
    ]


@drawing(OffsetSweep)
def offset_sweep(result: OffsetSweep) -> go.Figure:
    """Exact match by the first id, one line a set of levels that moves; the band is the exact 95% interval."""
    frame = result.to_dataframe()
    lines = []
    for i, (moved, rows) in enumerate(frame[frame.moved != "random"].groupby("moved", sort=False)):
        said = hover("start {start}: {correct} of {n} right", start=rows.start, correct=rows.correct, n=rows.n)
        lines.append(
            curve(
                rows.start + 0.06 * (i - 1), rows.accuracy, f"{moved} moved", theme.SEVEN[i], theme.DASHES[i],
                symbol=theme.SYMBOLS[i], ends=(rows.low, rows.high), **said,
            )
        )  # fmt: skip
    last = frame.iloc[-1]
    within = {"y0": last.low, "y1": last.high, "fillcolor": theme.GREY, "opacity": 0.2, "line_width": 0}
    marks = [Mark("add_hrect", within), hline(last.accuracy, f"random offsets: {last.accuracy:.3f}")]
    step = 1 if frame.start.max() <= 15 else 5
    x = {"title": "first position id (the paper tests with 1)", "tickmode": "linear", "dtick": step}
    panel = Panel(lines, x=x, y={"title": "exact match of whole responses", "range": [-0.03, 1.08]}, marks=marks)
    return compose([panel], result.sentence(), result.provenance, note="Bars: 95% intervals", width=860)
