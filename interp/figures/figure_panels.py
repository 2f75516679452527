"""Panels of layers, composed into a figure with one look, one legend and one colour bar per scale.

    compose(
        [Panel([curve(...), curve(...)], "loss", x="step", y="nats", marks=[hline(0)]), Panel([bars(...)], "right")],
        "What was found, with numbers", result.provenance, columns=2, note="Bars: 95% intervals",
    )

An axis is its title, or Plotly's settings with ``title`` among them; ``{"square": True}`` of a y axis makes its unit as
long as that of x. Rows of heat maps run downwards. A series in several panels appears once in the legend, which
switches it in all of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.text_size import LETTER, TICK, categories
from interp.figures.traces import Number

Axis = str | Mapping[str, Any]
SHARE = {"range": [-0.03, 1.03], "tickformat": ".0%"}  # an axis of shares
QUARTERS = [0, 0.25, 0.5, 0.75, 1]
_GAPS = (70, 84)  # pixels between panels: tick labels and a title
_AROUND = 190  # about how many pixels the title and the margins take
_LINE = 17  # height of a line of tick labels in pixels


@dataclass(frozen=True)
class Mark:
    """A line, range, frame or text that belongs to no layer: a method of the figure and its arguments."""

    method: str
    style: Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """Layers on one pair of axes; the panel spans ``span`` columns of the grid."""

    layers: Sequence[go.Heatmap | go.Scatter | go.Bar | go.Table]
    title: str = ""
    x: Axis = ""
    y: Axis = ""
    marks: Sequence[Mark] = ()
    span: int = 1


def hline(y: Any, said: str = "", dash: str = "dash", colour: str = theme.GREY, place: str = "top right") -> Mark:
    """A horizontal line to compare with, and its label."""
    return Mark("add_hline", {"y": y} | _line(said, dash, colour, place))


def vline(x: Any, said: str = "", dash: str = "dash", colour: str = theme.GREY, place: str = "top right") -> Mark:
    """A vertical line to compare with, and its label."""
    return Mark("add_vline", {"x": x} | _line(said, dash, colour, place))


def _line(said: str, dash: str, colour: str, place: str) -> dict[str, Any]:
    style: dict[str, Any] = {"line": {"color": colour, "dash": dash, "width": 1}}
    if said:
        style |= {"annotation": {"text": said, "font": {"size": 12, "color": colour}}, "annotation_position": place}
    return style


def frame(x: Number, y: Number, colour: str, width: Number = 4, dash: str = "solid") -> Mark:
    """A frame around the cell in column x and row y."""
    ends = {"x0": x - 0.47, "x1": x + 0.47, "y0": y - 0.46, "y1": y + 0.46}
    return Mark("add_shape", {"type": "rect", "line": {"color": colour, "width": width, "dash": dash}} | ends)


def label(x: Any, y: Any, text: str, size: int = 12, colour: str = theme.BLACK, **style: Any) -> Mark:
    """Text at a place, without an arrow; ``xref="x domain"`` measures x in shares of the panel."""
    font = {"size": size, "color": colour}
    return Mark("add_annotation", {"x": x, "y": y, "text": text, "showarrow": False, "font": font} | style)


def compose(
    panels: Sequence[Panel],
    title: str,
    provenance: Provenance,
    *,
    note: str = "",
    columns: int = 1,
    width: int = 1000,
    height: int = 560,
    plots: Number | None = None,
    widths: Sequence[Number] | None = None,
    heights: Sequence[Number] | None = None,
    gaps: tuple[Number, Number] = _GAPS,
    shared: str = "",
    legend: Mapping[str, Any] | None = None,
    margin: Mapping[str, int] | None = None,
    title_size: int = 13,
    **layout: Any,
) -> go.Figure:
    """A figure of panels, filled row by row in ``columns`` columns.

    Args:
        title: the finding, with numbers.
        note: text of the subtitle before the provenance.
        width, height: size of the whole figure in pixels.
        plots: height of the rows of panels and the gaps between them, instead of the whole height.
        widths, heights: relative sizes of columns and rows.
        gaps: pixels between columns and between rows.
        shared: "x", "y" or "xy": the axes that panels of a column or a row have in common.
        legend: changes to the default legend, a row of names below the panels.
        margin: changes to the default margins ("t" is added to the title's room).
        title_size: font size of the panels' titles.
        layout: further settings of Plotly's layout.
    """
    around = dict(theme.MARGIN) | dict(margin or {})
    places = _places(panels, columns)
    rows = places[-1][0]
    inside = width - around["l"] - around["r"], plots or max(height - _AROUND, 100)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        specs=_specs(panels, places, rows, columns),
        column_widths=None if widths is None else list(widths),
        row_heights=None if heights is None else list(heights),
        horizontal_spacing=min(gaps[0] / inside[0], 0.9 / max(1, columns - 1)) if columns > 1 else 0,
        vertical_spacing=min(gaps[1] / inside[1], 0.9 / max(1, rows - 1)) if rows > 1 else 0,
        shared_xaxes="x" in shared,
        shared_yaxes="y" in shared,
        subplot_titles=[panel.title for panel in panels] if any(panel.title for panel in panels) else None,
    )
    figure.update_annotations(font_size=title_size)
    for panel, (row, column) in zip(panels, places, strict=True):
        _fill(figure, panel, {"row": row, "col": column})
    _one_legend(figure)
    _one_bar_a_scale(figure, inside)
    titles = [axis.title.text or "" for axis in figure.select_xaxes()]
    named = [axis.ticktext if axis.ticktext is not None else axis.categoryarray for axis in figure.select_xaxes()]
    below = [str(name) for names in named if names is not None for name in names]
    more = max((name.count("<br>") for name in below), default=0)
    more += _wrap_categories(figure, inside[0]) - 1 + max((text.count("<br>") for text in titles), default=0)
    around["b"] += _LINE * more
    theme.finish(figure, title, provenance, width, height, note, around)
    if plots is not None:
        figure.update_layout(height=plots + figure.layout.margin.t + around["b"])
    high = figure.layout.height - figure.layout.margin.t - around["b"]
    below = {"orientation": "h", "x": 0, "y": -(52 + _LINE * more) / high, "yanchor": "top", "traceorder": "normal"}
    figure.update_layout(legend=below | dict(legend or {}))
    return figure.update_layout(**layout)


def _places(panels: Sequence[Panel], columns: int) -> list[tuple[int, int]]:
    """(row, column) of every panel, counted from 1."""
    places, at = [], 0
    for panel in panels:
        if at % columns + panel.span > columns:
            at += columns - at % columns
        places.append((at // columns + 1, at % columns + 1))
        at += panel.span
    return places


def _specs(panels: Sequence[Panel], places: Sequence[tuple[int, int]], rows: int, columns: int) -> list[list[Any]]:
    specs: list[list[Any]] = [[None] * columns for _ in range(rows)]
    for panel, (row, column) in zip(panels, places, strict=True):
        table = {"type": "table"} if any(layer.type == "table" for layer in panel.layers) else {}
        specs[row - 1][column - 1] = {"colspan": panel.span} | table
    return specs


def _fill(figure: go.Figure, panel: Panel, where: dict[str, int]) -> None:
    for layer in panel.layers:
        figure.add_trace(layer, **where)
    grid = next((layer for layer in panel.layers if layer.type == "heatmap"), None)
    for letter, axis, update in (("x", panel.x, figure.update_xaxes), ("y", panel.y, figure.update_yaxes)):
        style: dict[str, Any] = {"title": axis} if isinstance(axis, str) else dict(axis)
        if grid is not None:
            labels = grid[letter] if grid[letter] is not None else ()
            names = {"type": "category"} if len(labels) and all(isinstance(name, str) for name in labels) else {}
            down = {"autorange": "reversed"} if letter == "y" and "range" not in style else {}
            style: dict[str, Any] = {"showgrid": False, "zeroline": False} | down | names | style
        if style.get("title") == "":
            del style["title"]
        if style.pop("square", False):
            own = next(iter(figure.select_xaxes(**where))).plotly_name.replace("axis", "")
            style |= {"scaleanchor": own, "constrain": "domain"}
        if style and panel.layers and panel.layers[0].type != "table":
            update(**style, **where)
    for mark in panel.marks:
        getattr(figure, mark.method)(**mark.style, **where)


def _one_legend(figure: go.Figure) -> None:
    """Show every name once in the legend, and leave traces without a name out of it."""
    named = [trace.name for trace in figure.data if trace.type in ("scatter", "bar")]
    seen = set()
    for trace in figure.data:
        if trace.type not in ("scatter", "bar"):
            continue
        key = (trace.name, trace.legend)
        if trace.showlegend is None and (not trace.name or key in seen):
            trace.showlegend = False
        if trace.name and trace.legendgroup is None and named.count(trace.name) > 1:
            trace.legendgroup = trace.name
        seen.add(key)


def _wrap_categories(figure: go.Figure, inside: Number) -> int:
    """Wrap names below bars that would overlap, and return the number of lines. Plotly would turn the names, and turned
    names run into the legend."""
    most = 1
    for axis in figure.select_xaxes():
        names = categories(figure, axis)
        letters = (axis.domain[1] - axis.domain[0]) * inside / max(1, len(names)) / (TICK * LETTER) - 1
        if not names or max(map(len, names)) <= letters or axis.ticktext is not None or axis.tickangle is not None:
            continue
        wrapped = [textwrap.wrap(name, max(1, int(letters)), break_long_words=False) for name in names]
        if max(len(line) for lines in wrapped for line in lines) <= letters:
            axis.update(tickvals=names, ticktext=["<br>".join(lines) for lines in wrapped], tickangle=0)
            most = max(most, *map(len, wrapped))
    return most


def _one_bar_a_scale(figure: go.Figure, inside: tuple[Number, Number]) -> None:
    """Show one colour bar next to the panels that share a scale."""
    shown = [trace for trace in figure.data if trace.type == "heatmap" and trace.showscale]
    scales = [(trace.colorbar.title.text, trace.zmin, trace.zmax) for trace in shown]
    for trace, scale in zip(shown, scales, strict=True):
        same = [other for other, its in zip(shown, scales, strict=True) if its == scale]
        if trace is not same[0]:
            trace.showscale = False
            continue
        across, up = (
            [end for one in same for end in figure.layout[f"{letter}axis{one[f'{letter}axis'][1:]}"].domain]
            for letter in ("x", "y")
        )
        length = min(max(up) - min(up), 420 / inside[1]) if len(same) > 1 else max(up) - min(up)
        place = {"x": max(across) + 8 / inside[0], "y": max(up) - length / 2, "len": length}
        trace.colorbar.update({name: at for name, at in place.items() if trace.colorbar[name] is None})
