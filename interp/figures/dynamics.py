"""Picture of :class:`interp.dynamics.GrokkingCurves`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.dynamics import GrokkingCurves
from interp.figures import theme

_DRAWN = 200  # evaluations drawn a seed; more only make the page heavy


def grokking_curves(result: GrokkingCurves) -> go.Figure:
    """Exact match over steps: the stored seed, the others that were ever perfect, and the rest in grey."""
    figure = go.Figure()
    steps = result.table.step.values
    every = max(1, len(steps) // _DRAWN)
    seeds = result.table.seed.values.tolist()
    groups = (
        ("never perfect on validation", [s for s in seeds if s not in result.first_perfect], theme.GREY, 1, 0.25),
        (
            "perfect at some point",
            [s for s in seeds if s in result.first_perfect and s != result.chosen],
            theme.SKY,
            1.5,
            0.8,
        ),
        (f"seed {result.chosen}, in the zoo", [result.chosen], theme.VERMILION, 2.5, 1.0),
    )
    for name, members, colour, width, opacity in groups:
        if not members:
            continue
        # One trace a group, seeds separated by gaps: a hundred traces would be slow to draw.
        x, y, label = [], [], []
        for seed in members:
            exact = result.table.exact.sel(seed=seed).values
            keep = np.flatnonzero(~np.isnan(exact))
            keep = keep[(np.arange(len(keep)) % every == 0) | (keep == keep[-1])] if len(keep) else keep
            x += [*steps[keep].tolist(), None]
            y += [*exact[keep].astype(float).round(4).tolist(), None]
            label += [seed] * (len(keep) + 1)
        figure.add_scatter(
            x=x, y=y, mode="lines", name=name if result.chosen in members else f"{name} ({len(members)})",
            line={"color": colour, "width": width}, opacity=opacity, text=label,
            hovertemplate="seed %{text}, step %{x:,}: %{y:.4f}<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="training step", rangemode="tozero")
    figure.update_yaxes(title="exact match on validation problems", range=[-0.02, 1.03])
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520)
