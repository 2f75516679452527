"""Pictures of :class:`interp.proofs.hand_built.HandBuiltCertificate` and of proofs over a grid of shapes."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.core.results import Provenance
from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import cells, hover, points
from interp.figures.panels import Panel, compose, hline
from interp.proofs.coupled_grid import CertifiedGrid
from interp.proofs.hand_built import HandBuiltCertificate
from interp.proofs.verdict import RUNGS
from models.numerals import shown


@drawing(HandBuiltCertificate)
def figure_parts(result: HandBuiltCertificate) -> go.Figure:
    """The proved margin of every part, in order; parts without a bound are missing, those below zero prove nothing."""
    table = result.to_dataframe()
    said = hover("{text}")
    texts = [f"{part}: {shown(bound, 4)}" for part, bound in zip(table.part, table.margin, strict=True)]
    colours = [theme.BLUE if proved else theme.VERMILION for proved in table.proved]
    layer = points(list(range(1, len(table) + 1)), table.margin, None, colours, size=5, text=texts, **said)
    panel = Panel(
        [layer], x="part of the proof", y="lower bound of the margin (logits)", marks=[hline(0, dash="solid")]
    )
    return compose([panel], f"{result.model}: {result.finding()}", result.provenance)


def certified_margins(result: CertifiedGrid) -> go.Figure:
    """The proved margin of every shape, operands by digits."""
    m, n = result.margins.shape
    said = hover("{y} operands of {x} digits: margin at least {z:.4f}")
    layer = cells(
        result.margins, list(range(1, n + 1)), list(range(1, m + 1)), limits=None, bar="margin (logits)", gap=0, **said
    )
    panel = Panel([layer], x="digits of each operand", y={"title": "operands", "autorange": True})
    provenance = Provenance(result.margins.size, None, "shapes, all problems of each", RUNGS[result.arithmetic])
    return compose([panel], result.sentence(), provenance, width=800, height=620)
