"""The figure of what many adders have in common."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.compare.population import Population
from interp.figures.dots import dot_plot
from interp.figures.drawing import drawing


@drawing(Population)
def population(result: Population) -> go.Figure:
    """The share of models for which each finding holds, next to that of untrained copies."""
    findings = result.table["finding"].unique().tolist()
    series = {}
    for kind, name in (("trained", "members"), ("untrained", "untrained copies")):
        shares = {finding: result.share(finding, kind=kind) for finding in findings}
        series[name] = {finding: (rate.accuracy, *rate.interval) for finding, rate in shares.items() if rate.n}
    laws = [finding for finding in findings if result.verdict(finding) == "law"]
    title = f"Of {len(findings)} findings, all {len(result.members)} adders share {', '.join(laws) or 'none'}"
    x = {"title": "share of the models for which it holds", "tickformat": ".0%", "range": [-0.04, 1.04]}
    return dot_plot(series, title, result.provenance, x, findings)
