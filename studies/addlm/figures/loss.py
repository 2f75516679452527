"""Validation losses over training, and over the number of keys that attention keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.figure_panels import Panel, compose
from interp.figures.traces import curve, hover
from interp.probes.learning_curves import LearningCurves

COLOURS = (theme.BLACK, theme.BLUE, theme.GREEN, theme.VERMILION, theme.ORANGE, theme.PURPLE, theme.SKY)


def draw_losses(curves: LearningCurves, title: str) -> go.Figure:
    """One line per run, one colour per model."""
    lines = []
    for i, model in enumerate(curves.models):
        repeated, at = divmod(i, len(COLOURS))
        style: dict[str, Any] = {"symbol": "circle", "size": 5}
        for seed in curves.of(model).seed.values.tolist():
            run = curves.of(model).sel(seed=seed).dropna("step")
            said = hover(f"{model}, seed {seed}, step {{x:,}}: {{y:.4f}}")
            dash = "dot" if repeated else "solid"
            lines.append(curve(run.step.values, run.values, model, COLOURS[at], dash, 1.8, **style, **said))
    x = {"title": "training step", "rangemode": "tozero"}
    panel = Panel(lines, x=x, y="validation loss (nats a character)")
    return compose([panel], title, curves.provenance, width=900, height=500)


def loss_by_keys(
    lines: Mapping[str, Mapping[str, float]], title: str, provenance: Provenance, loss: str = "validation loss"
) -> go.Figure:
    """Draw ``{line: {number of keys (or "all"): loss}}`` on one categorical axis."""
    order = sorted({k for line in lines.values() for k in line}, key=lambda k: float("inf") if k == "all" else int(k))
    layers = []
    for i, (name, line) in enumerate(lines.items(), 1):
        keys = [k for k in order if k in line]
        style: dict[str, Any] = {"symbol": "circle", "size": 7} | hover("top {x}: {y:.4f}")
        layers.append(curve(keys, [line[k] for k in keys], name, COLOURS[i % len(COLOURS)], **style))
    x = {"title": "keys that take part", "type": "category", "categoryorder": "array", "categoryarray": order}
    panel = Panel(layers, x=x, y=f"{loss} (nats a character)")
    return compose([panel], title, provenance, width=900, height=500, showlegend=True)
