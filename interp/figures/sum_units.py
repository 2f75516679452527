"""The figure of :class:`interp.probes.sum_units.SumUnits`."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, hover, points
from interp.figures.panels import Panel, compose
from interp.probes.sum_units import SumUnits


@drawing(SumUnits)
def sum_units(result: SumUnits) -> go.Figure:
    """Rows are the ten dimensions of SUM, x is what the units read, and marks are sampled readings, at their digit."""
    curve = result.curve
    said = hover("x = {x:.2f}: SUM[{y}] = {z:.2f}")
    layers: list[Any] = [
        cells(curve.values, curve.x.values, curve.digit.values, bar="SUM[digit]", xgap=0, gap=3, **said)
    ]
    table = result.to_dataframe()
    for carry, symbol, colour in ((0, "circle", theme.ORANGE), (1, "diamond", theme.VERMILION)):
        rows = table[table.carry == carry]
        said = hover("x = {x:.2f}, right digit {digit}: {times} times", digit=rows.digit, times=rows.digits)
        y = rows.digit + 0.2 - 0.4 * carry
        layers.append(points(rows.x, y, f"carry in {carry}", colour, symbol, 8, rim="white", **said))
    x = {"title": f"what the units read: {_order(result.weights)}", "dtick": 1, "range": [-1, 20]}
    panel = Panel(layers, x=x, y={"title": "digit", "dtick": 1, "range": [-0.6, 9.6]})
    good, n = int(result.one_hot.sum()), len(result.reading)
    title = (
        f"SUM is one-hot at the right digit for {good:,} of {n:,} predicted digits; no reading is within "
        f"{result.slack:.2f} of an edge"
    )
    note = "Dark: SUM is 1. Marks: readings that occur; a tenth to the left where the column before got a carry itself"
    return compose([panel], title, result.provenance, note=note, width=1050, height=520)


def _order(weights: dict[str, float]) -> str:
    """The combination in words, largest weight first: "PRE_SUM + 0.1 PRE_CARRY - 0.1 NUM"."""
    ranked = sorted(weights.items(), key=lambda item: (-abs(round(item[1], 6)), -item[1]))
    terms = [f"{'-' if weight < 0 else '+'} {_times(abs(weight))}{name}" for name, weight in ranked]
    return " ".join(terms).removeprefix("+ ")


def _times(weight: float) -> str:
    return "" if abs(weight - 1) < 1e-6 else f"{weight:.3g} "
