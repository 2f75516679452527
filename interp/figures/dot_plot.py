"""Dot plots of estimates with their intervals: one row per measured thing, one mark per series.

Marks become smaller from series to series, so that equal estimates do not hide each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from interp.core.estimate import Estimate
from interp.core.results import Provenance
from interp.core.stats import Proportion
from interp.figures import theme
from interp.figures.figure_panels import Axis, Panel, compose
from interp.figures.traces import points

Number = Proportion | Estimate | tuple[float, float, float]


def dot_plot(
    series: Mapping[str, Mapping[str, Number]],
    title: str,
    provenance: Provenance,
    x: Axis,
    rows: Sequence[str] = (),
    note: str = "",
) -> go.Figure:
    """A figure of estimates that are not the result of one probe.

    Args:
        series: name -> row -> number, which is an estimate, a proportion or (value, low, high).
        title: the finding, with numbers.
        x: what the estimates are: the axis' title, or Plotly's settings including ``title``.
        rows: order of the rows from the top; default that of the estimates. A series may lack some.
    """
    rows = list(rows) or list(dict.fromkeys(row for found in series.values() for row in found))
    layers = []
    for i, (name, found) in enumerate(series.items()):
        values, low, high = np.array([_ends(each) for each in found.values()], dtype=float).T
        style = {"colour": theme.SEVEN[i], "symbol": theme.SYMBOLS[i], "size": max(15 - 3 * i, 5)}
        layers.append(points(values, list(found), name or None, ends_x=(low, high), **style))
    down = {"type": "category", "categoryorder": "array", "categoryarray": rows, "autorange": "reversed"}
    figure = compose(
        [Panel(layers, x=x, y=down)], title, provenance, note=note, height=260 + 38 * len(rows),
        margin={"l": 30 + 7 * max(map(len, rows)), "b": 90},
    )  # fmt: skip
    return figure.update_layout(title_xref="container", title_x=0.02)


def _ends(each: Number) -> tuple[float, float | None, float | None]:
    return each if isinstance(each, tuple) else (each.value, each.low, each.high)
