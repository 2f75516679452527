"""The picture of what proofs cost."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.papers.studies.comparison_price import BRUTE, Price


@drawing(Price)
def price(result: Price) -> go.Figure:
    """Proved bounds over operations: a colour for each model, a symbol for each proof; what was met is open."""
    layers = []
    for colour, (model, rows) in zip(theme.SEVEN, result.table.groupby("model", sort=False), strict=False):
        for symbol, row in zip(theme.SYMBOLS, rows.itertuples(), strict=False):
            ran = row.proof == BRUTE
            bound = row.known if ran else row.bound
            said = hover("{x:.2g} operations: " + ("a margin of {y:.3f} was met" if ran else "above {y:.3f}"))
            style = {"colour": colour, "symbol": symbol, "size": 13, "filled": [not ran]}
            layers.append(points([row.operations], [bound], f"{model}: {row.proof}", **style, **said))
    x = {"title": "floating-point operations of the proof (brute force: computed)", "type": "log"}
    y = {"title": "every margin above (logits)", "rangemode": "tozero"}
    _, carry, program = (result.table[result.table.proof == name] for name in result.table.proof.unique())
    saved = (carry.operations.to_numpy() / program.operations.to_numpy()).min()
    title = f"With the program's states a proof takes at least {saved:.1f} times fewer operations than digit by digit"
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, height=480)
