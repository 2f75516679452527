"""The picture of a table of values with intervals and whatever stands next to them."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.results import Findings
from interp.figures import theme
from interp.figures.drawing import drawing

_BESIDE = (theme.GREY, theme.VERMILION, theme.GREEN)
_SYMBOLS = ("x-thin", "triangle-down", "diamond-open")


@drawing(Findings)
def findings(result: Findings) -> go.Figure:
    """Values with intervals by row, the other columns of numbers as marks of their own."""
    table = result.table
    names, others = table.columns[0], [c for c in table.select_dtypes("number") if c not in ("value", "low", "high")]
    figure = go.Figure()
    bars = theme.error_bars(table["value"], table["low"], table["high"])
    figure.add_scatter(
        x=table[names], y=table["value"], error_y=bars, mode="markers", name="value", marker={"color": theme.BLUE}
    )
    for index, column in enumerate(others):
        colour = _BESIDE[index % len(_BESIDE)]
        marker = {"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 10, "line": {"width": 2, "color": colour}}
        figure.add_scatter(
            x=table[names], y=table[column], mode="markers", name=column, marker=marker | {"color": colour}
        )
    figure.update_xaxes(title=str(names))
    return theme.finish(figure, result.sentence(), result.provenance, width=800, height=460)
