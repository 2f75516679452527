"""Validation losses over training, and over the number of keys that attention keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme

COLOURS = (theme.BLACK, theme.BLUE, theme.GREEN, theme.VERMILION, theme.ORANGE, theme.PURPLE, theme.SKY)


def loss_curves(rows: Sequence[Any], title: str, provenance: Provenance) -> go.Figure:
    """One line a run (``model``, ``seed``, ``steps``, ``losses``), one colour a model."""
    figure = go.Figure()
    models = list(dict.fromkeys(row.model for row in rows))
    seen: set[str] = set()
    for row in rows:
        figure.add_scatter(
            x=row.steps, y=row.losses, mode="lines+markers", name=row.model, legendgroup=row.model,
            showlegend=row.model not in seen, marker={"size": 5},
            line={"color": COLOURS[(at := models.index(row.model)) % len(COLOURS)], "width": 1.8}
            | ({"dash": "dot"} if at >= len(COLOURS) else {}),
            hovertemplate=f"{row.model}, seed {row.seed}, step %{{x:,}}: %{{y:.4f}}<extra></extra>",
        )  # fmt: skip
        seen.add(row.model)
    figure.update_xaxes(title="training step", rangemode="tozero")
    figure.update_yaxes(title="validation loss (nats a character)")
    return theme.finish(figure, title, provenance, width=900, height=500)


def loss_by_keys(
    lines: Mapping[str, Mapping[str, float]], title: str, provenance: Provenance, loss: str = "validation loss"
) -> go.Figure:
    """``{line: {number of keys (or "all"): loss}}`` on one categorical axis."""
    figure = go.Figure()
    order = sorted({k for line in lines.values() for k in line}, key=lambda k: float("inf") if k == "all" else int(k))
    for i, (name, line) in enumerate(lines.items()):
        keys = [k for k in order if k in line]
        figure.add_scatter(
            x=keys, y=[line[k] for k in keys], mode="lines+markers", name=name, marker={"size": 7},
            line={"color": COLOURS[(i + 1) % len(COLOURS)]}, hovertemplate="top %{x}: %{y:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="keys that take part", type="category", categoryorder="array", categoryarray=order)
    figure.update_yaxes(title=f"{loss} (nats a character)")
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0}, showlegend=True)
    return theme.finish(figure, title, provenance, width=900, height=500)
