"""The figure of two models' distance (:class:`interp.compare.alignment.Alignment`)."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.compare.alignment import Alignment
from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, hover
from interp.figures.panels import Panel, compose


@drawing(Alignment)
def alignment(result: Alignment) -> go.Figure:
    """The two models' distance by component, as stored and aligned."""
    table = result.distances()
    layers = [
        bars(
            table["component"], table[column], name, colour,
            **hover("{x}, {numbers} numbers: {y:.3f}", numbers=table["numbers"].to_numpy()),
        )
        for column, name, colour in (("before", "as stored", theme.ORANGE), ("after", "aligned", theme.BLUE))
    ]  # fmt: skip
    whole = table.set_index("component").loc["all"]
    title = f"{' and '.join(result.names)}: {whole.before:.3f} apart as stored, {whole.after:.3f} once aligned"
    y = {"title": "distance of the parameters", "rangemode": "tozero"}
    note = "Distance: 0 equal, 1 orthogonal"
    return compose([Panel(layers, x="component", y=y)], title, result.provenance, note=note, barmode="group")
