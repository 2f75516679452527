"""The figure of what many adders have in common."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.compare.population import Population
from interp.core.drawings import drawing
from interp.figures.dots import dot_plot


@drawing(Population)
def population(result: Population) -> go.Figure:
    """The share of models for which each finding holds, next to that of untrained copies."""
    findings = result.table["finding"].unique().tolist()
    series = {}
    kinds = {"trained": "members", "untrained": "untrained copies", "otherwise": "trained controls"}
    for kind, name in kinds.items():
        if kind not in set(result.table["kind"]):
            continue
        shares = {finding: result.share(finding, kind=kind) for finding in findings}
        series[name] = {finding: (rate.accuracy, *rate.interval) for finding, rate in shares.items() if rate.n}
    shared = ", ".join(result.shared()) or "none"
    title = f"Of {len(findings)} findings, all {len(result.members):,} adders of this population share {shared}"
    x = {"title": "share of the models for which it holds", "tickformat": ".0%", "range": [-0.04, 1.04]}
    return dot_plot(series, title, result.provenance, x, findings)
