"""Pictures of what heads write about a digit."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.figures.layers import curve, hover
from interp.figures.panels import Panel, compose
from interp.probes.head_writes import HeadWrites


@drawing(HeadWrites)
def head_writes(result: HeadWrites) -> go.Figure:
    """Coordinate of the digits along each head's main direction, and how linear it is."""
    heads = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()][:8]
    columns = min(4, len(heads))
    panels = []
    for i, h in heads:
        row = result.table.sel(layer=i, head=h)
        said = hover(f"digit {{x}}: {{y:.2f}}<br>the direction holds {float(row.line):.0%} of the variance")
        line = result.line_of.sel(layer=i, head=h).values
        style: dict[str, Any] = {"symbol": "circle", "size": 9, "marker": {"color": theme.BLUE}} | said
        linear = float(row.linear)
        panels.append(
            Panel(
                [curve(result.line_of.digit.values, line, None, theme.LIGHT, **style)],
                f"L{i}H{h}: " + ("no digit written" if np.isnan(linear) else f"{linear:.0%} linear"),
                x={"title": "digit attended to", "dtick": 3, "range": [-0.6, result.line_of.sizes["digit"] - 0.4]},
                y={
                    "title": "" if len(panels) % columns else "main direction, sd", "range": [-2.6, 2.6],
                    "zeroline": True, "zerolinecolor": theme.LIGHT,
                },
            )
        )  # fmt: skip
    kept = result.table.linear.values[~np.isnan(result.table.linear.values)]
    title = f"What heads write about a digit is {kept.min():.0%} to {kept.max():.0%} linear in its value"
    base = result.line_of.sizes["digit"]
    note = f"Along each head's first principal direction; percentages are of the whole variance over {base} digits"
    height = 150 + 270 * -(-len(heads) // columns)
    return compose(
        panels, title, result.provenance, note=note, columns=columns, height=height, shared="y", gaps=(36, 90)
    )
