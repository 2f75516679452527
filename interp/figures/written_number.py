"""The picture of the number that attention writes."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.probes.written_number import WrittenNumber

_LOOKS = {0: (theme.BLUE, "circle"), 1: (theme.VERMILION, "diamond")}


@drawing(WrittenNumber)
def figure_bracket(result: WrittenNumber) -> go.Figure:
    """What is left of the number without the own column, over the digit written before; colour is the carry."""
    found, aside = result.points, np.random.default_rng(0).uniform(-0.25, 0.25, result.points.sizes["point"])
    layers = []
    for value, (colour, symbol) in _LOOKS.items():
        rows = found.carry_in.values == value
        x, y = (found.written.values + aside)[rows], found.bracket.values[rows]
        said = hover("{y:.1f} after a {digit}", digit=found.written.values[rows])
        layers.append(points(x, y, f"carry {value}", colour, symbol, 5, opacity=0.5, **said))
    title = f"The own column counts {result.ratio:.2f} times the previous one"
    title += f"; carries lie {result.apart:.1f} or more apart" if result.apart > 0 else "; carries are not apart"
    x = {"title": "digit written before (the query's own token)", "dtick": 1}
    y = "number written, less the own column's part<br>(digits of the previous column)"
    note = f"{len(aside):,} columns, spread sideways; exact sums lie {result.base - 1} apart"
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, note=note, height=500)
