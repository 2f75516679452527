"""Picture of :class:`interp.probes.accuracy.AccuracyByChain`."""

from __future__ import annotations

import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.probes.accuracy import AccuracyByChain


@drawing(AccuracyByChain)
def accuracy_by_chain(result: AccuracyByChain) -> go.Figure:
    """Error rate by chain length, log scale: the estimate where there are errors, and always the 95% upper bound."""
    figure = go.Figure()
    sets = (
        (f"{result.test.problems}", result.test, theme.ORANGE, -0.12),
        ("stratified", result.stratified, theme.BLUE, 0.12),
    )
    for name, score, colour, shift in sets:
        lengths = list(score.by_chain_length)
        rates = [score.by_chain_length[length] for length in lengths]
        x = [length + shift for length in lengths]
        text = [f"{rate.correct:,} of {rate.n:,}" for rate in rates]
        bound = [rate.error_bound for rate in rates]
        figure.add_scatter(
            x=x, y=bound, mode="markers", name=f"{name}: 95% upper bound", text=text,
            marker={"symbol": "triangle-down-open", "size": 10, "color": colour, "line": {"width": 2}},
            hovertemplate="chain %{x:.0f}: %{text} right, error rate below %{y:.1e}<extra></extra>",
        )  # fmt: skip
        wrong = [
            (at, 1 - rate.accuracy, label)
            for at, rate, label in zip(x, rates, text, strict=True)
            if rate.correct < rate.n
        ]
        if wrong:
            where, error, label = zip(*wrong, strict=True)
            figure.add_scatter(
                x=where, y=error, mode="markers", name=f"{name}: measured", text=label,
                marker={"size": 10, "color": colour},
                hovertemplate="chain %{x:.0f}: %{text} right, error rate %{y:.1e}<extra></extra>",
            )  # fmt: skip
    figure.update_xaxes(title="longest carry chain (columns the carry travels)", dtick=1)
    figure.update_yaxes(title="error rate", type="log", exponentformat="power", dtick=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0})
    return theme.finish(figure, result.sentence(), result.provenance, width=900, height=520)
