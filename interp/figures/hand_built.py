"""Pictures of :class:`interp.proofs.hand_built.HandBuiltCertificate` and of proofs over a grid of shapes."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.numerals import shown
from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.drawing import drawing
from interp.proofs.coupled_grid import CertifiedGrid
from interp.proofs.hand_built import HandBuiltCertificate


@drawing(HandBuiltCertificate)
def figure_parts(result: HandBuiltCertificate) -> go.Figure:
    """The proved margin of every part, in order; parts without a bound are missing, those below zero prove nothing."""
    table = result.to_dataframe()
    figure = go.Figure()
    figure.add_scatter(
        x=list(range(1, len(table) + 1)),
        y=table.margin,
        text=[f"{part}: {shown(bound, 4)}" for part, bound in zip(table.part, table.margin, strict=True)],
        mode="markers",
        marker={"size": 5, "color": [theme.BLUE if proved else theme.VERMILION for proved in table.proved]},
        hovertemplate="%{text}<extra></extra>",
    )
    figure.add_hline(y=0, line={"color": theme.GREY, "width": 1})
    figure.update_xaxes(title="part of the proof")
    figure.update_yaxes(title="lower bound of the margin (logits)")
    return theme.finish(figure, f"{result.model}: {result.sentence()}", result.provenance)


def certified_margins(result: CertifiedGrid) -> go.Figure:
    """The proved margin of every shape, operands by digits."""
    m, n = result.margins.shape
    figure = go.Figure()
    figure.add_heatmap(
        x=list(range(1, n + 1)),
        y=list(range(1, m + 1)),
        z=result.margins,
        colorscale=theme.SEQUENTIAL,
        colorbar={"title": "margin (logits)"},
        hovertemplate="%{y} operands of %{x} digits: margin at least %{z:.4f}<extra></extra>",
    )
    figure.update_xaxes(title="digits of each operand")
    figure.update_yaxes(title="operands")
    rung = "certified in intervals" if result.arithmetic == "real" else "certified with rounding"
    provenance = Provenance(result.margins.size, None, "shapes, all problems of each", rung)
    return theme.finish(figure, result.sentence(), provenance, width=800, height=620)
