"""The figure of what many models have in common."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures.dots import dot_plot
from studies.population.population import Population


@drawing(Population)
def population(result: Population) -> go.Figure:
    """For every question, the share of models that it sets apart from all untrained copies, with its interval."""
    shares = {each.heading: result.apart(each.name) for each in result.questions}
    estimates = {heading: (rate.accuracy, *rate.interval) for heading, rate in shares.items() if rate.n}
    shared = [each.heading for each in result.questions if each.name in result.shared()]
    title = f"{len(shared)} of {len(estimates)} numbers set all {len(result.members):,} models apart from their copies"
    x = {"title": "share of the models beyond every untrained copy", "tickformat": ".0%", "range": [-0.04, 1.04]}
    return dot_plot({"": estimates}, title, result.provenance, x, list(estimates))
