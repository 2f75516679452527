"""Pictures of certificates: where the right token leads by least."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.express as px
import plotly.graph_objects as go

from interp.certificates.certificate import Certificate
from interp.certificates.curves import DecisionCurves
from interp.figures import theme

_WORST = 5


def figure_margins(result: Certificate) -> go.Figure:
    """The smallest margin among extreme pairs, answer digit by position, with the worst problems beside it.

    Colour is the margin's logarithm, a wrong answer (a margin of zero or less) is red.
    """
    data = result.classes
    margin, answer, target = data.margin.values, data.answer.values, data.target.values
    least = np.where(np.isnan(margin), -np.inf, margin).min(1)
    targets = sorted(set(target.tolist()))
    z = np.full((10, len(targets)), np.nan)
    hover = np.full(z.shape, "", dtype=object)
    for column, t in enumerate(targets):
        for digit in range(10):
            rows = np.flatnonzero((target == t) & (answer == digit))
            if t > 10:
                rows = np.flatnonzero(target == t) if digit == 0 else rows[:0]
            if len(rows):
                row = rows[least[rows].argmin()]
                end = int(margin[row].argmin())
                z[digit, column] = least[row]
                hover[digit, column] = f"{int(data.a[row, end])} + {int(data.b[row, end])}: margin {least[row]:.3f}"
    labels = [f"s{t}" if t < 11 else "EOS" for t in targets]
    figure = margin_heatmap(z, hover, labels, list(range(10)))
    figure.update_xaxes(title="position")
    figure.update_yaxes(title="right digit (EOS in row 0)", dtick=1)
    worst = []
    for row in np.argsort(least)[:_WORST]:
        end = int(margin[row].argmin())
        worst.append(f"{int(data.a[row, end])} + {int(data.b[row, end])} ({least[row]:.3f}, at {label(target[row])})")
    note = "Smallest lead of the right token among the extreme pairs of every class. Lowest: " + "; ".join(worst)
    return theme.finish(figure, f"{result.model}: {result.sentence()}", result.provenance, note=note)


def margin_heatmap(z: np.ndarray, hover: np.ndarray, columns: list[str], rows: list[Any]) -> go.Figure:
    """Margins ``z`` [row, column] by their logarithm; a wrong answer (zero or less) is crossed out in red."""
    positive = z[np.isfinite(z) & (z > 0)]
    low, high = (np.log10(positive.min()), np.log10(positive.max())) if len(positive) else (-1.0, 1.0)
    ticks = [tick for tick in np.arange(-6, 7) / 2 if low <= tick <= high] or [low, high]
    figure = go.Figure()
    figure.add_heatmap(
        z=np.where(z > 0, np.log10(np.where(z > 0, z, 1.0)), np.nan),
        x=columns,
        y=rows,
        customdata=hover,
        text=[[f"{v:.2f}" if np.isfinite(v) else "" for v in row] for row in z],
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertemplate="%{x} = %{y}<br>%{customdata}<extra></extra>",
        colorscale=theme.SEQUENTIAL,
        zmin=low,
        zmax=high,
        xgap=1,
        ygap=1,
        colorbar={"title": "margin (logits)", "tickvals": ticks, "ticktext": [f"{10**tick:.2g}" for tick in ticks]},
    )
    wrong = np.argwhere(z <= 0)
    if len(wrong):
        figure.add_scatter(
            x=[columns[column] for _, column in wrong],
            y=[rows[row] for row, _ in wrong],
            customdata=[hover[row, column] for row, column in wrong],
            mode="markers",
            marker={"symbol": "x", "size": 11, "color": theme.VERMILION},
            hovertemplate="%{customdata}<extra>wrong</extra>",
            name="wrong",
            showlegend=False,
        )
    figure.update_xaxes(type="category")
    return figure


def figure_curves(result: DecisionCurves) -> go.Figure:
    """Each digit's lead over the attention scalar; thick where a class for which it is right reaches.

    A thick line below zero would be a wrong answer. Leads below a tenth of the largest, negated, are left out.
    """
    lead = result.lead
    top = float(lead.max())
    colours = px.colors.sample_colorscale("Turbo", np.linspace(0.05, 0.95, 10).tolist())
    s = lead.s.values
    figure = go.Figure()
    for digit in range(10):
        values = lead.sel(digit=digit).values
        style = {"color": colours[digit], "width": 1}
        figure.add_scatter(
            x=s, y=values, mode="lines", line=style, opacity=0.45, showlegend=False, hoverinfo="skip"
        )  # fmt: skip
        x: list[float] = []
        y: list[float] = []
        for row in result.reached[result.reached.answer == digit].itertuples():
            at = np.unique(np.concatenate(([row.low, row.high], s[(s > row.low) & (s < row.high)])))
            x += [*at.tolist(), float("nan")]
            y += [*np.interp(at, s, values).tolist(), float("nan")]
        if x:
            figure.add_scatter(
                x=x, y=y, mode="lines", line=style | {"width": 6}, name=f"{digit} is right",
                hovertemplate=f"{digit} is right<br>s = %{{x:.3f}}, lead %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
    figure.add_hline(y=0, line={"color": theme.GREY, "width": 1})
    figure.update_yaxes(title="lead over the best other digit (logits)", range=[-0.12 * top, 1.05 * top])
    figure.update_xaxes(title="attention scalar s")
    return theme.finish(figure, result.sentence(), result.provenance)


def label(target: int) -> str:
    return f"s{target}" if target < 11 else "EOS"
