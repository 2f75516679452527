"""Picture of :class:`interp.proofs.exhaustive.ExhaustiveCertificate`."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.proofs import margin_heatmap
from interp.proofs.exhaustive import ExhaustiveCertificate

_WORST = 5


@drawing(ExhaustiveCertificate)
def figure_exhaustive(result: ExhaustiveCertificate) -> go.Figure:
    """The smallest margin of each right token at each target, with the problem that has it."""
    data = result.smallest
    z, problems = data.margin.values.T, data.problem.values.T
    targets, tokens = data.target.values.tolist(), data.token.values.tolist()
    hover = np.array([f"{p}: margin {m:.3f}" for p, m in zip(problems.flat, z.flat, strict=True)]).reshape(z.shape)
    figure = margin_heatmap(z, hover, targets, tokens)
    figure.update_xaxes(title="target")
    figure.update_yaxes(title="right token", type="category")
    order = [at for at in np.argsort(z, axis=None)[:_WORST] if np.isfinite(z.flat[at])]
    worst = [f"{problems.flat[at]} ({z.flat[at]:.3f}, at {targets[at % len(targets)]})" for at in order]
    note = f"Smallest lead of the right token over all {result.what}. Lowest: " + "; ".join(worst)
    return theme.finish(figure, f"{result.model}: {result.sentence()}", result.provenance, note=note)
