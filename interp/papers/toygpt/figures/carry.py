"""The figure of :class:`interp.papers.toygpt.carry.CarryPath`."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import bars, curve, hover
from interp.figures.panels import Panel, compose
from interp.papers.toygpt.carry import CarryPath

LINES = {
    "a0": (theme.GREEN, "dot", "triangle-up"),
    "b0": (theme.BLUE, "solid", "circle"),
    "s0": (theme.VERMILION, "dash", "square"),
}
_LAYERS = {"type": "category", "showgrid": False}


@drawing(CarryPath)
def carry_path(result: CarryPath) -> go.Figure:
    """The share of tens digits that follow the source's carry: along the stream, and for sublayers and heads."""
    said = "{follows:,} of {n:,} follow ({y:.1%}); same-carry control changes {control:.1%}"
    lines = []
    for position in LINES:
        rows = result.stream(position)
        fields = {"follows": rows.follows, "n": rows.n, "control": rows.control_share}
        lines.append(_along_the_stream(rows, position, "share", said, **fields))
    parts = result.table[result.table.kind != "stream"]
    order = [site for layer in sorted(set(parts.layer)) for site in dict.fromkeys(parts[parts.layer == layer].site)]
    replaced = []
    for position, pattern in (("b0", ""), ("s0", "/")):
        rows = parts[parts.position == position].set_index("site").loc[order].reset_index()
        style = hover(
            f"{{x}} at {position}: {{follows:,}} of {{n:,}} follow ({{y:.1%}})", follows=rows.follows, n=rows.n
        )
        style |= {"ends": (rows.low, rows.high), "pattern": pattern, "showlegend": False}
        replaced.append(bars(rows.site, rows.share, f"at {position}", LINES[position][0], **style))
    y = {"range": [-0.02, 1.04], "tickformat": ".0%", "title": "tens digits that follow"}
    moves, before, after = result.largest_rise("s0")
    gathering = result.gathering().replace("there", "at b0")
    title = (
        f"{result.name}: {gathering}; most of the carry is moved to s0 by layer {moves}'s attention "
        f"({before:.1%} of tens digits follow the source before, {after:.1%} after)"
    )
    control = result.at(f"L{moves}", "s0").control_share
    note = (
        f"Sources with the same carry change {control:.1%} of the tens digits there. {result.bases:,} bases before "
        "dropping those that the model gets wrong"
    )
    panels = [
        Panel(lines, "the residual stream after a layer replaced at one position", _LAYERS, y),
        Panel(replaced, "one sublayer's or head's output replaced", _LAYERS, y),
    ]
    return compose(
        panels, title, result.provenance, note=note, width=1050, height=820, gaps=(0, 100), margin={"t": 14},
        legend={"x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"},
    )  # fmt: skip


def _along_the_stream(rows: pd.DataFrame, position: str, value: str, said: str, **fields: Any) -> go.Scatter:
    """A line over the layers of one position's stream with its intervals."""
    colour, dash, symbol = LINES[position]
    style: dict[str, Any] = {"ends": (rows.low, rows.high), "symbol": symbol, "size": 9} | hover(
        f"{position}, {{x}}: {said}", **fields
    )
    return curve(rows.site, rows[value], f"at {position}", colour, dash, **style)
