"""Pictures of :class:`interp.probes.dynamics.GrokkingCurves`, :class:`interp.probes.dynamics.RunCurves`,
:class:`interp.probes.dynamics.TrainingDynamics` and :class:`interp.probes.grokking.GrokkingComparison`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover, points, words
from interp.figures.panels import Panel, compose, vline
from interp.probes.dynamics.curves import GrokkingCurves
from interp.probes.dynamics.measures import find_measure
from interp.probes.dynamics.run_curves import RunCurves
from interp.probes.dynamics.training import TrainingDynamics
from interp.probes.grokking import GrokkingComparison

_DRAWN = 200  # evaluations drawn a seed; more only make the page heavy
_STEPS = {"title": "training step", "rangemode": "tozero"}
_FEW = (theme.VERMILION, theme.BLUE, theme.GREEN, theme.PURPLE)  # readings of a measure; more have shades


@drawing(GrokkingCurves)
def grokking_curves(result: GrokkingCurves) -> go.Figure:
    """Exact match over steps: the stored seed, the others that were ever perfect, and the rest in grey."""
    seeds, perfect = result.table.seed.values.tolist(), result.first_perfect
    never = [seed for seed in seeds if seed not in perfect]
    others = [seed for seed in seeds if seed in perfect and seed != result.chosen]
    steps = result.table.step.values
    every = max(1, len(steps) // _DRAWN)
    lines = []
    for name, members, colour, width, opacity in (
        (f"never perfect on validation ({len(never)})", never, theme.GREY, 1, 0.25),
        (f"perfect at some point ({len(others)})", others, theme.SKY, 1.5, 0.8),
        (f"seed {result.chosen}, in the zoo", [result.chosen], theme.VERMILION, 2.5, 1.0),
    ):
        # One trace a group, seeds separated by gaps: a hundred traces would be slow to draw.
        x, y, label = [], [], []
        for seed in members:
            exact = result.table.exact.sel(seed=seed).values
            keep = np.flatnonzero(~np.isnan(exact))
            keep = keep[(np.arange(len(keep)) % every == 0) | (keep == keep[-1])] if len(keep) else keep
            x += [*steps[keep].tolist(), None]
            y += [*exact[keep].astype(float).round(4).tolist(), None]
            label += [seed] * (len(keep) + 1)
        style: dict[str, Any] = {"opacity": opacity, "text": label} | hover("seed {text}, step {x:,}: {y:.4f}")
        lines += [curve(x, y, name, colour, width=width, **style)] if members else []
    y = {"title": "exact match on validation problems", "range": [-0.02, 1.03]}
    return compose([Panel(lines, x=_STEPS, y=y)], result.sentence(), result.provenance, width=900, height=520)


@drawing(RunCurves)
def run_curves(result: RunCurves) -> go.Figure:
    """Exact match (full) and token accuracy (dotted), or validation loss, over steps; the stored seed in red."""
    shown = [("exact", "solid", "exact match"), ("token", "dot", "token accuracy")]
    if result.by_loss:
        shown = [("validation_loss", "solid", "validation loss")]
    lines = []
    for seed in sorted(result.table.seed.values.tolist(), key=lambda seed: seed == result.chosen):
        here, chosen = result.table.sel(seed=seed), seed == result.chosen
        colour, width = (theme.VERMILION, 2.5) if chosen else (theme.GREY, 1)
        for column, dash, words_ in shown:
            style: dict[str, Any] = {"opacity": 1 if chosen else 0.6, "showlegend": chosen}
            style |= hover(f"seed {seed}, step {{x:,}}: {words_} {{y:.4f}}")
            name = f"{words_}, seed {seed}, in the zoo"
            lines.append(curve(here.step.values, here[column].values.round(4), name, colour, dash, width, **style))
    shares = {"title": "share of validation problems", "range": [-0.02, 1.03]}
    panel = Panel(lines, x=_STEPS, y="validation loss (nats a character)" if result.by_loss else shares)
    note = "Grey: the other seeds" if result.table.sizes["seed"] > 1 else ""
    return compose([panel], result.sentence(), result.provenance, note=note, width=900, height=520)


@drawing(GrokkingComparison)
def grokking_comparison(result: GrokkingComparison) -> go.Figure:
    """A panel a model: exact match on uniform validation problems over steps; seeds that grok bold, the rest grey."""
    panels = []
    for name, curves in result.curves.items():
        first, rate, lines = result.first_steps(name), result.rate(name), []
        for seed in sorted(curves.seed.values.tolist(), key=lambda seed: seed in first):
            values = curves.sel(seed=seed).values
            keep = ~np.isnan(values)
            colour, width, opacity = (theme.VERMILION, 2, 0.9) if seed in first else (theme.GREY, 0.8, 0.35)
            style: dict[str, Any] = {"opacity": opacity} | hover(f"seed {seed}, step {{x:,}}: {{y:.4f}}")
            x, y = curves.step.values[keep], values[keep].round(4)
            lines.append(curve(x, y, None, colour, width=width, **style))
        axis = {"range": [-0.02, 1.03], "title": "" if panels else "exact match, uniform validation"}
        panels.append(Panel(lines, f"{name}: {rate.correct} of {rate.n} seeds", _STEPS, axis))
    note = "Red: seeds that were once perfect. Grey: the others"
    return compose(
        panels, result.sentence(), result.provenance, note=note, columns=len(panels), height=520, shared="y",
        gaps=(36, 0),
    )  # fmt: skip


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
        return {"type": "log"}
    return {"range": [low - 5 * measure.least, high + 5 * measure.least]} if high - low < measure.least else {}


def _reading(result: TrainingDynamics, readings: list[str], i: int, half: Any, start: float) -> list[go.Scatter]:
    """A reading's line, where half of its change is made, and its name at the end: of few all, of many the first and
    the last."""
    here, many = result.table.sel(reading=readings[i]), len(readings) > len(_FEW)
    shades = sample_colorscale("Viridis", np.linspace(0, 0.9, max(2, len(readings))))
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
        layers.append(words(*end, [f" {part}"], colour, textposition=place, cliponaxis=False))
    return layers
