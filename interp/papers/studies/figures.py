"""Figures of what studies found."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.papers.studies.comparison_price import BRUTE, Price
from models.numerals import shown


@drawing(Price)
def price(result: Price) -> go.Figure:
    """Proved bounds, as shares of the smallest margin that was found, over operations; one colour per model."""
    layers = []
    for colour, (model, rows) in zip(theme.SEVEN, result.table.groupby("model", sort=False), strict=False):
        for symbol, row in zip(theme.SYMBOLS, rows.itertuples(), strict=False):
            ran = row.proof == BRUTE
            share, margin = (1.0, row.known) if ran else (row.bound / row.known, row.bound)
            said = hover(
                f"{row.operations:.2g} operations: a margin of {margin:.3f} {'was met' if ran else 'is proved'}"
            )
            style = {"colour": colour, "symbol": symbol, "size": 13, "filled": [not ran]}
            layers.append(points([row.operations], [100 * share], f"{model}: {row.proof}", **style, **said))
    x = {"title": "floating-point operations of the proof (brute force: computed)", "type": "log", "dtick": 4}
    y = {"title": "bound, of the smallest margin that was met", "range": [0, 108], "ticksuffix": "%"}
    x["exponentformat"] = "power"
    _, carry, program = (result.table[result.table.proof == name] for name in result.table.proof.unique())
    saved = shown(float((carry.operations.to_numpy() / program.operations.to_numpy()).min()))
    title = f"With the program's states a proof takes {saved} times fewer operations or better"
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, height=480)
