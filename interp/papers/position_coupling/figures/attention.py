"""Pictures of needed attention: the paper's Figure 7, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.figures import theme
from interp.figures.drawing import drawing
from interp.papers.position_coupling.attention import NeededAttention
from interp.papers.position_coupling.keys import ROLE_NAMES
from interp.papers.position_coupling.patterns import CLIP

_PANELS = 4
_ROLE_COLOUR = {"sum": theme.BLUE, "carry": theme.VERMILION}


def segments(labels: Sequence[str]) -> tuple[list[float], list[str], list[float]]:
    """(middles, names, boundaries) of the numbers in a row of token labels such as a1[0], +, b0[3]."""
    names = [label.partition("[")[0] if "[" in label else "" for label in labels]
    middles, texts, edges = [], [], []
    start = None
    for place, name in enumerate([*names, ""]):
        if start is not None and name != names[start]:
            middles.append((start + place - 1) / 2)
            texts.append(names[start])
            edges.append(place - 0.5)
            start = None
        if start is None and name:
            start = place
    return middles, texts, edges


@drawing(NeededAttention)
def needed_attention_pattern(result: NeededAttention, layer: int | None = None, head: int | None = None) -> go.Figure:
    """Mean patterns: rows are queries, columns keys, both from BOS to the end; weights under 0.01 are left white."""
    if layer is None and head is None:
        heads = sorted(result.strongest(_PANELS))
    else:
        result.row(layer or 0, head or 0)
        heads = [(layer or 0, head or 0)]
    labels = [str(label) for label in result.pattern.label.values]
    length = len(labels)
    middles, names, edges = segments(labels)
    step = max(1, -(-len(names) // 14))
    shown = [i for i, name in enumerate(names) if name.startswith("a") or name.startswith("b")][::step]
    columns = 1 if len(heads) == 1 else 2
    rows = -(-len(heads) // columns)
    figure = make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[_panel(result, *place) for place in heads],
        horizontal_spacing=0.09,
        vertical_spacing=0.13,
    )
    future = np.triu(np.ones((length, length), dtype=bool), 1)
    text = np.array(labels, dtype=object)
    for index, (i, h) in enumerate(heads):
        row, column = divmod(index, columns)
        weight = result.pattern.sel(layer=i, head=h).values
        spread = result.pattern_std.sel(layer=i, head=h).values
        z = np.where(future, np.nan, np.where(weight < CLIP, 0.0, weight))
        figure.add_heatmap(
            z=z,
            zmin=0,
            zmax=1,
            coloraxis="coloraxis",
            customdata=np.stack((np.broadcast_to(text, z.shape), np.broadcast_to(text[:, None], z.shape), spread), -1),
            hovertemplate="at %{customdata[1]}, attending to %{customdata[0]}: %{z:.3f} (standard deviation over "
            "problems %{customdata[2]:.2f})<extra></extra>",
            row=row + 1,
            col=column + 1,
        )
        for edge in edges:
            line = {"color": "#C8C8C8", "width": 0.5}
            style = {"type": "line", "line": line, "row": row + 1, "col": column + 1}
            figure.add_shape(x0=edge, x1=edge, y0=edge - 0.5, y1=length - 0.5, **style)
            figure.add_shape(x0=-0.5, x1=edge + 0.5, y0=edge, y1=edge, **style)
    ticks = {"tickvals": [middles[i] for i in shown], "ticktext": [names[i] for i in shown], "showgrid": False}
    figure.update_xaxes(**ticks, zeroline=False, range=[-0.5, length - 0.5], tickangle=0, tickfont={"size": 11})
    figure.update_yaxes(**ticks, zeroline=False, range=[length - 0.5, -0.5], tickfont={"size": 11})
    for index in range(len(heads)):
        row, column = divmod(index, columns)
        if row == rows - 1 or index + columns >= len(heads):
            figure.update_xaxes(title="attended to (key)", row=row + 1, col=column + 1)
        if column == 0:
            figure.update_yaxes(title="reading (query)", row=row + 1, col=1)
    figure.update_layout(
        plot_bgcolor=theme.LIGHT,
        coloraxis={
            "colorscale": [[0, "#FFFFFF"], [0.02, "#D6E6F4"], [0.35, "#4A97C9"], [1, "#08306B"]],
            "cmin": 0,
            "cmax": 1,
            "colorbar": {"title": {"text": "mean weight", "side": "top"}, "thickness": 12, "len": 0.5},
        },
    )
    figure.update_annotations(font={"size": 13})
    operands, digits = result.shape
    counts = [float(result.row(*place)[1]["keys"]) for place in heads]
    tokens = f"{min(counts):.1f}" + (f" to {max(counts):.1f}" if len(counts) > 1 else "")
    title = f"Adding {operands} numbers of {digits} digits, a head attends to {tokens} tokens a step, BOS apart"
    note = (
        f"Numbers a1 to a{operands} from their most significant digit, running sums b from their least; "
        f"white: below {CLIP}, grey: future"
    )
    size = 430
    return theme.finish(
        figure, title, result.provenance, width=110 + columns * (size + 40), height=190 + rows * (size + 20), note=note
    )


def _panel(result: NeededAttention, layer: int, head: int) -> str:
    row, counts = result.row(layer, head)
    role = str(row.role.values[int(np.nanargmax(row.share.values))])
    return (
        f"L{layer}H{head}: {float(row.share.sel(role=role)):.2f} on the {ROLE_NAMES[role]}'s tokens, "
        f"{float(counts['keys']):.1f} tokens a step"
    )


@drawing(NeededAttention, "shares")
def needed_attention_shares(result: NeededAttention) -> go.Figure:
    """Share of each head on the tokens of the digit sum and of the carry: mean, quantiles over rows, and controls."""
    figure = go.Figure()
    units = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()]
    if len(units) > 12:
        units = sorted(result.strongest(12))
    place = np.arange(len(units), dtype=float)
    for role, shift in (("sum", -0.18), ("carry", 0.18)):
        cells = [result.table.sel(layer=i, head=h, role=role) for i, h in units]
        share = np.array([float(cell.share) for cell in cells])
        bands = np.array([cell.quantiles.values for cell in cells])
        for low, high, width in ((0, 4, 2), (1, 3, 7)):
            x = np.column_stack((place + shift, place + shift, np.full(len(place), np.nan))).ravel()
            y = np.column_stack((bands[:, low], bands[:, high], np.full(len(place), np.nan))).ravel()
            figure.add_scatter(
                x=x, y=y, mode="lines", line={"color": _ROLE_COLOUR[role], "width": width}, opacity=0.35,
                showlegend=False, hoverinfo="skip",
            )  # fmt: skip
        figure.add_scatter(
            x=place + shift,
            y=share,
            mode="markers",
            name=f"{ROLE_NAMES[role]}: mean, quartiles, 5-95%",
            marker={
                "color": _ROLE_COLOUR[role],
                "size": 11,
                "symbol": "circle" if role == "sum" else "diamond",
                "line": {"color": "white", "width": 1},
            },
            customdata=[[float(cell.agreement), float(cell.choice), float(cell.p_value)] for cell in cells],
            hovertemplate="%{y:.3f}; the heaviest keys are exactly these in %{customdata[0]:.1%} of rows, the operand's"
            " weight varies by %{customdata[1]:.2f}, p = %{customdata[2]:.3f}<extra></extra>",
        )
        figure.add_scatter(
            x=place + shift,
            y=[float(cell.shuffled_high) for cell in cells],
            mode="markers",
            name="shuffled tokens, 97.5%",
            showlegend=role == "sum",
            marker={"symbol": "line-ew", "size": 16, "line": {"color": theme.GREY, "width": 2}},
            hovertemplate="shuffled tokens, 97.5%: %{y:.3f}<extra></extra>",
        )
    untrained = float(result.table.untrained_max.max())
    if not np.isnan(untrained):
        figure.add_scatter(
            x=[-0.5, len(units) - 0.5],
            y=[untrained, untrained],
            mode="lines",
            name="largest of untrained heads",
            line={"dash": "dot", "color": theme.GREY},
            hovertemplate="largest of untrained heads: %{y:.3f}<extra></extra>",
        )
    figure.update_xaxes(
        title="head",
        tickvals=place,
        ticktext=[f"L{i}H{h}" for i, h in units],
        showgrid=False,
        zeroline=False,
        range=[-0.5, len(units) - 0.5],
    )
    figure.update_yaxes(title="share of attention on the needed tokens", range=[-0.03, 1.03])
    best = [max(result.table.sel(layer=i, head=h).share.values) for i, h in units]
    title = (
        f"{sum(value > 0.5 for value in best)} of {len(units)} heads put most of their attention on the tokens that "
        "the digit sum or the carry needs"
    )
    figure.update_layout(legend={"orientation": "h", "y": -0.18, "x": 0})
    return theme.finish(figure, title, result.provenance, width=900, height=560)
