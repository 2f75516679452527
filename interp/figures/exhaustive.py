"""Picture of verdicts on small domains, run or proved."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from interp.figures.drawing import drawing
from interp.figures.panels import compose
from interp.figures.proofs import margins
from interp.proofs.exhaustive import ExhaustiveCertificate
from interp.proofs.prefix_proof import PrefixCertificate

_WORST = 5


@drawing(PrefixCertificate)
@drawing(ExhaustiveCertificate)
def figure_exhaustive(result: ExhaustiveCertificate | PrefixCertificate) -> go.Figure:
    """The smallest margin (or proved bound of margins) of each right token at each target, with its problem."""
    data = result.smallest
    z, problems = data.margin.values.T, data.problem.values.T
    targets, tokens = data.target.values.tolist(), data.token.values.tolist()
    said = np.array([f"{p}: margin {m:.3f}" for p, m in zip(problems.flat, z.flat, strict=True)]).reshape(z.shape)
    panel = margins(z, said, targets, tokens, "target", "right token")
    order = [at for at in np.argsort(z, axis=None)[:_WORST] if np.isfinite(z.flat[at])]
    worst = [f"{problems.flat[at]} ({z.flat[at]:.3f}, at {targets[at % len(targets)]})" for at in order]
    note = f"Smallest lead of the right token over all {result.what}. Lowest: " + "; ".join(worst)
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance, note=note)
