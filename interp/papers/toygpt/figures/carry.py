"""Pictures of :class:`interp.papers.toygpt.carry.CarryPath` and :class:`interp.papers.toygpt.probes.CarryProbes`."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.toygpt.carry import CarryPath
from interp.papers.toygpt.probes import CarryProbes

LINES = {
    "a0": (theme.GREEN, "dot", "triangle-up"),
    "b0": (theme.BLUE, "solid", "circle"),
    "s0": (theme.VERMILION, "dash", "square"),
}


@drawing(CarryPath)
def carry_path(result: CarryPath) -> go.Figure:
    """Share of tens digits that follow the source's carry: along the stream, and for sublayers and heads."""
    figure = make_subplots(
        rows=2,
        row_heights=[0.5, 0.5],
        vertical_spacing=0.17,
        subplot_titles=(
            "the residual stream after a layer replaced at one position",
            "one sublayer's or head's output replaced",
        ),
    )
    said = "%{customdata[0]:,} of %{customdata[1]:,} follow (%{y:.1%}); same-carry control changes %{customdata[2]:.1%}"
    for position in LINES:
        line = _along_the_stream(result.stream(position), position, "share", ("follows", "n", "control_share"), said)
        figure.add_trace(line, row=1, col=1)
    parts = result.table[result.table.kind != "stream"]
    order = [site for layer in sorted(set(parts.layer)) for site in dict.fromkeys(parts[parts.layer == layer].site)]
    for position in ("b0", "s0"):
        rows = parts[parts.position == position].set_index("site").loc[order].reset_index()
        figure.add_bar(
            x=rows.site,
            y=rows.share,
            error_y=theme.error_bars(rows.share, rows.low, rows.high, width=2),
            name=f"at {position}",
            showlegend=False,
            marker={"color": LINES[position][0], "pattern": {"shape": "" if position == "b0" else "/"}},
            customdata=rows[["follows", "n"]],
            hovertemplate=f"%{{x}} at {position}: %{{customdata[0]:,}} of %{{customdata[1]:,}} follow (%{{y:.1%}})"
            "<extra></extra>",
            row=2,
            col=1,
        )
    figure.update_yaxes(range=[-0.02, 1.04], tickformat=".0%", title="tens digits that follow")
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_layout(legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.0, "yanchor": "bottom"})
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
    return theme.finish(figure, title, result.provenance, width=1050, height=820, note=note)


def _along_the_stream(rows: pd.DataFrame, position: str, value: str, shown: Sequence[str], said: str) -> go.Scatter:
    """A line over the layers of one position's stream with its intervals; hovering says ``shown`` in the words of
    ``said``."""
    colour, dash, symbol = LINES[position]
    return go.Scatter(
        x=rows.site,
        y=rows[value],
        error_y=theme.error_bars(rows[value], rows.low, rows.high),
        name=f"at {position}",
        mode="lines+markers",
        line={"color": colour, "dash": dash},
        marker={"symbol": symbol, "size": 9},
        customdata=rows[list(shown)],
        hovertemplate=f"{position}, %{{x}}: {said}<extra></extra>",
    )


@drawing(CarryProbes)
def carry_probes(result: CarryProbes) -> go.Figure:
    """Accuracy of the carry probe along the stream, a line a position, and the highest control."""
    figure = go.Figure()
    said = "%{y:.3f} [%{customdata[0]:.3f}, %{customdata[1]:.3f}]; control %{customdata[2]:.3f}"
    for position, (colour, _, symbol) in LINES.items():
        stream = result.stream(position)
        figure.add_trace(_along_the_stream(stream, position, "accuracy", ("low", "high", "control"), said))
        figure.add_scatter(
            x=stream.site,
            y=stream.control,
            name=f"at {position}, control",
            mode="markers",
            marker={"symbol": f"{symbol}-open", "size": 8, "color": colour},
            hovertemplate=f"{position}, %{{x}}, labels dealt anew: %{{y:.3f}}<extra></extra>",
        )
        figure.add_scatter(
            x=stream.site,
            y=stream.untrained,
            name=f"at {position}, untrained copy",
            mode="lines",
            line={"dash": "dot", "width": 1.5, "color": colour},
            hovertemplate=f"{position}, %{{x}}, untrained copy: %{{y:.3f}}<extra></extra>",
        )
    figure.update_yaxes(range=[0.3, 1.02], title="accuracy on units pairs never seen")
    figure.update_xaxes(type="category", title="residual stream behind", showgrid=False)
    best = {position: float(result.stream(position).accuracy.max()) for position in ("b0", "s0")}
    blank = max(float(result.stream(position).untrained.max()) for position in best)
    title = (
        f"{result.name}: a linear probe reads the carry with at most {best['b0']:.3f} at b0 and {best['s0']:.3f} at s0 "
        f"(untrained: at most {blank:.3f}; labels dealt again: at most {result.table.control.max():.3f})"
    )
    note = "Dotted lines: the same probes on an untrained copy"
    return theme.finish(figure, title, result.provenance, width=1050, height=560, note=note)
