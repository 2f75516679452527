"""Picture of :class:`interp.proofs.accuracy_bounds.AccuracyBounds`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import hover, points
from interp.figures.panels import Panel, compose
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
    top = np.log10(max(positive.max() if len(positive) else 1e-2, foot * 100)) + 0.3
    y = {"type": "log", "exponentformat": "power", "dtick": 1, "range": [np.log10(foot) - 0.3, top]}
    panels = []
    for part, colour, title, x in (
        ("target", theme.BLUE, "by output digit", "target, teacher-forced"),
        ("carry chain", theme.ORANGE, "by longest carry chain", "columns the carry travels"),
    ):
        rows = table[table.part == part]
        names = {"type": "category", "categoryorder": "array", "categoryarray": rows.name.tolist(), "title": x}
        of_y = y | {"title": "" if panels else "share of pairs answered wrongly"}
        panels.append(Panel(_marks(rows, foot, colour), title, names, of_y))
    return compose(
        panels, result.finding(), result.provenance, columns=2, height=520, shared="y", gaps=(30, 0), margin={"t": 14}
    )


def _marks(rows: pd.DataFrame, foot: float, colour: str) -> list[go.Scatter]:
    low, high = rows.error_low.to_numpy(dtype=float), rows.error_high.to_numpy(dtype=float)
    text = [
        f"{n:,} pairs: {w:,} wrong, {o:,} open" for n, w, o in zip(rows.pairs, rows.wrong, rows.open, strict=True)
    ]  # fmt: skip
    at = np.where(low > 0, low, np.where(high > 0, high, foot))
    return [
        points(
            rows.name.to_numpy()[chosen], at[chosen], name, mark, symbol, size,
            ends=(at[chosen], np.maximum(high, at)[chosen]), bar={"color": colour, "width": 6},
            text=[said for said, here in zip(text, chosen, strict=True) if here], **hover("{x}: {text}"),
        )
        for name, chosen, mark, symbol, size in (
            ("between", low > 0, colour, "circle", 9),
            ("at most", (low <= 0) & (high > 0), colour, "triangle-down-open", 10),
            ("no error is possible", high <= 0, theme.GREY, "circle-open", 8),
        )
        if chosen.any()
    ]  # fmt: skip
