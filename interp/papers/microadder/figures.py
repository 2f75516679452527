"""Pictures of trained beside hand-set numbers: counts, digits kept, and the numbers themselves."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.microadder.hand_set import KINDS, DigitsKept, DiscoverabilityGap, NumberComparison

_COLOURS = dict(zip(KINDS, (theme.ORANGE, theme.BLUE, theme.SKY), strict=True))
_SYMBOLS = {"certified with rounding": "circle", "certified in intervals": "diamond"}


@drawing(DiscoverabilityGap)
def figure_gap(result: DiscoverabilityGap) -> go.Figure:
    """Free numbers of each model; filled symbols are certified, crosses are not."""
    figure = go.Figure()
    for kind, colour in _COLOURS.items():
        rows = result.table[result.table.made == kind]
        figure.add_scatter(
            x=rows.numbers, y=rows.model, mode="markers+text", name=kind, text=rows.numbers.astype(str),
            textposition="middle right", customdata=rows.rung, cliponaxis=False,
            marker={"size": 11, "color": colour, "symbol": [_SYMBOLS.get(rung, "x-thin-open") for rung in rows.rung]},
            hovertemplate="%{y}: %{x} numbers, %{customdata}<extra></extra>",
        )  # fmt: skip
    order = result.table.model.tolist()
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1])
    figure.update_xaxes(type="log", title="free numbers (constants of the scheme are not counted)")
    hand, trained = result.smallest("by hand"), result.smallest("trained")
    title = f"{hand.numbers} numbers set by hand add all pairs rightly; training from random starts got to "
    note = "circle: certified with float32 rounding, diamond: in intervals, cross: not certified"
    height = 230 + 26 * len(order)
    return theme.finish(figure, f"{title}{trained.numbers}", result.provenance, 900, height, note)


@drawing(DigitsKept)
def figure_digits(result: DigitsKept) -> go.Figure:
    """Smallest margin over the digits kept."""
    figure = go.Figure()
    for status, colour in (
        ("certified", theme.BLUE),
        ("undecided", theme.GREY),
        ("refuted", theme.VERMILION),
    ):
        rows = result.table[result.table.status == status]
        figure.add_bar(
            x=rows.digits, y=rows.smallest_margin, name=status, marker_color=colour, customdata=rows.counterexample,
            hovertemplate="%{x} digits: margin %{y:.3g} %{customdata}<extra></extra>",
        )  # fmt: skip
    figure.add_hline(y=0, line_color=theme.BLACK)
    figure.update_xaxes(title="significant digits of every number", dtick=1)
    figure.update_yaxes(title="smallest margin of all 10^20 pairs (logits)")
    return theme.finish(figure, result.sentence(), result.provenance, 760, 480)


@drawing(NumberComparison)
def figure_numbers(result: NumberComparison) -> go.Figure:
    """Each array's numbers in units of its size by hand: trained as stored, moved along symmetries, and by hand."""
    figure = go.Figure()
    table = result.table
    size = table.groupby("name").by_hand.transform(lambda x: np.linalg.norm(x) or 1.0)
    labels = (table.name + np.where(table["index"] == "", "", " [" + table["index"] + "]")).tolist()
    for column, name, colour, symbol in (
        ("trained", "trained, as stored", theme.SKY, "circle-open"),
        ("as_read", "trained, along its symmetries and with norm gains", theme.BLUE, "circle"),
        ("by_hand", "by hand", theme.ORANGE, "line-ns-open"),
    ):
        figure.add_scatter(
            x=table[column] / size, y=labels, mode="markers", name=name, customdata=table[["role", column]],
            marker={"size": 9, "color": colour, "symbol": symbol, "line": {"width": 2}},
            hovertemplate="%{y} = %{customdata[1]:.4g}<br>%{customdata[0]}<extra></extra>",
        )  # fmt: skip
    figure.update_yaxes(categoryorder="array", categoryarray=labels[::-1], dtick=1, tickfont={"size": 10})
    figure.update_xaxes(title="number, in units of its array's size by hand", zeroline=True)
    title = f"{result.trained} beside {result.by_hand}, number by number"
    return theme.finish(figure, title, result.provenance, 900, 200 + 15 * len(labels))
