"""Pictures of grids of exact match and of offset sweeps, laid out like Position Coupling's.

Red is 0 and blue is 1; a red box is the training range; grey is beyond the model's position tables, white not asked.
"""

from __future__ import annotations

import math
import textwrap

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.heatmaps.grid import ExactMatchGrid
from interp.probes.heatmaps.offset_sweeps import OffsetSweep
from interp.probes.heatmaps.panels import GridPanel, GridPanels

#: Red to blue as in the paper, through near-white at one half; both ends differ in lightness from the middle.
SCALE = "RdBu"
BOX = "#C00000"
BEYOND = "#BDBDBD"
COLOURS = (
    theme.BLUE, theme.VERMILION, theme.GREEN, theme.ORANGE, theme.PURPLE, theme.SKY, theme.BLACK,
)  # fmt: skip
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")


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
    cell = (width - 150) / columns
    high = 1.0 * cell  # squares, as in the paper
    height_of_plots = rows * high + (rows - 1) * 84
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[_panel_title(panel, cell) for panel in panels],
        horizontal_spacing=46 / (width - 130),
        vertical_spacing=84 / max(height_of_plots, 1) if rows > 1 else 0,
    )
    for number, panel in enumerate(panels):
        _panel(figure, panel, number // columns + 1, number % columns + 1, number == 0)
    figure.update_layout(coloraxis={
        "colorscale": SCALE, "cmin": 0, "cmax": 1,
        "colorbar": {"title": {"text": "exact match", "side": "right"}, "thickness": 14, "len": min(1.0, 1.6 / rows),
                     "tickvals": [0, 0.25, 0.5, 0.75, 1]},
    })  # fmt: skip
    notes = [f"Whole responses, scratchpad and EOS included{_seeds(result)}"]
    if any(panel.grids[0].trained for panel in panels):
        notes.append("Red box: training range")
    if any(bool(panel.grids[0].out_of_reach.any()) for panel in panels):
        notes.append("Grey: beyond the position tables")
    if result.planned is not None and result.planned > len(panels):
        notes.append(f"{len(panels)} of {result.planned} panels so far")
    figure = theme.finish(figure, result.sentence(), result.provenance, width, 200, note=". ".join(notes))
    top = (figure.layout.margin.t or 0) + 10
    figure.update_layout(height=top + height_of_plots + 64, margin={"t": top, "b": 64, "r": 60})
    figure.update_annotations(font_size=13)
    return figure


def _panel_title(panel: GridPanel, width: float) -> str:
    return "<br>".join(textwrap.wrap(panel.label, max(18, int(width / 7.2))))


def _seeds(result: GridPanels) -> str:
    texts = sorted({panel.seeds_text for panel in result.panels})
    return f"; {' or '.join(texts)}"


def _panel(figure: go.Figure, panel: GridPanel, row: int, column: int, first: bool) -> None:
    grid, median = panel.grids[0], panel.median()
    y_axis, x_axis = (str(axis) for axis in median.dims)
    x, y = median[x_axis].values, median[y_axis].values
    beyond = np.where(grid.out_of_reach.values, 1.0, np.nan)
    if np.nansum(beyond):
        figure.add_heatmap(
            x=x, y=y, z=beyond, colorscale=[[0, BEYOND], [1, BEYOND]], showscale=False, hoverongaps=False,
            hovertemplate=f"%{{x}} {x_axis}, %{{y}} {y_axis}: beyond the position tables<extra></extra>",
            row=row, col=column,
        )  # fmt: skip
    tried = np.stack([grid.table.n.values for grid in panel.grids], -1).max(-1)
    figure.add_heatmap(
        x=x, y=y, z=median.values, coloraxis="coloraxis", hoverongaps=False, customdata=tried,
        hovertemplate=f"%{{x}} {x_axis}, %{{y}} {y_axis}: %{{z:.3f}} ({panel.seeds_text}, "
        "%{customdata} problems)<extra></extra>",
        row=row, col=column,
    )  # fmt: skip
    if grid.trained and x_axis in grid.trained and y_axis in grid.trained:
        (x0, x1), (y0, y1) = grid.trained[x_axis], grid.trained[y_axis]
        figure.add_shape(
            type="rect", x0=max(x0, x[0]) - 0.5, x1=x1 + 0.5, y0=max(y0, y[0]) - 0.5, y1=y1 + 0.5,
            line={"color": BOX, "width": 3}, row=row, col=column,
        )  # fmt: skip
    for update, values, title, shown in (
        (figure.update_xaxes, x, _axis_title(grid, x_axis), True),
        (figure.update_yaxes, y, _axis_title(grid, y_axis), column == 1),
    ):
        update(
            tickvals=_ticks(values), range=[values[0] - 0.5, values[-1] + 0.5], showgrid=False, zeroline=False,
            ticks="outside", ticklen=4, tickcolor="white",
            title={"text": title if shown else "", "standoff": 4}, constrain="domain", row=row, col=column,
        )  # fmt: skip


def _axis_title(grid: ExactMatchGrid, axis: str) -> str:
    names = {
        "operands": "operands",
        "digits": "digits of each operand",
        "first digits": "digits of the first factor",
        "second digits": "digits of the second factor",
    }
    return names.get(axis, axis)


def _ticks(values: np.ndarray) -> list[int]:
    span = int(values[-1])
    step = 1 if span <= 12 else 5
    return [int(v) for v in values if v == values[0] or (v % step == 0 and (step == 1 or v - values[0] >= 3))]


def accuracy_by_length(result: GridPanels) -> go.Figure:
    """Parity: final answers by greedy decoding, and whole responses, against the number of bits.

    Bands are the exact 95% interval of one seed's problems, or the range over seeds around their median.
    """
    measures = [("correct", "whole response")]
    if all("answer" in grid.table for panel in result.panels for grid in panel.grids):
        measures.insert(0, ("answer", "final answer (greedy decoding)"))
    (axis,) = (str(name) for name in result.panels[0].grids[0].table.n.dims)
    figure = make_subplots(cols=len(measures), shared_yaxes=True, horizontal_spacing=0.04,
                           subplot_titles=[title for _, title in measures])  # fmt: skip
    for column, (what, _) in enumerate(measures, 1):
        for number, panel in enumerate(result.panels):
            _line(figure, panel, what, axis, number, column)
        trained = result.panels[0].grids[0].trained
        if trained and axis in trained:
            figure.add_vrect(
                x0=trained[axis][0], x1=trained[axis][1], fillcolor=theme.LIGHT, opacity=0.7, line_width=0,
                layer="below", row=1, col=column,
            )  # fmt: skip
        if what == "answer":
            figure.add_hline(y=0.5, line={"dash": "dash", "color": theme.GREY, "width": 1}, row=1, col=column)
            figure.add_annotation(
                x=0, xref="x domain", y=0.5, yref="y", xanchor="left", yanchor="top", text="a guess",
                showarrow=False, font={"size": 12, "color": theme.GREY},
            )  # fmt: skip
        figure.update_xaxes(title=f"{axis} of the query", row=1, col=column)
    figure.update_yaxes(range=[-0.03, 1.03], tickformat=".0%")
    figure.update_yaxes(title="right", row=1, col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.19, "x": 0})
    band = "range over seeds" if any(len(panel.grids) > 1 for panel in result.panels) else "95% interval"
    notes = f"Band: {band}{_seeds(result)}. Grey: training range"
    finished = theme.finish(figure, result.sentence(), result.provenance, width=1000, height=600, note=notes)
    legend_rows = math.ceil(len(result.panels) / 3)
    return finished.update_layout(margin={"t": finished.layout.margin.t + 24, "b": 80 + 24 * legend_rows})


def _line(figure: go.Figure, panel: GridPanel, what: str, axis: str, number: int, column: int) -> None:
    median = panel.median(what)
    colour = COLOURS[number % len(COLOURS)]
    x = median[axis].values
    if len(panel.grids) > 1:
        shares = np.stack([grid.share(what).values for grid in panel.grids])
        low, high = shares.min(0), shares.max(0)
    else:
        frame = next(iter(panel.grids)).to_dataframe().set_index(axis).reindex(x)
        prefix = "" if what == "correct" else f"{what}_"
        low, high = frame[f"{prefix}low"].values, frame[f"{prefix}high"].values
    known = ~np.isnan(median.values)
    x, y, low, high = x[known], median.values[known], low[known], high[known]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    figure.add_scatter(
        x=[*x, *x[::-1]], y=[*high, *low[::-1]], fill="toself", fillcolor=f"rgba({red},{green},{blue},0.15)",
        line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=panel.label, row=1, col=column,
    )  # fmt: skip
    # Few lengths get a mark each; many would merge into a band.
    every = max(1, len(x) // 12)
    figure.add_scatter(
        x=x, y=y, name=panel.label, legendgroup=panel.label, showlegend=column == 1, mode="lines+markers",
        line={"color": colour, "dash": DASHES[number % len(DASHES)], "width": 2},
        marker={"symbol": SYMBOLS[number % len(SYMBOLS)],
                "size": [8 if (i + number) % every == 0 else 0 for i in range(len(x))]},
        customdata=np.stack((low, high), -1),
        hovertemplate=f"{panel.label}, %{{x}} {axis}: %{{y:.3f}} [%{{customdata[0]:.3f}}, "
        "%{customdata[1]:.3f}]<extra></extra>",
        row=1, col=column,
    )  # fmt: skip


@drawing(OffsetSweep)
def offset_sweep(result: OffsetSweep) -> go.Figure:
    """Exact match by the first id, one line a set of levels that moves; the band is the exact 95% interval."""
    frame = result.to_dataframe()
    figure = go.Figure()
    for number, (moved, rows) in enumerate(frame[frame.moved != "random"].groupby("moved", sort=False)):
        figure.add_scatter(
            x=rows.start + 0.06 * (number - 1), y=rows.accuracy, name=f"{moved} moved", mode="lines+markers",
            line={"color": COLOURS[number], "dash": DASHES[number]},
            marker={"symbol": SYMBOLS[number], "size": 8},
            error_y=theme.error_bars(rows.accuracy, rows.low, rows.high),
            customdata=rows[["start", "correct", "n"]].values,
            hovertemplate="start %{customdata[0]}: %{customdata[1]} of %{customdata[2]} right<extra></extra>",
        )  # fmt: skip
    last = frame.iloc[-1]
    figure.add_hrect(y0=last.low, y1=last.high, fillcolor=theme.GREY, opacity=0.2, line_width=0)
    figure.add_hline(
        y=last.accuracy, line={"dash": "dash", "color": theme.GREY},
        annotation={"text": f"random offsets: {last.accuracy:.3f}", "font": {"color": theme.GREY}},
        annotation_position="top right",
    )  # fmt: skip
    step = 1 if frame.start.max() <= 15 else 5
    figure.update_xaxes(title="first position id (the paper tests with 1)", tickmode="linear", dtick=step)
    figure.update_yaxes(title="exact match of whole responses", range=[-0.03, 1.08])
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=860, height=560, note="Bars: 95% intervals")
