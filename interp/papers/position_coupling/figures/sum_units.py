"""Picture of :class:`interp.papers.position_coupling.sum_units.SumUnits`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.sum_units import SumUnits


@drawing(SumUnits)
def sum_units(result: SumUnits) -> go.Figure:
    """Rows: the ten dimensions of SUM; along x what the units read; marks: readings that occur, at the right digit."""
    curve = result.curve
    figure = go.Figure(
        go.Heatmap(
            x=curve.x.values, y=curve.digit.values, z=curve.values, zmin=0, zmax=1, colorscale=theme.SEQUENTIAL,
            ygap=3, colorbar={"title": {"text": "SUM[digit]", "side": "right"}, "thickness": 12},
            hovertemplate="x = %{x:.2f}: SUM[%{y}] = %{z:.2f}<extra></extra>",
        )
    )  # fmt: skip
    table = result.to_dataframe()
    for carry, symbol, colour in ((0, "circle", theme.ORANGE), (1, "diamond", theme.VERMILION)):
        rows = table[table.carry == carry]
        figure.add_scatter(
            x=rows.x, y=rows.digit + 0.2 - 0.4 * carry, mode="markers", name=f"carry in {carry}",
            customdata=rows[["digit", "digits"]],
            marker={"symbol": symbol, "size": 8, "color": colour, "line": {"color": "white", "width": 1}},
            hovertemplate="x = %{x:.2f}, right digit %{customdata[0]}: %{customdata[1]} times<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=f"what the units read: {_order(result.weights)}", dtick=1, range=[-1, 20], zeroline=False)
    figure.update_yaxes(title="digit", dtick=1, range=[-0.6, 9.6], showgrid=False, zeroline=False)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": -0.18})
    good, n = int(result.one_hot.sum()), len(result.reading)
    title = (
        f"SUM is one-hot at the right digit for {good:,} of {n:,} predicted digits; no reading is within "
        f"{result.slack:.2f} of an edge"
    )
    note = "Dark: SUM is 1. Marks: readings that occur; a tenth to the left where the column before got a carry itself"
    return theme.finish(figure, title, result.provenance, width=1050, height=520, note=note)


def _order(weights: dict[str, float]) -> str:
    """The combination with its largest weight first: "PRE_SUM + 0.1 PRE_CARRY - 0.1 NUM"."""
    ranked = sorted(weights.items(), key=lambda item: (-abs(round(item[1], 6)), -item[1]))
    terms = [f"{'-' if weight < 0 else '+'} {_times(abs(weight))}{name}" for name, weight in ranked]
    return " ".join(terms).removeprefix("+ ")


def _times(weight: float) -> str:
    return "" if abs(weight - 1) < 1e-6 else f"{weight:.3g} "
