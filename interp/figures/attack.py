"""Picture of :class:`interp.proofs.attacks.Attack`: how close each search came, run by run and target by target."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.proofs.attacks.attack import SEARCHES, Attack

_STYLE = {"attack": (theme.VERMILION, "solid", "circle"), "random": (theme.GREY, "dash", "circle-open")}


@drawing(Attack)
def figure_attack(result: Attack) -> go.Figure:
    """Smallest margin so far over runs (left) and by target (right); below zero the model answers wrong."""
    figure = make_subplots(cols=2, column_widths=[0.55, 0.45], horizontal_spacing=0.1)
    labels = result.margins["target"].values.tolist()
    for search in SEARCHES:
        colour, dash, symbol = _STYLE[search]
        runs, margins = (np.array(x, dtype=float) for x in zip(*result.history[search], strict=True))
        figure.add_scatter(
            x=[*runs, result.runs],
            y=_drawn(np.append(margins, margins[-1])),
            mode="lines",
            line={"shape": "hv", "color": colour, "dash": dash, "width": 2.5},
            name=search,
            legendgroup=search,
            hovertemplate="%{x:,} runs: %{y:.3f}<extra>" + search + "</extra>",
            row=1,
            col=1,
        )
        figure.add_scatter(
            x=labels,
            y=_drawn(result.margins["by_target"].sel(search=search).values),
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 9, "line": {"color": colour, "width": 2}},
            name=search,
            legendgroup=search,
            showlegend=False,
            hovertemplate="%{x}: %{y:.3f}<extra>" + search + "</extra>",
            row=1,
            col=2,
        )
    figure.add_hline(y=0, line={"color": theme.BLACK, "width": 1})
    figure.update_xaxes(title="runs (a gradient counts as three)", type="log", exponentformat="power", row=1, col=1)
    figure.update_xaxes(title="target", type="category", row=1, col=2)
    figure.update_yaxes(title="smallest margin so far (logits)", row=1, col=1)
    figure.update_yaxes(title="smallest margin (logits)", row=1, col=2)
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": -0.16})
    note = f"{result.task}. Below zero the model answers wrong. Both searches spent {result.runs:,} runs"
    return theme.finish(figure, f"{result.model}: {result.sentence()}", result.provenance, note=note)


def _drawn(margins: np.ndarray) -> list[float | None]:
    """Margins as Plotly takes them; what is no number is left out."""
    return [float(margin) if np.isfinite(margin) else None for margin in margins]
