"""Picture of :class:`interp.certificates.hand_built.HandBuiltCertificate`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.certificates.hand_built import HandBuiltCertificate
from interp.figures import theme


def figure_parts(result: HandBuiltCertificate) -> go.Figure:
    """The proved margin of every part, in order; parts without a bound are missing, those below zero prove nothing."""
    table = result.to_dataframe()
    figure = go.Figure()
    figure.add_scatter(
        x=list(range(1, len(table) + 1)),
        y=table.margin,
        text=table.part,
        mode="markers",
        marker={"size": 5, "color": [theme.BLUE if proved else theme.VERMILION for proved in table.proved]},
        hovertemplate="%{text}: %{y:.4f}<extra></extra>",
    )
    figure.add_hline(y=0, line={"color": theme.GREY, "width": 1})
    figure.update_xaxes(title="part of the proof")
    figure.update_yaxes(title="lower bound of the margin (logits)")
    return theme.finish(figure, f"{result.model}: {result.sentence()}", result.provenance)
