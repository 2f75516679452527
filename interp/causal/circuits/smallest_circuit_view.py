"""Pictures of a circuit: its graph, with parts of the model as nodes by layer, and its faithfulness by size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from interp.causal.circuits.smallest_circuit import Circuit
from interp.causal.edges.edge_graph import EMBED, LOGITS, POS_EMBED, Edge, EdgeGraph, part_and_input
from interp.causal.metrics import spoken
from interp.core.drawings import drawing
from interp.core.views import Curves, Graph, GraphEdge, GraphNode, Line, Picture, Series
from models.number_format import in_percent
from models.transformer import read_part


def node_name(component: str, group: str | None) -> str:
    """The component, or with groups its part at the positions of one group."""
    return component if group is None else f"{component}@{group}"


def receiving_nodes(edge: Edge, edges: Sequence[Edge]) -> list[str]:
    """The nodes that read an edge. A head reads keys and values of a group wherever the circuit contains the head."""
    component, letter = part_and_input(edge.receiver)
    if edge.group is None or letter not in ("k", "v"):
        return [node_name(component, edge.group)]
    return list(dict.fromkeys(node_name(e.sender, e.group) for e in edges if e.sender == component))


def circuit_nodes(of: EdgeGraph, edges: Sequence[Edge]) -> list[GraphNode]:
    """Every part in its row; in groups that are not read, only the token and the parts of the circuit."""
    ends = (name for edge in edges for name in (node_name(edge.sender, edge.group), *receiving_nodes(edge, edges)))
    inside = set(ends)
    read = None if of.groups is None else next(g for g, places in of.groups.items() if max(of.read) in places)
    nodes = []
    for group in (None,) if of.groups is None else of.groups:
        for component in (*of.senders, LOGITS):
            name = node_name(component, group)
            at_read = group == read and component != POS_EMBED
            if of.groups is None or component == EMBED or name in inside or at_read:
                text = {EMBED: "token", POS_EMBED: "position"}.get(component, component)
                nodes.append(GraphNode(name, _row(component, of), text, group or "", name in inside))
    return nodes


def _row(component: str, of: EdgeGraph) -> int:
    if component in (EMBED, POS_EMBED):
        return 0
    if component == LOGITS:
        return 1 + of.n_layers * (1 + of.has_mlp)
    layer, part, _ = read_part(component)
    return 1 + layer * (1 + of.has_mlp) + (part == "mlp")


_KINDS = {"q": "into queries", "k": "into keys", "v": "into values", "": "into the MLP or the logits"}


@drawing(Circuit)
def circuit_view(result: Circuit) -> Picture:
    """The circuit as a graph, with layers upwards and, with groups, a column per group of positions. An edge's width is
    the largest of its drops in the metrics, which its label lists."""
    of = result.graph
    edges = [of.edges[of.index(name)] for name in result.edges]
    drawn = []
    for edge in edges:
        drops = result.drops.sel(edge=edge.name)
        lost = drops.sel(stat="value").values
        said = [
            f"{spoken(str(name))}: {value:.3f} [{low:.3f}, {high:.3f}]"
            for name, (value, low, high) in zip(drops.metric.values, drops.values, strict=True)
        ]
        text = " · ".join(in_percent(float(max(v, 0) if abs(v) < 0.005 else v), 0) for v in lost)
        said = "<br>".join((f"<b>{edge.name}</b>, lost without it", *said))
        kind = _KINDS[part_and_input(edge.receiver)[1]]
        for receiver in receiving_nodes(edge, edges):
            sender = node_name(edge.sender, edge.group)
            drawn.append(GraphEdge(sender, receiver, kind, float(np.abs(lost).max()), text, said))
    lost = " and ".join(f"the {spoken(name)}" for name in result.metrics)
    note = f"Read upwards. Labels and widths: what is lost of {lost} when the edge is cut. Grey: not in the circuit"
    return Picture([Graph(kinds=tuple(_KINDS.values()), nodes=circuit_nodes(of, edges), edges=drawn)], note=note)


@drawing(Circuit, "curve")
def faithfulness_view(result: Circuit) -> Picture:
    """Faithfulness of the best circuit of each size, and of random circuits, on the pairs used for judging."""
    sizes, first = result.curve["size"].values, spoken(result.metrics[0])
    found = [
        Series(
            f"{result.found.method} search, {spoken(name)}", sizes,
            *(result.curve.sel(metric=name, stat=stat).values for stat in ("value", "low", "high")),
        )
        for name in result.metrics
    ]  # fmt: skip
    random = (result.random_curve.sel(stat=stat).values for stat in ("value", "low", "high"))
    series = [*found, Series(f"random circuits, {first}, middle 95%", sizes, *random, control=True)]
    lines = (Line(result.found.size, f"the circuit, {result.found.size} edges", "x"), Line(1))
    note, title = f"{result.replacement.capitalize()} ablation", "Faithfulness of circuits by their number of edges"
    curves = Curves("edges kept", "faithfulness", "", series, "share", lines, bands=True)
    return Picture([curves], title=title, note=note)
