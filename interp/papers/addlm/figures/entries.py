"""Picture of :class:`interp.papers.addlm.entries.TernaryEntries`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.addlm.entries import NORMAL, THRESHOLD, UNIFORM, TernaryEntries

_COLOURS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.VERMILION, theme.PURPLE, theme.SKY)
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


@drawing(TernaryEntries)
def ternary_entries(result: TernaryEntries) -> go.Figure:
    """Left: all latent weights over their matrix's scale, coloured by what they act as; right: zeros by layer."""
    figure = make_subplots(
        cols=2, column_widths=[0.58, 0.42], horizontal_spacing=0.11,
        subplot_titles=("latent weights, and what they act as", "share of zeros by layer"),
    )  # fmt: skip
    x, counts = result.histogram.bin.values, result.histogram.sum("kind").values
    width = float(x[1] - x[0])
    share = counts / float(result.table.n.sum()) / width
    acts = np.where(np.abs(x) <= THRESHOLD, 0, np.sign(x))
    for value, of, colour in ((-1, "minus", theme.BLUE), (0, "zeros", theme.GREY), (1, "plus", theme.VERMILION)):
        rows = acts == value
        figure.add_bar(
            x=x[rows], y=share[rows], width=width, marker={"color": colour, "line": {"width": 0}},
            name=f"{value:+d}: {result.share(of):.1%}" if value else f"0: {result.share(of):.1%}",
            hovertemplate="%{x:.2f} of the scale: density %{y:.3f}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    layers = result.table.layer.values
    for index, kind in enumerate(result.table.kind.values.tolist()):
        figure.add_scatter(
            x=layers, y=result.table.zeros.sel(kind=kind).values, mode="lines+markers", name=str(kind),
            legend="legend2", line={"color": _COLOURS[index % 6]},
            marker={"symbol": _SYMBOLS[index % 6], "size": 9},
            hovertemplate=f"{kind}, layer %{{x}}: %{{y:.1%}}<extra></extra>", row=1, col=2,
        )  # fmt: skip
    for level, name in ((UNIFORM, "uniform (as drawn)"), (NORMAL, "normal")):
        figure.add_hline(y=level, line={"color": theme.GREY, "dash": "dash", "width": 1}, row=1, col=2)  # type: ignore[arg-type]
        figure.add_annotation(
            x=0.99, xref="x2 domain", y=level, yref="y2", xanchor="right", yanchor="bottom", showarrow=False, text=name,
            font={"size": 11, "color": theme.GREY},
        )  # fmt: skip
    figure.update_xaxes(title="latent weight / mean magnitude of its matrix", dtick=1, row=1, col=1)
    figure.update_yaxes(title="density", row=1, col=1)
    figure.update_xaxes(title="layer", dtick=1, range=[layers[0] - 0.3, layers[-1] + 0.3], row=1, col=2)
    figure.update_yaxes(tickformat=".0%", row=1, col=2)
    figure.update_layout(
        bargap=0, legend={"x": 0.01, "y": 0.98, "bgcolor": "rgba(255,255,255,0.7)"},
        legend2={"orientation": "h", "x": 0.6, "y": -0.2},
    )  # fmt: skip
    figure.update_annotations(selector={"xref": "paper"}, font_size=13)
    least, most = float(result.table.zeros.min()), float(result.table.zeros.max())
    title = (
        f"{result.share():.1%} of the entries of {result.model} {'would be' if result.as_if else 'are'} zeros "
        f"({least:.1%} to {most:.1%} by matrix); at the thresholds latent weights lie {result.pile:.2f} times as "
        "densely as beside them"
    )
    note = f"Entries within {THRESHOLD} of their matrix's mean magnitude act as 0; the others by their sign alone"
    return theme.finish(figure, title, result.provenance, width=1100, height=520, note=note)
