"""Picture of :class:`interp.probes.shape_scores.ShapeScores`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.shape_scores import ShapeScores


@drawing(ShapeScores)
def exact_match_by_shape(result: ShapeScores) -> go.Figure:
    """Share of whole responses right, a column a shape; the stored seed bold with its interval, the others grey."""
    figure = go.Figure()
    shapes = result.shapes
    labels = [" x ".join(map(str, shape)) for shape in shapes]
    others = [seed for seed in result.rates if seed != result.chosen]
    for i, seed in enumerate(others):
        figure.add_scatter(
            x=labels, y=[result.rates[seed][shape].accuracy for shape in shapes], mode="markers",
            name=f"the other {len(others)} seed{'s' * (len(others) > 1)}", legendgroup="others", showlegend=i == 0,
            marker={"size": 8, "color": "rgba(255,255,255,0.6)", "line": {"color": theme.GREY, "width": 1.5}},
            hovertemplate=f"seed {seed}, %{{x}}: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
    rates = [result.rates[result.chosen][shape] for shape in shapes]
    low, high = zip(*(rate.interval for rate in rates), strict=True)
    share = [rate.accuracy for rate in rates]
    figure.add_scatter(
        x=labels, y=share, mode="markers", name=f"seed {result.chosen}, in the zoo",
        error_y=theme.error_bars(share, low, high, color=theme.BLUE),
        marker={"size": 10, "color": theme.BLUE}, text=[f"{rate.correct:,} of {rate.n:,}" for rate in rates],
        hovertemplate=f"seed {result.chosen}, %{{x}}: %{{text}}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=0.5, line={"color": theme.GREY, "dash": "dash", "width": 1})
    figure.add_annotation(
        x=0.5, y=1, yref="paper", yanchor="bottom", xanchor="left", showarrow=False, text="longer than in training →",
        font={"size": 12, "color": theme.GREY},
    )  # fmt: skip
    figure.update_xaxes(title=result.sizes, type="category", categoryorder="array", categoryarray=labels)
    figure.update_yaxes(title="whole responses right", range=[-0.03, 1.05], tickformat=".0%")
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0}, showlegend=bool(others))
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520)
