"""Pictures of the probes of a ten-digit adder's circuit: pattern dependence and ablation, attention signal, routes."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.adder_456.attention_signal import TERMS, AttentionSignal
from interp.papers.adder_456.carry_routes import ROUTES, CarryRoutes
from interp.papers.adder_456.pattern_ablation import PatternAblation
from interp.papers.adder_456.pattern_dependence import PatternDependence

_TERM_NAMES = {"own": "own column's digit sum", "below": "digit sum of the column below", "last": "last output digit"}


@drawing(PatternDependence)
def pattern_dependence(result: PatternDependence) -> go.Figure:
    """Spread of the attention row by target; beside it the share of its variance that each factor accounts for."""
    figure = make_subplots(
        cols=2, column_widths=[0.45, 0.55], horizontal_spacing=0.3,
        subplot_titles=["spread of a row of weights", "share of its variance that follows (adjusted R²)"],
    )  # fmt: skip
    table = result.table.isel(layer=0, head=0)
    figure.add_bar(
        x=table.spread.values, y=table.target.values.tolist(), orientation="h", marker_color=theme.BLUE,
        hovertemplate="%{y}: %{x:.4f}<extra></extra>", showlegend=False, row=1, col=1,
    )  # fmt: skip
    overall = result.overall.isel(layer=0, head=0)
    for name, colour, values in (
        ("measured", theme.ORANGE, overall.r2.values),
        ("labels shuffled", theme.GREY, overall.control.values),
    ):
        figure.add_scatter(
            x=values, y=overall.factor.values.tolist(), mode="markers", name=name,
            marker={"size": 11, "color": colour, "symbol": "circle" if name == "measured" else "x"},
            hovertemplate=f"%{{y}}, {name}: %{{x:.3f}}<extra></extra>", row=1, col=2,
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    # Rounding must not fill the panel of a model whose attention is the same on every problem.
    figure.update_xaxes(range=[0, max(1.05 * result.max_spread, 0.01)], row=1, col=1)
    if not result.depends:
        figure.add_annotation(
            text="nothing varies", x=0.5, y=overall.factor.values.tolist()[len(overall.factor) // 2], showarrow=False,
            font={"color": theme.GREY}, row=1, col=2,
        )  # fmt: skip
    figure.update_xaxes(range=[-0.05, 1.05], row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "y": -0.15, "x": 0.55})
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=600)


@drawing(PatternAblation)
def pattern_ablation(result: PatternAblation) -> go.Figure:
    """Whole answers right by chain length, one line a pattern, with 95% intervals."""
    figure = go.Figure()
    styles = (
        (theme.BLACK, "circle-open", 13),
        (theme.BLUE, "circle", 7),
        (theme.VERMILION, "diamond", 9),
        (theme.GREY, "x", 9),
    )
    for (pattern, rates), (colour, symbol, size) in zip(result.rates.items(), styles, strict=True):
        values = np.array([rate.accuracy for rate in rates.values()])
        ends = np.array([rate.interval for rate in rates.values()])
        figure.add_scatter(
            x=list(rates), y=values, mode="lines+markers", name=pattern,
            line={"color": colour, "width": 1.5}, marker={"symbol": symbol, "size": size, "color": colour},
            error_y=theme.error_bars(values, ends[:, 0], ends[:, 1]),
            text=[f"{rate.correct:,} of {rate.n:,}" for rate in rates.values()],
            hovertemplate=f"{pattern}, chain %{{x}}: %{{text}}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="longest carry chain", dtick=1)
    figure.update_yaxes(title="whole answers right", range=[-0.03, 1.05])
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=560)


@drawing(AttentionSignal)
def attention_signal(result: AttentionSignal) -> go.Figure:
    """Coefficients of the number that attention writes, by target, in units of the column below."""
    figure = go.Figure()
    colours = dict(zip(TERMS, (theme.BLUE, theme.ORANGE, theme.VERMILION), strict=True))
    for term, colour in colours.items():
        figure.add_scatter(
            x=result.table.target.values.tolist(), y=result.table.coefficient.sel(term=term).values, mode="markers",
            name=_TERM_NAMES[term], marker={"size": 10, "color": colour},
            hovertemplate=f"%{{x}}: {_TERM_NAMES[term]} %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=10, line={"dash": "dash", "color": theme.GREY})
    figure.update_xaxes(title="answer digit predicted")
    figure.update_yaxes(title="coefficient, column below = 1")
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520, note="Dashed: 10")


@drawing(CarryRoutes)
def carry_routes(result: CarryRoutes) -> go.Figure:
    """Share of predictions that an interchange flips, by route and kind of pair."""
    figure = go.Figure()
    kinds = (
        ("made", "carry made in the column below", theme.BLUE),
        ("passed", "carry passed on by it", theme.ORANGE),
        ("control", "control: no carry differs", theme.GREY),
    )
    for kind, name, colour in kinds:
        rates = [result.rate(kind, route) for route in ROUTES]
        values = np.array([rate.accuracy for rate in rates])
        ends = np.array([rate.interval for rate in rates])
        figure.add_bar(
            y=list(ROUTES), x=values, orientation="h", name=name, marker_color=colour,
            error_x=theme.error_bars(values, ends[:, 0], ends[:, 1]),
            text=[f"{value:.1%}" if value > 0.002 else "" for value in values],
            textposition="outside", textfont={"size": 10},
            hovertemplate=f"{name}, %{{y}}: %{{x:.3f}}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title="predictions that become the other problem's digit", tickformat=".0%", range=[0, 1.12])
    figure.update_layout(barmode="group", bargap=0.25, legend={"orientation": "h", "y": -0.12, "x": 0})
    figure = theme.finish(figure, result.sentence(), result.provenance, width=720, height=760)
    return figure.update_layout(width=960, margin={"l": 220})
