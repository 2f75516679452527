"""Picture of :class:`interp.probes.accuracy.AccuracyByChain`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
from interp.probes.accuracy import AccuracyByChain


@drawing(AccuracyByChain)
def accuracy_by_chain(result: AccuracyByChain) -> go.Figure:
    """Error rate by chain length, log scale: the estimate where there are errors, and always the 95% upper bound."""
    layers = []
    for name, score, colour, shift in (
        (f"{result.test.problems}", result.test, theme.ORANGE, -0.12),
        ("stratified", result.stratified, theme.BLUE, 0.12),
    ):
        x = np.array(list(score.by_chain_length)) + shift
        rates = list(score.by_chain_length.values())
        text = np.array([f"{rate.correct:,} of {rate.n:,}" for rate in rates])
        said = hover("chain {x:.0f}: {text} right, error rate below {y:.1e}")
        bounds = [rate.error_bound for rate in rates]
        layers.append(
            points(x, bounds, f"{name}: 95% upper bound", colour, "triangle-down-open", 10, text=text, **said)
        )
        wrong = np.array([rate.correct < rate.n for rate in rates])
        if wrong.any():
            said = hover("chain {x:.0f}: {text} right, error rate {y:.1e}")
            error = np.array([1 - rate.accuracy for rate in rates])
            layers.append(
                points(x[wrong], error[wrong], f"{name}: measured", colour, size=10, text=text[wrong], **said)
            )
    x_axis = {"title": "longest carry chain (columns the carry travels)", "dtick": 1}
    y_axis = {"title": "error rate", "type": "log", "exponentformat": "power", "dtick": 1}
    panel = Panel(layers, x=x_axis, y=y_axis)
    return compose([panel], result.sentence(), result.provenance, width=900, height=520)
