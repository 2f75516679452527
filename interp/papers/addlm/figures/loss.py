"""Validation losses over training, and over the number of keys that attention keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.layers import curve, hover
from interp.figures.panels import Panel, compose

COLOURS = (theme.BLACK, theme.BLUE, theme.GREEN, theme.VERMILION, theme.ORANGE, theme.PURPLE, theme.SKY)


def loss_curves(rows: Sequence[Any], title: str, provenance: Provenance) -> go.Figure:
    """One line a run (``model``, ``seed``, ``steps``, ``losses``), one colour a model."""
    models = list(dict.fromkeys(row.model for row in rows))
    lines = []
    for row in rows:
        repeated, at = divmod(models.index(row.model), len(COLOURS))
        said = hover(f"{row.model}, seed {row.seed}, step {{x:,}}: {{y:.4f}}")
        dash = "dot" if repeated else "solid"
        lines.append(curve(row.steps, row.losses, row.model, COLOURS[at], dash, 1.8, symbol="circle", size=5, **said))
    x = {"title": "training step", "rangemode": "tozero"}
    panel = Panel(lines, x=x, y="validation loss (nats a character)")
    return compose([panel], title, provenance, width=900, height=500)


def loss_by_keys(
    lines: Mapping[str, Mapping[str, float]], title: str, provenance: Provenance, loss: str = "validation loss"
) -> go.Figure:
    """``{line: {number of keys (or "all"): loss}}`` on one categorical axis."""
    order = sorted({k for line in lines.values() for k in line}, key=lambda k: float("inf") if k == "all" else int(k))
    layers = []
    for i, (name, line) in enumerate(lines.items(), 1):
        keys = [k for k in order if k in line]
        style: dict[str, Any] = {"symbol": "circle", "size": 7} | hover("top {x}: {y:.4f}")
        layers.append(curve(keys, [line[k] for k in keys], name, COLOURS[i % len(COLOURS)], **style))
    x = {"title": "keys that take part", "type": "category", "categoryorder": "array", "categoryarray": order}
    panel = Panel(layers, x=x, y=f"{loss} (nats a character)")
    return compose([panel], title, provenance, width=900, height=500, showlegend=True)
