"""Nodes in rows, and edges between them."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from interp.core.views import Graph, GraphEdge, GraphNode
from interp.figures import theme
from interp.figures.figure_panels import Mark, Panel, label
from interp.figures.traces import curve, hover

_KINDS = ((theme.BLUE, "dot"), (theme.ORANGE, "dash"), (theme.GREEN, "solid"), (theme.BLACK, "solid"))
_ROW, _SLOT = 110, 135  # pixels between rows, and between nodes of a row
_NODE, _LETTER = 0.22, 0.046  # slots: half of a node's width, and a letter of a label
_MOST_LABELS = 16  # edges


class _Place(NamedTuple):
    x: float
    y: float


def panel(view: Graph) -> Panel:
    """Boxes of nodes, and edges as curves: the wider, the more weight, with a colour and dash for each kind."""
    places = _layout(view)
    marks, layers = _groups(view, places), []
    for edge in view.edges:
        ends = places[edge.sender], places[edge.receiver]
        layer, said = _edge(edge, ends, view.kinds.index(edge.kind))
        layers.append(layer)
        marks += [said] if edge.text and len(view.edges) <= _MOST_LABELS else []
    marks += [_box(node, places[node.name]) for node in view.nodes]
    (x0, x1), (y0, y1) = _window(places)
    x, y = ({"visible": False, "range": ends} for ends in ([x0, x1], [y0, y1]))
    return Panel(layers, view.title, x, y, marks)


def _window(places: dict[str, _Place]) -> tuple[tuple[float, float], tuple[float, float]]:
    xs, ys = [place.x for place in places.values()], [place.y for place in places.values()]
    return (min(xs) - 1.0, max(xs) + 1.0), (min(ys) - 0.75, max(ys) + 0.4)


def height(view: Graph) -> float:
    _, (low, high) = _window(_layout(view))
    return float(np.clip(_ROW * (high - low), 270, 1300))


def width(view: Graph) -> int:
    """Pixels of the whole figure."""
    (low, high), _ = _window(_layout(view))
    return int(np.clip(_SLOT * (high - low) + 100, 760, 1500))


def _layout(view: Graph) -> dict[str, _Place]:
    """x in slots, y in rows; groups of nodes are columns side by side."""
    places, start = {}, 0.0
    for group in dict.fromkeys(node.group for node in view.nodes):
        rows = [
            list(of) for _, of in itertools.groupby((n for n in view.nodes if n.group == group), lambda node: node.row)
        ]
        wide = max(map(len, rows))
        for row in rows:
            for i, node in enumerate(row):
                apart = 2.0 if node.row == 0 and not group else 1.0
                x = start + (wide - 1) / 2 + (i - (len(row) - 1) / 2) * apart
                places[node.name] = _Place(x, float(node.row))
        start += max(wide, 1.3)
    return places


def _box(node: GraphNode, at: _Place) -> Mark:
    text = f"<b>{node.text}</b>" if node.inside else node.text
    ink, border, ground = ("#8A8A8A", theme.LIGHT, "white")
    if node.inside:
        ink, border, ground = theme.BLACK, theme.BLACK, "#E8F1FA"
    style = {"borderpad": 5, "borderwidth": 1.5 if node.inside else 1, "bordercolor": border, "bgcolor": ground}
    return label(at.x, at.y, text, 12, ink, **style)


def _groups(view: Graph, places: dict[str, _Place]) -> list[Mark]:
    marks = []
    for group in dict.fromkeys(node.group for node in view.nodes if node.group):
        xs = [places[node.name].x for node in view.nodes if node.group == group]
        marks.append(label((min(xs) + max(xs)) / 2, -0.5, f"<i>{group}</i>", colour=theme.GREY))
    return marks


def _edge(edge: GraphEdge, ends: tuple[_Place, _Place], kind: int) -> tuple[Any, Mark]:
    """An edge that bends around the rows between its ends, and its label."""
    sender, receiver = ends
    colour, dash = _KINDS[kind % len(_KINDS)]
    rows = receiver.y - sender.y
    aside = (-0.28, 0.0, 0.28, 0.0)[kind % 4]  # keeps parallel edges of several kinds apart
    if rows > 1 and abs(receiver.x - sender.x) < 1.5:
        clear = _NODE + _LETTER * len(edge.text) / 2  # its label stands beside the nodes that it goes around
        bow = -max(0.55, clear) if sender.y == 0 and sender.x <= receiver.x else max(0.42, clear)
        aside += bow * (rows - 1) ** 0.7
    t = np.linspace(0, 1, 61)
    x = sender.x + (receiver.x - sender.x) * t + 4 * aside * t * (1 - t)
    y = sender.y + rows * t
    style: dict[str, Any] = {"opacity": 0.75, "line": {"simplify": False}, "legendgroup": edge.kind} | hover("{text}")
    wide = 1.2 + 8 * min(max(edge.weight, 0.0), 1.0)
    layer = curve(x, y, edge.kind, colour, dash, wide, text=[edge.said] * len(t), **style)
    at = int(len(t) * (0.35, 0.5, 0.62, 0.5)[kind % 4])  # keeps the labels of a node's edges apart
    return layer, label(x[at], y[at], edge.text, 11, bgcolor="rgba(255,255,255,0.85)")
