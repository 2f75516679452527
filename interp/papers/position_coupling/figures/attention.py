"""Figures of needed attention: the paper's Figure 7, and its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from interp.core.drawings import drawing
from interp.figures import theme
from interp.figures.layers import cells, curve, hover, points
from interp.figures.panels import Mark, Panel, compose
from interp.papers.position_coupling.attention import NeededAttention
from interp.papers.position_coupling.keys import ROLE_NAMES
from interp.probes.key_sets import CLIP

_PANELS = 4
_SCALE = [[0, "#FFFFFF"], [0.02, "#D6E6F4"], [0.35, "#4A97C9"], [1, "#08306B"]]
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")


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
    """Mean patterns: rows are queries and columns keys, from BOS to the end; weights under 0.01 are left white."""
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
    ticks = {"tickvals": [middles[i] for i in shown], "ticktext": [names[i] for i in shown], "tickfont": {"size": 11}}
    x = ticks | {"range": [-0.5, length - 0.5], "tickangle": 0}
    y = ticks | {"range": [length - 0.5, -0.5]}
    line = {"type": "line", "line": {"color": "#C8C8C8", "width": 0.5}}
    grid = [
        Mark("add_shape", line | ends)
        for edge in edges
        for ends in (
            {"x0": edge, "x1": edge, "y0": edge - 0.5, "y1": length - 0.5},
            {"x0": -0.5, "x1": edge + 0.5, "y0": edge, "y1": edge},
        )
    ]
    panels = [
        Panel(
            [_pattern(result, *place)], _panel(result, *place),
            x | {"title": "attended to (key)" if index + columns >= len(heads) else ""},
            y | {"title": "" if index % columns else "reading (query)"}, grid,
        )
        for index, place in enumerate(heads)
    ]  # fmt: skip
    counts = [float(result.row(*place)[1]["keys"]) for place in heads]
    tokens = f"{min(counts):.1f}" + (f" to {max(counts):.1f}" if len(counts) > 1 else "")
    title, note = f"A head attends to {tokens} tokens per step, not counting BOS", f"white: below {CLIP}, grey: future"
    if result.shape:
        operands, digits = result.shape
        title = f"Adding {operands} numbers of {digits} digits, a{title[1:]}"
        note = f"Numbers a1 to a{operands} from their most significant digit, running sums b from their least; {note}"
    size = 430
    return compose(
        panels, title, result.provenance, note=note, columns=columns, width=110 + columns * (size + 40),
        height=190 + rows * (size + 20), plot_bgcolor=theme.LIGHT,
    )  # fmt: skip


def _pattern(result: NeededAttention, layer: int, head: int) -> go.Heatmap:
    weight, spread = (x.sel(layer=layer, head=head).values for x in (result.pattern, result.pattern_std))
    text = np.array([str(label) for label in result.pattern.label.values], dtype=object)
    future = np.triu(np.ones(weight.shape, dtype=bool), 1)
    said = hover(
        "at {query}, attending to {key}: {z:.3f} (standard deviation over problems {spread:.2f})",
        key=text[None], query=text[:, None], spread=spread,
    )  # fmt: skip
    z = np.where(future, np.nan, np.where(weight < CLIP, 0.0, weight))
    return cells(z, scale=_SCALE, bar="mean weight", gap=0, **said)


def _panel(result: NeededAttention, layer: int, head: int) -> str:
    row, counts = result.row(layer, head)
    role = str(row.role.values[int(np.nanargmax(row.share.values))])
    return (
        f"L{layer}H{head}: {float(row.share.sel(role=role)):.2f} on the {ROLE_NAMES.get(role, role)}'s tokens, "
        f"{float(counts['keys']):.1f} tokens per step"
    )


@drawing(NeededAttention, "shares")
def needed_attention_shares(result: NeededAttention) -> go.Figure:
    """Each head's share on the tokens of the digit sum and of the carry: mean, quantiles over rows, and controls."""
    units = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()]
    if len(units) > 12:
        units = sorted(result.strongest(12))
    place, gap = np.arange(len(units), dtype=float), np.full(len(units), np.nan)
    layers = []
    roles = result.table.role.values.tolist()
    for index, role in enumerate(roles):
        shift, colour = 0.36 * (index - (len(roles) - 1) / 2) / max(1, len(roles) - 1), theme.SEVEN[index % 7]
        found = [result.table.sel(layer=i, head=h, role=role) for i, h in units]
        share, agreement, choice, p, shuffled = (
            np.array([float(one[name]) for one in found])
            for name in ("share", "agreement", "choice", "p_value", "shuffled_high")
        )
        bands = np.array([one.quantiles.values for one in found])
        at = place + shift
        for low, high, width in ((0, 4, 2), (1, 3, 7)):
            xs, ys = (np.column_stack(pair).ravel() for pair in ((at, at, gap), (bands[:, low], bands[:, high], gap)))
            layers.append(curve(xs, ys, None, colour, width=width, opacity=0.35, hoverinfo="skip"))
        said = hover(
            "{y:.3f}; the heaviest keys are exactly these in {agreement:.1%} of rows, the operand's weight varies by "
            "{choice:.2f}, p = {p:.3f}",
            agreement=agreement, choice=choice, p=p,
        )  # fmt: skip
        name = f"{ROLE_NAMES.get(role, role)}: mean, quartiles, 5-95%"
        layers.append(points(at, share, name, colour, _SYMBOLS[index % 7], 11, rim="white", **said))
        control = "shuffled tokens, 97.5%"
        layers.append(points(at, shuffled, control, theme.GREY, "line-ew", 16, **hover(f"{control}: {{y:.3f}}")))
    untrained, ends = float(result.table.untrained_max.max()), [-0.5, len(units) - 0.5]
    if not np.isnan(untrained):
        name = "largest of untrained heads"
        layers.append(curve(ends, [untrained] * 2, name, theme.GREY, "dot", **hover(f"{name}: {{y:.3f}}")))
    x = {
        "title": "head", "tickvals": place, "ticktext": [f"L{i}H{h}" for i, h in units], "showgrid": False,
        "zeroline": False, "range": ends,
    }  # fmt: skip
    y = {"title": "share of attention on the needed tokens", "range": [-0.03, 1.03]}
    best = [max(result.table.sel(layer=i, head=h).share.values) for i, h in units]
    title = (
        f"{sum(value > 0.5 for value in best)} of {len(units)} heads put most of their attention on the tokens that "
        "the digit sum or the carry needs"
    )
    return compose([Panel(layers, x=x, y=y)], title, result.provenance, width=900)
