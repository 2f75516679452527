"""Pictures of :class:`interp.papers.toygpt.seeds.SeedComparison`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.toygpt.seeds import BUDGET, SeedComparison, largest_gap

STYLES = (
    (theme.BLUE, "solid", "circle"),
    (theme.VERMILION, "dash", "square"),
    (theme.GREEN, "dot", "triangle-up"),
)


def _style(result: SeedComparison, model: str) -> tuple[str, str, str]:
    return STYLES[list(result.variants).index(model) % len(STYLES)]


def _budget_line(figure: go.Figure, last: float) -> None:
    if last > BUDGET:
        figure.add_vline(x=BUDGET, line={"color": theme.GREY, "dash": "dash", "width": 1})
        figure.add_annotation(
            x=BUDGET, y=1, yref="paper", yanchor="bottom", showarrow=False, text="the paper stops",
            font={"size": 12, "color": theme.GREY},
        )  # fmt: skip


@drawing(SeedComparison, "loss")
def loss_curves(result: SeedComparison) -> go.Figure:
    """Mean training loss over seeds, with every seed faint behind it."""
    figure = go.Figure()
    for model, label in result.variants.items():
        colour, dash, _ = _style(result, model)
        rows = result.losses[result.losses.model == model]
        for _, one in rows.groupby("seed"):
            figure.add_scatter(
                x=one.step, y=one.loss, mode="lines", line={"color": colour, "width": 0.7}, opacity=0.25,
                showlegend=False, hoverinfo="skip",
            )  # fmt: skip
        mean = rows.groupby("step").loss.agg(["mean", "count"])
        figure.add_scatter(
            x=mean.index,
            y=mean["mean"],
            name=f"{label} ({rows.seed.nunique()} seeds)",
            mode="lines",
            line={"color": colour, "dash": dash, "width": 2.5},
            customdata=mean["count"],
            hovertemplate=f"{label}, %{{x:,}} iterations: %{{y:.3f}}, mean of %{{customdata}} seeds<extra></extra>",
        )
    _budget_line(figure, float(result.losses.step.max()))
    figure.update_xaxes(title="iterations", rangemode="tozero")
    figure.update_yaxes(title="training loss of a batch, nats", rangemode="tozero")
    figure.update_layout(legend={"x": 0.99, "xanchor": "right", "y": 0.98})
    at_budget = result.losses[result.losses.step == BUDGET].groupby("model").loss.mean()
    parts = [f"{label} {at_budget[model]:.2f}" for model, label in result.variants.items() if model in at_budget]
    title = f"{result.what}: training loss after {BUDGET:,} iterations, mean over seeds: {', '.join(parts)}"
    note = "One batch of 64, with dropout, every 25 iterations; faint: single seeds"
    return theme.finish(figure, title, result.provenance, height=560, note=note)


@drawing(SeedComparison)
def accuracy_curves(result: SeedComparison) -> go.Figure:
    """Whole sums right of the 500 held out, over iterations, a line a seed."""
    figure = go.Figure()
    for model, label in result.variants.items():
        colour, dash, symbol = _style(result, model)
        for i, (seed, one) in enumerate(result.scores[result.scores.model == model].groupby("seed")):
            one = one.sort_values("step")
            figure.add_scatter(
                x=one.step,
                y=one.test / 500,
                name=label,
                legendgroup=model,
                showlegend=i == 0,
                mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 1.5},
                marker={"symbol": symbol, "size": 6},
                hovertemplate=f"{label}, seed {seed}, %{{x:,}} iterations: %{{y:.1%}}<extra></extra>",
            )
    _budget_line(figure, float(result.scores.step.max()))
    figure.update_xaxes(title="iterations", rangemode="tozero")
    figure.update_yaxes(title="held-out sums right", range=[-0.02, 1.04], tickformat=".0%")
    parts = []
    for model, label in result.variants.items():
        values = [result.accuracies(model, step) for step in (BUDGET, result.last_step)]
        means = [f"{value.mean():.0%}" for value in values if len(value)]
        parts.append(f"{label} {' → '.join(dict.fromkeys(means))}")
    span = f"{BUDGET:,} → {result.last_step:,}" if result.last_step > BUDGET else f"{BUDGET:,}"
    title = f"{result.what}: held-out sums right at {span} iterations, mean over the seeds there: {', '.join(parts)}"
    return theme.finish(figure, title, result.provenance, height=580)


@drawing(SeedComparison, "seeds")
def seeds_apart(result: SeedComparison, step: int = BUDGET) -> go.Figure:
    """Every seed's held-out accuracy, a row a variant; the paper's single run as a cross."""
    figure = go.Figure()
    gaps = {}
    for row, (model, label) in enumerate(result.variants.items()):
        colour, _, symbol = _style(result, model)
        values = result.accuracies(model, step)
        gaps[label] = largest_gap(values.to_numpy())
        ties = values.groupby(values.round(2)).cumcount().to_numpy()  # near-equal seeds stand below each other
        figure.add_scatter(
            x=values.to_numpy(),
            y=row + 0.12 * ties,
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 11, "opacity": 0.8},
            name=label,
            showlegend=False,
            customdata=np.array(values.index),
            hovertemplate=f"{label}, seed %{{customdata}}: %{{x:.1%}}<extra></extra>",
        )
        if step == BUDGET:
            figure.add_scatter(
                x=[result.claims[model][1]],
                y=[row - 0.2],
                mode="markers",
                marker={"color": theme.BLACK, "symbol": "x-thin", "size": 10, "line": {"width": 2}},
                name="the paper's run",
                showlegend=row == 0,
                hovertemplate=f"{label}, the paper's run: %{{x:.1%}}<extra></extra>",
            )
    labels = list(result.variants.values())
    figure.update_yaxes(
        tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.4, -0.6], zeroline=False
    )
    figure.update_xaxes(title=f"held-out sums right after {step:,} iterations", range=[-0.03, 1.04], tickformat=".0%")
    figure.update_layout(legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"})
    widest = max(gaps, key=gaps.__getitem__)
    title = (
        f"{result.what}: seeds of {widest} lie furthest apart, with a gap of {100 * gaps[widest]:.0f} points between "
        "neighbours"
    )
    return theme.finish(figure, title, result.provenance, height=420)
