"""Figures of trained next to hand-set parameters: counts, digits kept, and the numbers themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, hover, points
from interp.figures.panels import Panel, compose, hline
from interp.papers.microadder.hand_set import KINDS, DigitsKept, DiscoverabilityGap, NumberComparison

_COLOURS = dict(zip(KINDS, (theme.ORANGE, theme.BLUE, theme.SKY), strict=True))
_SYMBOLS = {"certified with rounding": "circle", "certified in intervals": "diamond"}
_STATUS = {"certified": theme.BLUE, "undecided": theme.GREY, "refuted": theme.VERMILION}


@drawing(DiscoverabilityGap)
def figure_gap(result: DiscoverabilityGap) -> go.Figure:
    """The number of free parameters of each model; filled symbols are certified, crosses are not."""
    layers = []
    for kind, colour in _COLOURS.items():
        rows = result.table[result.table.made == kind]
        symbols = [_SYMBOLS.get(rung, "x-thin-open") for rung in rows.rung]
        style: dict[str, Any] = {
            "mode": "markers+text",
            "text": rows.numbers.astype(str),
            "textposition": "middle right",
        }
        style |= {"cliponaxis": False} | hover("{y}: {x} numbers, {rung}", rung=rows.rung)
        layers.append(points(rows.numbers, rows.model, kind, colour, symbols, 11, **style))
    order = result.table.model.tolist()
    ticks = [1, 3, 10, 30, 100, 300, 1_000]
    x = {"type": "log", "tickvals": ticks, "title": "free numbers (constants of the scheme are not counted)"}
    panel = Panel(layers, x=x, y={"categoryorder": "array", "categoryarray": order[::-1]})
    hand, trained = result.smallest("by hand"), result.smallest("trained")
    title = (
        f"{hand.numbers} numbers set by hand add all pairs rightly; training from random starts got to "
        f"{trained.numbers}"
    )
    note = "circle: certified with float32 rounding, diamond: in intervals, cross: not certified"
    return compose([panel], title, result.provenance, note=note, width=900, height=230 + 26 * len(order))


@drawing(DigitsKept)
def figure_digits(result: DigitsKept) -> go.Figure:
    """Smallest margin over the digits kept."""
    layers = []
    for status, colour in _STATUS.items():
        rows = result.table[result.table.status == status]
        said = hover("{x} digits: margin {y:.3g} {wrong}", wrong=rows.counterexample)
        layers.append(bars(rows.digits, rows.smallest_margin, status, colour, **said))
    x = {"title": "significant digits of every number", "dtick": 1}
    zero = hline(0, dash="solid", colour=theme.BLACK)
    panel = Panel(layers, x=x, y="smallest margin of all 10^20 pairs (logits)", marks=[zero])
    return compose([panel], result.sentence(), result.provenance, width=760, height=480)


@drawing(NumberComparison)
def figure_numbers(result: NumberComparison) -> go.Figure:
    """Each array's numbers in units of its size by hand: trained as stored, moved along symmetries, and by hand."""
    table = result.table
    size = table.groupby("name").by_hand.transform(lambda x: np.linalg.norm(x) or 1.0)
    labels = (table.name + np.where(table["index"] == "", "", " [" + table["index"] + "]")).tolist()
    layers = []
    for column, name, colour, symbol in (
        ("trained", "trained, as stored", theme.SKY, "circle-open"),
        ("as_read", "trained, along its symmetries and with norm gains", theme.BLUE, "circle"),
        ("by_hand", "by hand", theme.ORANGE, "line-ns-open"),
    ):
        said = hover("{y} = {value:.4g}<br>{role}", role=table["role"], value=table[column])
        layers.append(points(table[column] / size, labels, name, colour, symbol, **said))
    x = {"title": "number, in units of its array's size by hand", "zeroline": True}
    y = {"categoryorder": "array", "categoryarray": labels[::-1], "dtick": 1, "tickfont": {"size": 10}}
    title = f"{result.trained} next to {result.by_hand}, number by number"
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, width=900, height=200 + 15 * len(labels))
