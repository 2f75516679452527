"""Figures of :class:`interp.causal.circuits.Circuit`: the circuit itself, and faithfulness by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from interp.causal.circuits.circuit import Circuit
from interp.causal.circuits.every_circuit import AllCircuits
from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, Edge, EdgeGraph, part_and_input
from interp.core.drawings import drawing
from interp.core.metrics import spoken
from interp.figures import theme
from interp.figures.layers import band, hover, points
from interp.figures.layers import curve as line
from interp.figures.panels import Mark, Panel, compose, hline, label, vline
from models.numerals import in_percent
from models.transformer.part_names import read_part

#: Input of the receiver -> colour, dash and legend of the edge.
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
    """The circuit as a graph, with layers upwards and, with groups, a column per group of positions. Parts outside the
    circuit are grey. An edge's width is the largest of its drops in the metrics, which its label lists."""
    edges = [result.graph.edges[result.graph.index(name)] for name in result.edges]
    nodes = {node.name: node for node in _layout(result.graph, edges)}
    used = {node for edge in edges for node in (_sender(edge), *_receivers(edge, edges))}
    layers, marks = [], _columns(result.graph, nodes)
    for edge in edges:
        drops = result.drops.sel(edge=edge.name)
        for receiver in _receivers(edge, edges):
            layer, said = _edge(edge, (nodes[_sender(edge)], nodes[receiver]), drops)
            layers.append(layer)
            marks += [said] if len(edges) <= _MOST_LABELS else []
    marks += [_box(node, node.name in used) for node in nodes.values()]
    xs, ys = [node.x for node in nodes.values()], [node.y for node in nodes.values()]
    x, y = (
        {"visible": False, "range": ends} for ends in ([min(xs) - 1.0, max(xs) + 1.0], [min(ys) - 0.75, max(ys) + 0.4])
    )
    ends = result.faithfulness.sel(replacement=result.replacement, part="circuit").values
    value, low, high = (in_percent(end, 0) for end in ends)
    can = int(result.space.everything().sum())
    title = (
        f"{result.model}: {result.found.size} of {can} edges bring back {value} [{low}, {high}] of the "
        f"{spoken(result.metrics[0])} ({result.what})"
    )
    lost = " and ".join(f"the {spoken(name)}" for name in result.metrics)
    what = "Labels: what is lost of" if len(edges) <= _MOST_LABELS else "Widths: the most that is lost of"
    note = f"Read upwards. {what} {lost} when the edge is cut ({result.replacement} ablation). Grey: not in the circuit"
    width = int(np.clip(_SLOT * (max(xs) - min(xs) + 2) + 100, 760, 1500))
    height = int(np.clip(_ROW * (max(ys) - min(ys) + 1.3) + 190, 460, 1500))
    return compose(
        [Panel(layers, x=x, y=y, marks=marks)], title, result.provenance, note=note, width=width, height=height,
        showlegend=True, legend={"y": 0, "itemwidth": 40}, margin={"l": 30, "b": 70}, meta={"least_width": width},
    )  # fmt: skip


@drawing(Circuit, "curve")
def curve(result: Circuit) -> go.Figure:
    """Faithfulness of the best circuit of each size, and of random circuits, on the pairs used for judging."""
    sizes, first, spread = result.curve["size"].values, spoken(result.metrics[0]), {0.0, 1.0}
    middle, low, high = (result.random_curve.sel(stat=stat).values for stat in ("value", "low", "high"))
    layers = [
        band(sizes, low, high, theme.GREY, f"random circuits, {first}, middle 95%"),
        line(sizes, middle, "their mean", theme.GREY, "dot"),
    ]
    for name, colour, symbol in zip(result.metrics, _CURVES, ("circle", "square", "diamond", "cross"), strict=False):
        values, low, high = (result.curve.sel(metric=name, stat=stat).values for stat in ("value", "low", "high"))
        spread.update((float(values.min()), float(values.max())))
        style: dict[str, Any] = {"symbol": symbol, "size": 7, "ends": (low, high)} | hover("{x} edges: {y:.3f}")
        layers.append(line(sizes, values, f"{result.found.method} search, {spoken(name)}", colour, **style))
    marks = [
        vline(result.found.size, f"the circuit, {result.found.size} edges", colour=theme.VERMILION),
        hline(1, dash="solid", colour=theme.LIGHT),
    ]
    y = {"title": "Faithfulness", "range": [max(min(spread), -1) - 0.15, min(max(spread), 2) + 0.2]}
    title = f"{result.model}: how many edges are needed ({result.what})"
    where = "pairs that were not searched on" if result.held_out else "the pairs that were searched on"
    note = f"{result.replacement.capitalize()} ablation, on {where}"
    return compose([Panel(layers, x="Edges kept", y=y, marks=marks)], title, result.provenance, note=note)


@drawing(AllCircuits)
def every_circuit(result: AllCircuits, most: int = 2_000) -> go.Figure:
    """Each circuit by its size and its worse faithfulness score; the ``most`` best ones, the minimal ones apart."""
    score, sizes = result.scores.min(0), result.sets.sum(1).numpy()
    best = np.argsort(-score, kind="stable")[:most]
    minimal = result.minimal_at
    rest = best[~np.isin(best, minimal) & np.isfinite(score[best])]
    said = hover("{x} " + result.by + "s: {y:.3f}")
    layers = [points(sizes[rest], score[rest], "circuits", theme.GREY, "circle-open", **said)]
    if minimal:
        layers.append(points(sizes[minimal], score[minimal], "minimal ones", theme.VERMILION, "diamond", **said))
    marks = [hline(result.threshold, dash="dash", colour=theme.LIGHT)]
    title = f"{result.model}: every circuit for {result.what}"
    panel = Panel(layers, x=f"{result.by.capitalize()}s", y="1 - |1 - F|, the worse of logits and answers", marks=marks)
    note = f"{result.replacement.capitalize()} ablation, faithful from {result.threshold:g}"
    return compose([panel], title, result.provenance, note=note)


# ---- the drawing


def _node_at(component: str, group: str | None) -> str:
    """The node's name: the component, or with groups its part at the positions of one group."""
    return component if group is None else f"{component}@{group}"


def _sender(edge: Edge) -> str:
    return _node_at(edge.sender, edge.group)


def _receivers(edge: Edge, edges: Sequence[Edge]) -> list[str]:
    """The nodes that read an edge. A head reads keys and values of a group wherever the circuit contains the head."""
    component, letter = part_and_input(edge.receiver)
    if edge.group is None or letter not in ("k", "v"):
        return [_node_at(component, edge.group)]
    return list(dict.fromkeys(_sender(other) for other in edges if other.sender == component))


def _layout(of: EdgeGraph, edges: Sequence[Edge]) -> list[_Node]:
    """The place of every part: x in slots, y in rows (embeddings, then heads and MLPs by layer, then the logits)."""
    inside = {name for edge in edges for name in (_sender(edge), *_receivers(edge, edges))}
    read = None if of.groups is None else next(g for g, places in of.groups.items() if max(of.read) in places)
    nodes, start = [], 0.0
    for group in (None,) if of.groups is None else of.groups:
        rows: dict[int, list[str]] = {}
        for component in (*of.senders, LOGITS):
            name, row = _node_at(component, group), _row(component, of)
            at_read = group == read and component != POS_EMBED  # elsewhere only parts of the circuit are shown
            if of.groups is None or component == EMBED or name in inside or at_read:
                rows.setdefault(row, []).append(component)
        width = max(len(row) for row in rows.values())
        width = max(width, 1 if of.groups is None else 2.2 if group == read else 1.3)
        for row, components in rows.items():
            for i, component in enumerate(components):
                apart = 2.0 if row == 0 and of.groups is None else 1.0
                x = start + (width - 1) / 2 + (i - (len(components) - 1) / 2) * apart
                nodes.append(_Node(_node_at(component, group), x, float(row), _name(component)))
        start += width
    return nodes


def _row(component: str, of: EdgeGraph) -> int:
    if component in (EMBED, POS_EMBED):
        return 0
    if component == LOGITS:
        return 1 + of.n_layers * (1 + of.has_mlp)
    layer, part, _ = read_part(component)
    return 1 + layer * (1 + of.has_mlp) + (part == "mlp")


def _name(component: str) -> str:
    return {EMBED: "token", POS_EMBED: "position"}.get(component, component)


def _box(node: _Node, inside: bool) -> Mark:
    """The box of a part of the model; it is grey outside the circuit."""
    text, size = (f"<b>{node.text}</b>" if inside else node.text), 12
    ink, border, ground = (theme.BLACK, theme.BLACK, "#E8F1FA") if inside else ("#9A9A9A", theme.LIGHT, "white")
    style: dict[str, Any] = {
        "borderpad": 5,
        "borderwidth": 1.5 if inside else 1,
        "bordercolor": border,
        "bgcolor": ground,
    }
    return label(node.x, node.y, text, size, ink, **style)


def _columns(of: EdgeGraph, nodes: dict[str, _Node]) -> list[Mark]:
    """Labels with the groups' names, below their columns."""
    marks = []
    for group in of.groups or ():
        xs = [node.x for name, node in nodes.items() if name.endswith(f"@{group}")]
        marks += [label((min(xs) + max(xs)) / 2, -0.5, f"<i>{group}</i>", colour=theme.GREY)] if xs else []
    return marks


def _edge(edge: Edge, ends: tuple[_Node, _Node], drops: xr.DataArray) -> tuple[go.Scatter, Mark]:
    """One edge as a curve, bent around the rows between its ends, and its label."""
    sender, receiver = ends
    letter = part_and_input(edge.receiver)[1]
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
    style: dict[str, Any] = {"opacity": 0.75, "line": {"simplify": False}, "legendgroup": legend} | hover("{text}")
    width = 1.2 + 8 * float(np.clip(np.abs(lost).max(), 0, 1))
    text = "<br>".join((f"<b>{edge.name}</b>, lost without it", *lines))
    layer = line(x, y, legend, colour, dash, width, text=[text] * len(t), **style)
    early = {"q": 0.35, "v": 0.62}.get(letter, 0.5)  # keeps the labels of a head's inputs apart
    at = int(len(t) * (0.66 if receiver.name.startswith(LOGITS) and rows > 2 else early))
    short = " · ".join(f"{in_percent(float(max(value, 0) if abs(value) < 0.005 else value), 0)}" for value in lost)
    return layer, label(x[at], y[at], short, 11, bgcolor="rgba(255,255,255,0.85)")
