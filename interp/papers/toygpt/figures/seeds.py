"""Pictures of :class:`interp.papers.toygpt.seeds.SeedComparison`."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover, points
from interp.figures.panels import Mark, Panel, compose, vline
from interp.papers.toygpt.seeds import BUDGET, SeedComparison, largest_gap

STYLES = (
    (theme.BLUE, "solid", "circle"),
    (theme.VERMILION, "dash", "square"),
    (theme.GREEN, "dot", "triangle-up"),
)
_ITERATIONS = {"title": "iterations", "rangemode": "tozero"}


def _style(result: SeedComparison, model: str) -> tuple[str, str, str]:
    return STYLES[list(result.variants).index(model) % len(STYLES)]


def _budget_line(last: float) -> list[Mark]:
    return [vline(BUDGET, "the paper stops", place="top")] if last > BUDGET else []


@drawing(SeedComparison, "loss")
def loss_curves(result: SeedComparison) -> go.Figure:
    """Mean training loss over seeds, with every seed faint behind it."""
    lines = []
    for model, label in result.variants.items():
        colour, dash, _ = _style(result, model)
        rows = result.losses[result.losses.model == model]
        for _, one in rows.groupby("seed"):
            lines.append(curve(one.step, one.loss, None, colour, width=0.7, opacity=0.25, hoverinfo="skip"))
        mean = rows.groupby("step").loss.agg(["mean", "count"])
        said = hover(f"{label}, {{x:,}} iterations: {{y:.3f}}, mean of {{count}} seeds", count=mean["count"])
        name = f"{label} ({rows.seed.nunique()} seeds)"
        lines.append(curve(mean.index, mean["mean"], name, colour, dash, 2.5, **said))
    at_budget = result.losses[result.losses.step == BUDGET].groupby("model").loss.mean()
    parts = [f"{label} {at_budget[model]:.2f}" for model, label in result.variants.items() if model in at_budget]
    title = f"{result.what}: training loss after {BUDGET:,} iterations, mean over seeds: {', '.join(parts)}"
    y = {"title": "training loss of a batch, nats", "rangemode": "tozero"}
    panel = Panel(lines, x=_ITERATIONS, y=y, marks=_budget_line(float(result.losses.step.max())))
    note = "One batch of 64, with dropout, every 25 iterations; faint: single seeds"
    legend = {"orientation": "v", "x": 0.99, "xanchor": "right", "y": 0.98}
    return compose([panel], title, result.provenance, note=note, legend=legend)


@drawing(SeedComparison)
def accuracy_curves(result: SeedComparison) -> go.Figure:
    """Whole sums right of the 500 held out, over iterations, a line a seed."""
    lines = []
    for model, label in result.variants.items():
        colour, dash, symbol = _style(result, model)
        for seed, one in result.scores[result.scores.model == model].groupby("seed"):
            one = one.sort_values("step")
            said = hover(f"{label}, seed {seed}, {{x:,}} iterations: {{y:.1%}}")
            lines.append(curve(one.step, one.test / 500, label, colour, dash, 1.5, symbol=symbol, size=6, **said))
    parts = []
    for model, label in result.variants.items():
        values = [result.accuracies(model, step) for step in (BUDGET, result.last_step)]
        means = [f"{value.mean():.0%}" for value in values if len(value)]
        parts.append(f"{label} {' → '.join(dict.fromkeys(means))}")
    span = f"{BUDGET:,} → {result.last_step:,}" if result.last_step > BUDGET else f"{BUDGET:,}"
    title = f"{result.what}: held-out sums right at {span} iterations, mean over the seeds there: {', '.join(parts)}"
    y = {"title": "held-out sums right", "range": [-0.02, 1.04], "tickformat": ".0%"}
    panel = Panel(lines, x=_ITERATIONS, y=y, marks=_budget_line(float(result.scores.step.max())))
    return compose([panel], title, result.provenance, height=580)


@drawing(SeedComparison, "seeds")
def seeds_apart(result: SeedComparison, step: int = BUDGET) -> go.Figure:
    """The held-out accuracy of every seed, with a row per variant; a cross marks the paper's single run."""
    layers, gaps = [], {}
    for row, (model, label) in enumerate(result.variants.items()):
        colour, _, symbol = _style(result, model)
        values = result.accuracies(model, step)
        gaps[label] = largest_gap(values.to_numpy())
        ties = values.groupby(values.round(2)).cumcount().to_numpy()  # near-equal seeds stand below each other
        said = hover(f"{label}, seed {{seed}}: {{x:.1%}}", seed=np.array(values.index))
        style: dict[str, Any] = {"opacity": 0.8, "showlegend": False} | said
        layers.append(points(values.to_numpy(), row + 0.12 * ties, label, colour, symbol, 11, **style))
        if step == BUDGET:
            said = hover(f"{label}, the paper's run: {{x:.1%}}")
            printed = result.claims[model][1]
            layers.append(points([printed], [row - 0.2], "the paper's run", theme.BLACK, "x-thin", 10, **said))
    labels = list(result.variants.values())
    rows = {"tickvals": list(range(len(labels))), "ticktext": labels, "range": [len(labels) - 0.4, -0.6]}
    x = {"title": f"held-out sums right after {step:,} iterations", "range": [-0.03, 1.04], "tickformat": ".0%"}
    widest = max(gaps, key=gaps.__getitem__)
    title = (
        f"{result.what}: seeds of {widest} lie furthest apart, with a gap of {100 * gaps[widest]:.0f} points between "
        "neighbours"
    )
    legend = {"x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"}
    panel = Panel(layers, x=x, y=rows | {"zeroline": False})
    return compose([panel], title, result.provenance, height=420, legend=legend)
