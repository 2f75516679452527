"""Picture of :class:`interp.probes.shape_scores.ShapeScores`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose, vline
from interp.probes.shape_scores import ShapeScores


@drawing(ShapeScores)
def exact_match_by_shape(result: ShapeScores) -> go.Figure:
    """Share of whole responses right, a column a shape; the stored seed bold with its interval, the others grey."""
    shapes, chosen = result.shapes, result.chosen
    labels = [" x ".join(map(str, shape)) for shape in shapes]
    others = [seed for seed in result.rates if seed != chosen]
    layers = [
        points(
            labels, [result.rates[seed][shape].accuracy for shape in shapes],
            f"the other {len(others)} seed{'s' * (len(others) > 1)}", theme.GREY, size=8, filled=[False] * len(shapes),
            opacity=0.8, **hover(f"seed {seed}, {{x}}: {{y:.3f}}"),
        )
        for seed in others
    ]  # fmt: skip
    rates = [result.rates[chosen][shape] for shape in shapes]
    layers.append(
        points(
            labels, [rate.accuracy for rate in rates], f"seed {chosen}, in the zoo", size=10,
            ends=([rate.interval[0] for rate in rates], [rate.interval[1] for rate in rates]),
            text=[f"{rate.correct:,} of {rate.n:,}" for rate in rates], **hover(f"seed {chosen}, {{x}}: {{text}}"),
        )
    )  # fmt: skip
    panel = Panel(
        layers,
        x={"title": result.sizes, "type": "category", "categoryorder": "array", "categoryarray": labels},
        y={"title": "whole responses right", "range": [-0.03, 1.05], "tickformat": ".0%"},
        marks=[vline(0.5, "longer than in training →", place="top right")],
    )
    return compose(
        [panel], result.sentence(), result.provenance, width=900, height=520, showlegend=bool(others), margin={"t": 14}
    )
