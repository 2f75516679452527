"""The figure of a table of values with intervals and further columns."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.core.results import Findings
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose

_BESIDE = ((theme.GREY, "x-thin"), (theme.VERMILION, "triangle-down"), (theme.GREEN, "diamond-open"))


@drawing(Findings)
def findings(result: Findings) -> go.Figure:
    """Values with intervals by row, and the other columns of numbers as separate marks."""
    table = result.table
    names, low, high = table[table.columns[0]], table["low"].to_numpy(), table["high"].to_numpy()
    said = hover("{x}: {y:.4g} [{low:.4g}, {high:.4g}]", low=low, high=high)
    layers = [points(names, table["value"], "value", ends=(low, high), **said)]
    others = [column for column in table.select_dtypes("number") if column not in ("value", "low", "high")]
    for index, column in enumerate(others):
        colour, symbol = _BESIDE[index % len(_BESIDE)]
        layers.append(points(names, table[column], str(column), colour, symbol, **hover(f"{{x}}: {column} {{y:.4g}}")))
    panel = Panel(layers, x=str(table.columns[0]), y="value")
    return compose([panel], result.sentence(), result.provenance, width=800, height=460)
