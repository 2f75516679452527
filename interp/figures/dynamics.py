"""Picture of :class:`interp.probes.dynamics.TrainingDynamics`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover, points, words
from interp.figures.panels import Panel, compose, vline
from interp.probes.dynamics.measures import find_measure
from interp.probes.dynamics.training import TrainingDynamics

_FEW = (theme.VERMILION, theme.BLUE, theme.GREEN, theme.PURPLE)  # readings of a measure; more have shades


@drawing(TrainingDynamics)
def training_dynamics(result: TrainingDynamics) -> go.Figure:
    """A panel a measure over one logarithmic axis of steps; a diamond where a reading has made half of its change, and
    a dotted line through all panels where exact match has."""
    half = result.half_way().set_index("reading")["by"]
    names = list(dict.fromkeys(result.table.measure.values.tolist()))
    steps = result.table.step.values.astype(float)
    start = steps[steps > 0][0] / 2  # where step 0 is drawn
    powers = 10.0 ** np.arange(np.ceil(np.log10(start * 2)), np.floor(np.log10(steps[-1])) + 1)
    ticks = np.concatenate(([start], powers)) if steps[0] == 0 else powers
    x = {
        "type": "log", "tickvals": ticks, "ticktext": [f"{0 if t == start else t:,.0f}" for t in ticks],
        "range": [np.log10(start) - 0.05, np.log10(steps[-1]) + 0.28],
    }  # fmt: skip
    exact = half.get("exact", np.nan)
    marks = [vline(exact, dash="dot")] if np.isfinite(exact) else []
    panels = []
    for name in names:
        readings = result.table.reading.values[result.table.measure.values == name].tolist()
        layers = [layer for i in range(len(readings)) for layer in _reading(result, readings, i, half, start)]
        y = _value_axis(name, result.table.value.sel(reading=readings).values)
        below = {"title": "training step (logarithmic)"} if name == names[-1] else {}
        panels.append(Panel(layers, find_measure(name).title, x | below, y, marks))
    note = "Diamonds: half of the change is made, for good. Dotted: that step for exact match"
    figure = compose(
        panels, result.headline(), result.provenance, note=note, width=900, height=230 + 145 * len(names), shared="x",
        gaps=(0, 36),
    )  # fmt: skip
    return figure.update_annotations(x=0, xanchor="left")


def _value_axis(name: str, values: np.ndarray) -> dict[str, Any]:
    """No panel is stretched until changes that count as none fill it."""
    measure, low, high = find_measure(name), float(np.nanmin(values)), float(np.nanmax(values))
    if name in ("exact", "chain"):
        return {"range": [-0.05, 1.08]}
    if measure.log:
        return {"type": "log", "tickvals": [k * 10.0**n for n in range(-6, 7) for k in (1, 3)]}
    return {"range": [low - 5 * measure.least, high + 5 * measure.least]} if high - low < measure.least else {}


def _reading(result: TrainingDynamics, readings: list[str], i: int, half: Any, start: float) -> list[go.Scatter]:
    """A reading's line, where half of its change is made, and its name at the end: of few all, of many the first and
    the last."""
    here, many = result.table.sel(reading=readings[i]), len(readings) > len(_FEW)
    shades = sample_colorscale("Viridis", np.linspace(0, 0.75, max(2, len(readings))))
    part, colour = str(here.part.values), shades[i] if many else _FEW[i]
    steps, y = here.step.values.astype(float), here.value.values
    x = np.where(steps > 0, steps, start)
    name = part or str(here.measure.values)
    fields = {"step": steps, "low": here.low.values, "high": here.high.values}
    said = hover("step {step:,}: {y:.4g} [{low:.4g}, {high:.4g}]", extra=name, **fields)
    layers = [curve(x, y, name, colour, showlegend=False, **said)]
    if np.isfinite(half[readings[i]]):
        at = steps == half[readings[i]]
        layers.append(points(x[at], y[at], None, colour, "diamond", rim="white", hoverinfo="skip"))
    known = np.flatnonzero(np.isfinite(y))
    if part and len(known) and (not many or i in (0, len(readings) - 1)):
        place = "bottom right" if (i > 0) == many else "top right"
        end = [x[known[-1]]], [y[known[-1]]]
        layers.append(words(*end, [f" {part}"], theme.BLACK if many else colour, textposition=place, cliponaxis=False))
    return layers
