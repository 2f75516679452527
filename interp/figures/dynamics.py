"""Pictures of :class:`interp.dynamics.GrokkingCurves` and :class:`interp.grokking.GrokkingComparison`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.dynamics import GrokkingCurves
from interp.figures import theme
from interp.grokking import GrokkingComparison

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


def grokking_comparison(result: GrokkingComparison) -> go.Figure:
    """A panel a model: exact match on uniform validation problems over steps; seeds that grok bold, the rest grey."""
    names = list(result.curves)
    titles = [f"{name}: {result.rate(name).correct} of {result.rate(name).n} seeds" for name in names]
    figure = make_subplots(cols=len(names), shared_yaxes=True, horizontal_spacing=0.04, subplot_titles=titles)
    for column, name in enumerate(names, 1):
        curve, first = result.curves[name], result.first_steps(name)
        seeds = curve.seed.values.tolist()
        for seed in sorted(seeds, key=lambda seed: seed in first):
            grokked = seed in first
            values = curve.sel(seed=seed).values
            keep = ~np.isnan(values)
            figure.add_scatter(
                x=curve.step.values[keep], y=values[keep].round(4), mode="lines", showlegend=False,
                line={"color": theme.VERMILION if grokked else theme.GREY, "width": 2 if grokked else 0.8},
                opacity=0.9 if grokked else 0.35,
                hovertemplate=f"seed {seed}, step %{{x:,}}: %{{y:.4f}}<extra></extra>", row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(title="training step", rangemode="tozero", row=1, col=column)
    figure.update_yaxes(range=[-0.02, 1.03])
    figure.update_yaxes(title="exact match, uniform validation", row=1, col=1)
    note = "Red: seeds that were once perfect. Grey: the others"
    return theme.finish(figure, result.sentence(), result.provenance, width=1000, height=520, note=note)
