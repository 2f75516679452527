"""Picture of :class:`interp.proofs.attacks.Attack`: how close each search came, run by run and target by target."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover, points
from interp.figures.panels import Panel, compose, hline
from interp.proofs.attacks.attack import SEARCHES, Attack

_STYLE = {"attack": (theme.VERMILION, "solid", "circle"), "random": (theme.GREY, "dash", "circle-open")}


@drawing(Attack)
def figure_attack(result: Attack) -> go.Figure:
    """Smallest margin so far over runs (left) and by target (right); below zero the model answers wrong."""
    runs_of, by_target = [], []
    targets = result.margins["target"].values.tolist()
    for search in SEARCHES:
        colour, dash, symbol = _STYLE[search]
        runs, margins = (np.array(x, dtype=float) for x in zip(*result.history[search], strict=True))
        steps: dict[str, Any] = {"line": {"shape": "hv"}} | hover("{x:,} runs: {y:.3f}", extra=search)
        after = [*runs, result.runs], _drawn(np.append(margins, margins[-1]))
        runs_of.append(curve(*after, search, colour, dash, 2.5, **steps))
        outline: dict[str, Any] = {"marker": {"line": {"color": colour, "width": 2}}} | hover(
            "{x}: {y:.3f}", extra=search
        )
        smallest = _drawn(result.margins["by_target"].sel(search=search).values)
        by_target.append(points(targets, smallest, search, colour, symbol, **outline))
    x = {"title": "runs (a gradient counts as three)", "type": "log", "exponentformat": "power"}
    zero = [hline(0, dash="solid", colour=theme.BLACK)]
    panels = [
        Panel(runs_of, x=x, y="smallest margin so far (logits)", marks=zero),
        Panel(by_target, x={"title": "target", "type": "category"}, y="smallest margin (logits)", marks=zero),
    ]
    note = f"{result.task}. Below zero the model answers wrong. Both searches spent {result.runs:,} runs"
    title = f"{result.model}: {result.sentence()}"
    return compose(panels, title, result.provenance, note=note, columns=2, widths=[0.55, 0.45], gaps=(90, 0))


def _drawn(margins: np.ndarray) -> list[float | None]:
    """Margins as Plotly takes them; what is no number is left out."""
    return [float(margin) if np.isfinite(margin) else None for margin in margins]
