"""Picture of :class:`interp.papers.position_coupling.growth.AttendedGrowth`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.growth import AttendedGrowth

_COLOURS = (theme.BLUE, theme.VERMILION, theme.GREEN, theme.PURPLE, theme.SKY, theme.ORANGE, theme.YELLOW, theme.GREY)
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
_NAMES = {"keys": "tokens above 0.01, BOS apart", "effective": "exp(entropy) of the weights off BOS, tokens"}


@drawing(AttendedGrowth)
def attended_growth(result: AttendedGrowth, measure: str = "keys") -> go.Figure:
    """Tokens attended to in one prediction over the number of operands, with slopes and the tokens needed."""
    table = result.table
    operands = table.operands.values
    units = [u for u in table.unit.values.tolist() if not table[measure].sel(unit=u).isnull().any()]
    if len(units) > 9:
        fitted = result.slopes.slope.sel(measure=measure)
        ranked = sorted(units[:-1], key=lambda unit: float(fitted.sel(unit=unit)))
        units = [*ranked[:4], *ranked[-4:], units[-1]]
    figure = go.Figure()
    figure.add_scatter(
        x=operands, y=table.needed.values, mode="lines", name="needed for the digit sum",
        line={"color": theme.GREY, "dash": "dash", "width": 2},
        hovertemplate="needed: %{y}<extra></extra>",
    )  # fmt: skip
    for index, unit in enumerate(units):
        values = table[measure].sel(unit=unit).values
        high = table[f"{measure}_high"].sel(unit=unit).values
        fit = result.slopes.sel(unit=unit, measure=measure)
        union = unit == "any head"
        colour = theme.BLACK if union else _COLOURS[index % len(_COLOURS)]
        slope, low, top = (round(float(fit[k]), 2) + 0.0 for k in ("slope", "low", "high"))
        figure.add_scatter(
            x=operands,
            y=values,
            mode="lines+markers",
            name=f"{unit}: {slope:+.2f} [{low:+.2f}, {top:+.2f}] an operand",
            line={"color": colour, "width": 3 if union else 1.5, "dash": "dot" if union else "solid"},
            marker={"symbol": _SYMBOLS[index % len(_SYMBOLS)], "size": 9, "color": colour},
            error_y={"array": high - values, "color": colour, "thickness": 1.5, "width": 0},
            hovertemplate=f"{unit}, %{{x}} operands: %{{y:.2f}}<extra></extra>",
        )
    figure.update_xaxes(title="operands", dtick=1)
    figure.update_yaxes(title=_NAMES[measure], rangemode="tozero")
    slopes = [float(result.slopes.slope.sel(unit=u, measure=measure)) for u in units if u != "any head"]
    needed = np.polyfit(operands, table.needed.values, 1)[0]
    control = float(result.slopes.untrained.sel(measure=measure).values[0])
    title = (
        f"A head attends to {round(min(slopes), 2) + 0.0:+.2f} to {round(max(slopes), 2) + 0.0:+.2f} tokens more for "
        f"every operand; the digit sum needs "
        f"{round(needed, 2) + 0.0:+.2f}" + ("" if np.isnan(control) else f", an untrained head takes {control:+.2f}")
    )
    exact = table.exact.values
    note = "" if np.isnan(exact).all() else f"Exact match {exact.min():.2f} to {exact.max():.2f} on these shapes"
    figure.update_layout(legend={"x": 1.02, "y": 1})
    return theme.finish(figure, title, result.provenance, width=1050, height=540, note=note)
