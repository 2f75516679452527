"""The figure of :class:`studies.addlm.entries.TernaryEntries`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, curve, hover
from interp.figures.panels import Panel, compose, hline
from studies.addlm.entries import NORMAL, THRESHOLD, UNIFORM, TernaryEntries


@drawing(TernaryEntries)
def ternary_entries(result: TernaryEntries) -> go.Figure:
    """Left: all latent weights over their matrix's scale, coloured by what they act as; right: zeros by layer."""
    x, counts = result.histogram.bin.values, result.histogram.sum("kind").values
    width = float(x[1] - x[0])
    density = counts / float(result.table.n.sum()) / width
    acts = np.where(np.abs(x) <= THRESHOLD, 0, np.sign(x))
    histogram = [
        bars(
            x[acts == value], density[acts == value], f"{sign}: {result.share(of):.1%}", colour, width=width,
            **hover("{x:.2f} of the scale: density {y:.3f}"),
        )
        for value, sign, of, colour in (
            (-1, "-1", "minus", theme.BLUE), (0, "0", "zeros", theme.GREY), (1, "+1", "plus", theme.VERMILION),
        )
    ]  # fmt: skip
    layers = result.table.layer.values
    lines = [
        curve(
            layers, result.table.zeros.sel(kind=kind).values, str(kind), theme.SEVEN[i % 7],
            symbol=theme.SYMBOLS[i % 7], legend="legend2", **hover(f"{kind}, layer {{x}}: {{y:.1%}}"),
        )
        for i, kind in enumerate(result.table.kind.values.tolist())
    ]  # fmt: skip
    levels = [hline(UNIFORM, "uniform (as drawn)"), hline(NORMAL, "normal")]
    by_layer = {"title": "layer", "dtick": 1, "range": [layers[0] - 0.3, layers[-1] + 0.3]}
    x_axis = {"title": "latent weight / mean magnitude of its matrix", "dtick": 1}
    least, most = float(result.table.zeros.min()), float(result.table.zeros.max())
    title = (
        f"{result.share():.1%} of the entries of {result.model} {'would be' if result.as_if else 'are'} zeros "
        f"({least:.1%} to {most:.1%} by matrix); at the thresholds latent weights lie {result.pile:.2f} times as "
        "densely as next to them"
    )
    note = f"Entries within {THRESHOLD} of their matrix's mean magnitude act as 0; the others by their sign alone"
    return compose(
        [
            Panel(histogram, "latent weights, and what they act as", x=x_axis, y="density"),
            Panel(lines, "share of zeros by layer", x=by_layer, y={"tickformat": ".0%"}, marks=levels),
        ],
        title, result.provenance, note=note, columns=2, width=1100, height=520, widths=[0.58, 0.42], gaps=(110, 0),
        bargap=0, legend={"x": 0.01, "y": 0.98, "orientation": "v", "bgcolor": "rgba(255,255,255,0.7)"},
        legend2={"orientation": "h", "x": 0.6, "y": -0.2},
    )  # fmt: skip
