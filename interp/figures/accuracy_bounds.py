"""Picture of :class:`interp.proofs.accuracy_bounds.AccuracyBounds`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.proofs.accuracy_bounds import AccuracyBounds


@drawing(AccuracyBounds)
def figure_accuracy_bounds(result: AccuracyBounds) -> go.Figure:
    """Proved bounds on the share of errors, by output digit and by longest carry chain, on a log scale.

    A bar from the lower to the upper bound; a dot where they are equal or too near to be told apart; an open triangle
    at the upper bound where no error is proved; and a circle at the foot where none is possible.
    """
    table = result.to_dataframe()
    low, high = table.error_low.to_numpy(dtype=float), table.error_high.to_numpy(dtype=float)
    positive = np.concatenate((low[low > 0], high[high > 0]))
    foot = 10.0 ** (np.floor(np.log10(positive.min() if len(positive) else 1e-3)) - 1)
    figure = make_subplots(
        cols=2, shared_yaxes=True, horizontal_spacing=0.03, column_titles=["by output digit", "by longest carry chain"]
    )
    shown: set[str] = set()
    for column, (part, colour) in enumerate((("target", theme.BLUE), ("carry chain", theme.ORANGE)), 1):
        rows = table[table.part == part]
        _panel(figure, column, rows, foot, colour, shown)
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=rows.name.tolist(), col=column)
    figure.update_xaxes(title="target, teacher-forced", col=1)
    figure.update_xaxes(title="columns the carry travels", col=2)
    top = np.log10(max(positive.max() if len(positive) else 1e-2, foot * 100)) + 0.3
    figure.update_yaxes(type="log", exponentformat="power", dtick=1, range=[np.log10(foot) - 0.3, top])
    figure.update_yaxes(title="share of pairs answered wrongly", col=1)
    figure.update_layout(legend={"orientation": "h", "y": -0.2, "x": 0})
    return theme.finish(figure, result.finding(), result.provenance, width=1000, height=520)


def _panel(figure: go.Figure, column: int, rows: pd.DataFrame, foot: float, colour: str, shown: set[str]) -> None:
    low, high = rows.error_low.to_numpy(dtype=float), rows.error_high.to_numpy(dtype=float)
    names = rows.name.to_numpy()
    text = [
        f"{n:,} pairs: {w:,} wrong, {o:,} open" for n, w, o in zip(rows.pairs, rows.wrong, rows.open, strict=True)
    ]  # fmt: skip
    at = np.where(low > 0, low, np.where(high > 0, high, foot))
    kinds = (
        ("between", low > 0, {"symbol": "circle", "size": 9, "color": colour}),
        ("at most", (low <= 0) & (high > 0), {"symbol": "triangle-down-open", "size": 10, "color": colour}),
        ("no error is possible", high <= 0, {"symbol": "circle-open", "size": 8, "color": theme.GREY}),
    )
    for name, chosen, marker in kinds:
        if not chosen.any():
            continue
        bars = theme.error_bars(at[chosen], at[chosen], np.maximum(high, at)[chosen], color=colour, width=6)
        figure.add_scatter(
            x=names[chosen], y=at[chosen], mode="markers", marker=marker, name=name, legendgroup=name,
            showlegend=name not in shown, error_y=bars, text=[t for t, c in zip(text, chosen, strict=True) if c],
            hovertemplate="%{x}: %{text}<extra></extra>", row=1, col=column,
        )  # fmt: skip
        shown.add(name)
