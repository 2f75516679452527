"""Pictures of :class:`interp.causal.circuits.Circuit`: the circuit itself, and faithfulness over its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.causal.circuits.circuit import Circuit, spoken
from interp.causal.circuits.edges import node_at
from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, Edge, EdgeGraph
from interp.figures import theme
from interp.figures.drawing import drawing

#: Colour and dash of an edge by what its receiver does with it.
_PORTS = {
    "q": (theme.BLUE, "dot", "into queries"),
    "k": (theme.ORANGE, "dash", "into keys"),
    "v": (theme.GREEN, "solid", "into values"),
    "": (theme.BLACK, "solid", "into the MLP or the logits"),
}
_CURVES = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE)
_MOST_LABELS = 16
_ROW, _SLOT = 110, 135  # pixels between rows, and between nodes of a row


@dataclass(frozen=True)
class _Node:
    name: str
    x: float
    y: float
    text: str


@drawing(Circuit)
def graph(result: Circuit) -> go.Figure:
    """Nodes by layer, upwards; with groups a column for each group of positions. Parts outside the circuit are grey. An
    edge is as wide as the largest of its drops in the metrics, which its label gives one by one."""
    edges = [result.graph.edges[result.graph.index(name)] for name in result.edges]
    nodes = {node.name: node for node in _layout(result.graph, edges)}
    used = {node for edge in edges for node in (_sender(edge), *_receivers(edge, edges))}
    figure = go.Figure()
    _columns(figure, result.graph, nodes)
    seen: set[str] = set()
    for edge in edges:
        drops = result.drops.sel(edge=edge.name)
        for receiver in _receivers(edge, edges):
            ends = nodes[_sender(edge)], nodes[receiver]
            _draw(figure, edge, ends, drops, len(edges) <= _MOST_LABELS, seen)
    for node in nodes.values():
        inside = node.name in used
        figure.add_annotation(
            x=node.x,
            y=node.y,
            text=f"<b>{node.text}</b>" if inside else node.text,
            showarrow=False,
            borderpad=5,
            borderwidth=1.5 if inside else 1,
            bordercolor=theme.BLACK if inside else theme.LIGHT,
            bgcolor="#E8F1FA" if inside else "white",
            font={"size": 12, "color": theme.BLACK if inside else "#9A9A9A"},
        )
    xs, ys = [node.x for node in nodes.values()], [node.y for node in nodes.values()]
    figure.update_xaxes(visible=False, range=[min(xs) - 1.0, max(xs) + 1.0])
    figure.update_yaxes(visible=False, range=[min(ys) - 0.75, max(ys) + 0.4])
    value, low, high = result.faithfulness.sel(ablation=result.ablation, part="circuit").values
    can = int(result.space.everything().sum())
    title = (
        f"{result.model}: {result.found.size} of {can} edges bring back {value:.0%} [{low:.0%}, {high:.0%}] of the "
        f"{spoken(result.metrics[0])} ({result.what})"
    )
    lost = " and ".join(f"the {spoken(name)}" for name in result.metrics)
    what = "Labels: what is lost of" if len(edges) <= _MOST_LABELS else "Widths: the most that is lost of"
    note = f"Read upwards. {what} {lost} when the edge is cut ({result.ablation} ablation). Grey: not in the circuit"
    width = int(np.clip(_SLOT * (max(xs) - min(xs) + 2) + 100, 760, 1500))
    height = int(np.clip(_ROW * (max(ys) - min(ys) + 1.3) + 190, 460, 1500))
    theme.finish(figure, title, result.provenance, width, height, note)
    legend = {"orientation": "h", "x": 0, "y": 0, "yanchor": "top", "itemwidth": 40}
    return figure.update_layout(showlegend=True, legend=legend, margin={"l": 30, "b": 70})


@drawing(Circuit, "curve")
def curve(result: Circuit) -> go.Figure:
    """Faithfulness of the best circuit of each size on the pairs it is judged on, and of random circuits."""
    figure = go.Figure()
    sizes, first, spread = result.curve["size"].values, spoken(result.metrics[0]), {0.0, 1.0}
    middle, low, high = (result.random_curve.sel(stat=stat).values for stat in ("value", "low", "high"))
    figure.add_scatter(
        x=np.concatenate((sizes, sizes[::-1])),
        y=np.concatenate((high, low[::-1])),
        mode="lines",
        fill="toself",
        fillcolor="rgba(118,118,118,0.18)",
        line={"width": 0},
        hoverinfo="skip",
        name=f"random circuits, {first}, middle 95%",
    )
    grey = {"color": theme.GREY, "dash": "dot"}
    figure.add_scatter(x=sizes, y=middle, mode="lines", line=grey, name="their mean")
    for name, colour, symbol in zip(result.metrics, _CURVES, ("circle", "square", "diamond", "cross"), strict=False):
        values, low, high = (result.curve.sel(metric=name, stat=stat).values for stat in ("value", "low", "high"))
        spread.update((float(values.min()), float(values.max())))
        figure.add_scatter(
            x=sizes,
            y=values,
            error_y=theme.error_bars(values, low, high, color=colour),
            mode="lines+markers",
            line={"color": colour},
            marker={"size": 7, "symbol": symbol},
            name=f"{result.found.method} search, {spoken(name)}",
            hovertemplate="%{x} edges: %{y:.3f}<extra></extra>",
        )
    line = {"color": theme.VERMILION, "width": 1.5, "dash": "dash"}
    text = f"the circuit, {result.found.size} edges"
    figure.add_vline(x=result.found.size, line=line, annotation_text=text, annotation_font_color=theme.VERMILION)
    figure.add_hline(y=1, line={"color": theme.LIGHT, "width": 1})
    figure.update_xaxes(title="Edges kept")
    figure.update_yaxes(title="Faithfulness", range=[max(min(spread), -1) - 0.15, min(max(spread), 2) + 0.2])
    title = f"{result.model}: how many edges are needed ({result.what})"
    where = "pairs that were not searched on" if result.held_out else "the pairs that were searched on"
    theme.finish(figure, title, result.provenance, note=f"{result.ablation.capitalize()} ablation, on {where}")
    return figure.update_layout(legend={"orientation": "h", "y": -0.15})


# ---- the drawing


def _sender(edge: Edge) -> str:
    return node_at(edge.sender, edge.group)


def _receivers(edge: Edge, edges: Sequence[Edge]) -> list[str]:
    """The nodes that read an edge. Keys and values of a group are read by the head wherever the circuit has it."""
    component, _, letter = edge.receiver.partition(".")
    if edge.group is None or letter not in ("k", "v"):
        return [node_at(component, edge.group)]
    return list(dict.fromkeys(_sender(other) for other in edges if other.sender == component))


def _layout(of: EdgeGraph, edges: Sequence[Edge]) -> list[_Node]:
    """Where every part stands: x in slots, y in rows (embeddings 0, heads and MLPs of a layer, logits)."""
    inside = {name for edge in edges for name in (_sender(edge), *_receivers(edge, edges))}
    read = None if of.groups is None else next(g for g, places in of.groups.items() if max(of.read) in places)
    nodes, start = [], 0.0
    for group in (None,) if of.groups is None else of.groups:
        rows: dict[int, list[str]] = {}
        for component in (*of.senders, LOGITS):
            name, row = node_at(component, group), _row(component, of)
            at_read = group == read and component != POS_EMBED  # parts elsewhere only where the circuit has them
            if of.groups is None or component == EMBED or name in inside or at_read:
                rows.setdefault(row, []).append(component)
        width = max(len(row) for row in rows.values())
        width = max(width, 1 if of.groups is None else 2.2 if group == read else 1.3)
        for row, components in rows.items():
            for i, component in enumerate(components):
                apart = 2.0 if row == 0 and of.groups is None else 1.0
                x = start + (width - 1) / 2 + (i - (len(components) - 1) / 2) * apart
                nodes.append(_Node(node_at(component, group), x, float(row), _name(component)))
        start += width
    return nodes


def _row(component: str, of: EdgeGraph) -> int:
    if component in (EMBED, POS_EMBED):
        return 0
    if component == LOGITS:
        return 1 + of.n_layers * (1 + of.has_mlp)
    layer = int(component.removeprefix("MLP").removeprefix("L").partition("H")[0])
    return 1 + layer * (1 + of.has_mlp) + component.startswith("MLP")


def _name(component: str) -> str:
    if component.startswith("MLP"):
        return f"MLP {component[3:]}"
    if component[0] == "L" and component[1].isdigit():
        return "head " + component[1:].replace("H", ".")
    return {EMBED: "token", POS_EMBED: "position"}.get(component, component)


def _columns(figure: go.Figure, of: EdgeGraph, nodes: dict[str, _Node]) -> None:
    """The names of the groups, below their columns."""
    for group in of.groups or ():
        xs = [node.x for name, node in nodes.items() if name.endswith(f"@{group}")]
        if xs:
            middle = (min(xs) + max(xs)) / 2
            font = {"size": 12, "color": theme.GREY}
            figure.add_annotation(x=middle, y=-0.5, text=f"<i>{group}</i>", showarrow=False, font=font)


def _draw(
    figure: go.Figure,
    edge: Edge,
    ends: tuple[_Node, _Node],
    drops: xr.DataArray,
    labelled: bool,
    seen: set[str],
) -> None:
    """One edge as a curve, bent around the rows between its ends."""
    sender, receiver = ends
    letter = edge.receiver.partition(".")[2]
    colour, dash, legend = _PORTS[letter]
    rows = receiver.y - sender.y
    aside = {"q": -0.28, "k": 0.0, "v": 0.28}.get(letter, 0.0)
    if rows > 1 and abs(receiver.x - sender.x) < 1.5:
        aside += (-0.55 if edge.sender == EMBED else 0.42) * (rows - 1) ** 0.7
    t = np.linspace(0, 1, 61)
    x = sender.x + (receiver.x - sender.x) * t + 4 * aside * t * (1 - t)
    y = sender.y + rows * t
    lost = drops.sel(stat="value").values
    lines = [
        f"{spoken(str(name))}: {value:.3f} [{low:.3f}, {high:.3f}]"
        for name, (value, low, high) in zip(drops.metric.values, drops.values, strict=True)
    ]
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={
            "color": colour,
            "dash": dash,
            "simplify": False,
            "width": 1.2 + 8 * float(np.clip(np.abs(lost).max(), 0, 1)),
        },
        opacity=0.75,
        name=legend,
        legendgroup=legend,
        showlegend=legend not in seen,
        text=["<br>".join((f"<b>{edge.name}</b>, lost without it", *lines))] * len(t),
        hovertemplate="%{text}<extra></extra>",
    )
    seen.add(legend)
    if labelled:
        early = {"q": 0.35, "v": 0.62}.get(letter, 0.5)  # apart from the head's other inputs
        at = int(len(t) * (0.66 if receiver.name.startswith(LOGITS) and rows > 2 else early))
        text = " · ".join(f"{max(value, 0) if abs(value) < 0.005 else value:.0%}" for value in lost)
        font = {"size": 11, "color": theme.BLACK}
        figure.add_annotation(x=x[at], y=y[at], text=text, showarrow=False, font=font, bgcolor="rgba(255,255,255,0.85)")
