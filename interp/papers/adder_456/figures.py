"""Figures of the probes of a ten-digit adder's circuit: pattern dependence and ablation, attention signal, routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import Ends, bars, curve, hover, points
from interp.figures.panels import Panel, compose, hline, label
from interp.papers.adder_456.attention_signal import TERMS, AttentionSignal
from interp.papers.adder_456.carry_routes import ROUTES, CarryRoutes
from interp.papers.adder_456.pattern_ablation import PatternAblation
from interp.papers.adder_456.pattern_dependence import PatternDependence

_TERM_NAMES = {
    "own": "own column's digit sum",
    "below": "digit sum of the previous column",
    "last": "last output digit",
}
_PATTERNS = (
    (theme.BLACK, "circle-open", 13),
    (theme.BLUE, "circle", 7),
    (theme.VERMILION, "diamond", 9),
    (theme.GREY, "x", 9),
)


@drawing(PatternDependence)
def pattern_dependence(result: PatternDependence) -> go.Figure:
    """Spread of the attention row by target; next to it the share of its variance that each factor accounts for."""
    table, overall = result.table.isel(layer=0, head=0), result.overall.isel(layer=0, head=0)
    factors = overall.factor.values.tolist()
    spread = bars(table.spread.values, table.target.values.tolist(), across=True, **hover("{y}: {x:.4f}"))
    shares = [
        points(values, factors, name, colour, symbol, 11, **hover(f"{{y}}, {name}: {{x:.3f}}"))
        for name, colour, symbol, values in (
            ("measured", theme.ORANGE, "circle", overall.r2.values),
            ("labels shuffled", theme.GREY, "x", overall.control.values),
        )
    ]
    nothing = [] if result.depends else [label(0.5, factors[len(factors) // 2], "nothing varies", colour=theme.GREY)]
    down = {"autorange": "reversed"}
    # If attention is the same on every problem, rounding must not fill the panel.
    panels = [
        Panel([spread], "spread of a row of weights", {"range": [0, max(1.05 * result.max_spread, 0.01)]}, down),
        Panel(
            shares, "share of its variance that follows (adjusted R²)", {"range": [-0.05, 1.05]}, down, nothing,
        ),
    ]  # fmt: skip
    return compose(
        panels, result.sentence(), result.provenance, columns=2, height=600, widths=[0.45, 0.55], gaps=(270, 0),
        legend={"x": 0.55},
    )  # fmt: skip


@drawing(PatternAblation)
def pattern_ablation(result: PatternAblation) -> go.Figure:
    """Whole answers right by chain length, one line per pattern, with 95% intervals."""
    lines = []
    for (pattern, rates), (colour, symbol, size) in zip(result.rates.items(), _PATTERNS, strict=True):
        values, ends, text = _rates(list(rates.values()))
        style: dict[str, Any] = {"ends": ends, "text": text} | hover(f"{pattern}, chain {{x}}: {{text}}")
        lines.append(curve(list(rates), values, pattern, colour, width=1.5, symbol=symbol, size=size, **style))
    y = {"title": "whole answers right", "range": [-0.03, 1.05]}
    panel = Panel(lines, x={"title": "longest carry chain", "dtick": 1}, y=y)
    return compose([panel], result.sentence(), result.provenance, width=900)


def _rates(rates: Sequence[Any]) -> tuple[list[float], Ends, list[str]]:
    """Shares, their intervals and their counts."""
    low, high = zip(*(rate.interval for rate in rates), strict=True)
    return [rate.accuracy for rate in rates], (low, high), [f"{rate.correct:,} of {rate.n:,}" for rate in rates]


@drawing(AttentionSignal)
def attention_signal(result: AttentionSignal) -> go.Figure:
    """Coefficients of the number that attention writes, by target, in units of the previous column."""
    targets = result.table.target.values.tolist()
    layers = []
    for term, colour in zip(TERMS, (theme.BLUE, theme.ORANGE, theme.VERMILION), strict=True):
        name, values = _TERM_NAMES[term], result.table.coefficient.sel(term=term).values
        layers.append(points(targets, values, name, colour, size=10, **hover(f"{{x}}: {name} {{y:.3f}}")))
    panel = Panel(layers, x="answer digit predicted", y="coefficient, previous column = 1", marks=[hline(10)])
    return compose([panel], result.sentence(), result.provenance, note="Dashed: 10", width=900, height=520)


@drawing(CarryRoutes)
def carry_routes(result: CarryRoutes) -> go.Figure:
    """Share of predictions that an interchange flips, by route and kind of pair."""
    layers = []
    for kind, name, colour in (
        ("made", "carry made in the previous column", theme.BLUE),
        ("passed", "carry passed on by it", theme.ORANGE),
        ("control", "control: no carry differs", theme.GREY),
    ):
        values, ends, _ = _rates([result.rate(kind, route) for route in ROUTES])
        text = [f"{value:.1%}" if value > 0.002 else "" for value in values]
        style: dict[str, Any] = {"text": text, "textposition": "outside", "textfont": {"size": 10}} | hover(
            f"{name}, {{y}}: {{x:.3f}}"
        )
        layers.append(bars(values, list(ROUTES), name, colour, across=True, ends=ends, **style))
    x = {"title": "predictions that become the other problem's digit", "tickformat": ".0%", "range": [0, 1.12]}
    panel = Panel(layers, x=x, y={"autorange": "reversed"})
    return compose(
        [panel], result.sentence(), result.provenance, width=960, height=760, barmode="group", bargap=0.25,
        margin={"l": 220},
    )  # fmt: skip
