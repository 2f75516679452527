"""Picture of :class:`interp.papers.toygpt.errors.CarryErrors`."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.toygpt.errors import KINDS, CarryErrors

COLOURS = {"missed": theme.VERMILION, "spurious": theme.BLUE, "other": theme.GREY}
PATTERNS = {"missed": "", "spurious": "/", "other": "x"}


@drawing(CarryErrors)
def carry_errors(result: CarryErrors) -> go.Figure:
    """Margin of the right tens digit over its carry-flipped twin by units sum; wrong tens digits by kind below."""
    table = result.by_sum
    x = table.units_sum.values
    figure = make_subplots(rows=2, shared_xaxes=True, vertical_spacing=0.08, row_heights=[0.55, 0.45])
    lines = (
        ("mean", "mean", theme.BLUE, "solid"),
        ("low", "5% quantile", theme.SKY, "dash"),
        ("lowest", "lowest", theme.VERMILION, "dot"),
    )
    for key, label, colour, dash in lines:
        figure.add_scatter(
            x=x,
            y=table[key].values,
            name=f"margin, {label}",
            mode="lines+markers",
            line={"color": colour, "dash": dash},
            customdata=table["n"].values,
            hovertemplate=f"units sum %{{x}}: {label} %{{y:.2f}} nats over %{{customdata:,}} sums<extra></extra>",
            row=1,
            col=1,
        )
    figure.add_hline(y=0, line={"color": theme.GREY, "width": 1}, row=1, col=1)
    for kind in KINDS:
        figure.add_bar(
            x=x,
            y=table[kind].values,
            name=f"{kind} ({result.kinds[kind]:,})",
            marker={"color": COLOURS[kind], "pattern": {"shape": PATTERNS[kind]}},
            customdata=table["n"].values,
            hovertemplate=f"units sum %{{x}}: %{{y}} {kind} of %{{customdata:,}} sums<extra></extra>",
            row=2,
            col=1,
        )
    figure.add_vline(x=9.5, line={"color": theme.GREY, "dash": "dash", "width": 1})
    figure.add_annotation(
        x=9.6, y=1, yref="paper", yanchor="bottom", xanchor="left", showarrow=False, text="carry →",
        font={"color": theme.GREY},
    )  # fmt: skip
    figure.update_layout(barmode="stack", legend={"orientation": "v", "x": 1.02, "y": 1})
    figure.update_yaxes(title="right tens digit minus<br>its twin, nats", row=1, col=1)
    figure.update_yaxes(title="wrong tens digits", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title="sum of the units digits", dtick=1, row=2, col=1)
    figure.update_xaxes(dtick=1, row=1, col=1)
    parts = [f"{count:,} {kind}" for kind, count in result.kinds.items() if count]
    wrong = ", ".join(parts) if parts else "none"
    title = f"{result.name}: {result.all.correct:,} of {result.all.n:,} sums right; wrong tens digits: {wrong}"
    note = "Every digit given the right ones before it"
    return theme.finish(figure, title, result.provenance, width=1000, height=640, note=note)
