"""The parts of a model as nodes of a circuit's graph: embeddings, heads and MLPs by layer, and the logits."""

from __future__ import annotations

from collections.abc import Sequence

from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, Edge, EdgeGraph, part_and_input
from interp.core.views import Node
from models.transformer.part_names import read_part


def node_name(component: str, group: str | None) -> str:
    """The component, or with groups its part at the positions of one group."""
    return component if group is None else f"{component}@{group}"


def receiving_nodes(edge: Edge, edges: Sequence[Edge]) -> list[str]:
    """The nodes that read an edge. A head reads keys and values of a group wherever the circuit contains the head."""
    component, letter = part_and_input(edge.receiver)
    if edge.group is None or letter not in ("k", "v"):
        return [node_name(component, edge.group)]
    return list(dict.fromkeys(node_name(e.sender, e.group) for e in edges if e.sender == component))


def circuit_nodes(of: EdgeGraph, edges: Sequence[Edge]) -> list[Node]:
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
                nodes.append(Node(name, _row(component, of), text, group or "", name in inside))
    return nodes


def _row(component: str, of: EdgeGraph) -> int:
    if component in (EMBED, POS_EMBED):
        return 0
    if component == LOGITS:
        return 1 + of.n_layers * (1 + of.has_mlp)
    layer, part, _ = read_part(component)
    return 1 + layer * (1 + of.has_mlp) + (part == "mlp")
