"""The edge graph of :mod:`interp.causal.edges` as a space to search in."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.causal.circuits.circuit_space import Space
from interp.causal.edges import EdgeExperiment, EdgeGraph
from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, part_and_input


def node_at(component: str, group: str | None) -> str:
    """The node's name: the component, or with groups its part at the positions of one group."""
    return component if group is None else f"{component}@{group}"


def links(graph: EdgeGraph) -> tuple[tuple[str, str], ...]:
    """Nodes that are always joined: a head's queries at a group of positions with the head there, its keys and values
    with the head at every group that has a position at or after one of theirs, and the logits of all groups."""
    groups = {None: tuple(range(graph.n_positions))} if graph.groups is None else dict(graph.groups)
    found = []
    for receiver in graph.receivers:
        component, letter = part_and_input(receiver)
        for group, places in groups.items():
            port = node_at(receiver, group)
            if letter == "q":
                found.append((port, node_at(component, group)))
            elif letter:
                found += [(port, node_at(component, g)) for g, later in groups.items() if max(later) >= min(places)]
            elif receiver == LOGITS and group is not None:
                found.append((port, LOGITS))
    return tuple(found)


def inert_edges(experiment: EdgeExperiment) -> Bool[Tensor, " edge"]:
    """Edges from embeddings that write exactly the same in both runs of every pair, at the edge's positions."""
    graph, n, inputs = experiment.graph, experiment.graph.n_positions, 1 + experiment.graph.has_positions
    same = torch.ones(inputs, n, dtype=torch.bool)
    for at in experiment.masked.batches(len(experiment)):
        own, other = (run[:inputs, at] for run in (experiment.values, experiment.replacement))
        same &= (own == other).all(-1).all(1).cpu()
    inert = torch.zeros(len(graph), dtype=torch.bool)
    for i, edge in enumerate(graph.edges):
        if edge.sender in (EMBED, POS_EMBED):
            places = list(range(n)) if edge.group is None or graph.groups is None else list(graph.groups[edge.group])
            inert[i] = same[graph.senders.index(edge.sender), places].all()
    return inert


def space_of(experiment: EdgeExperiment) -> Space:
    """The edges that a circuit of this model may keep, with what is known about them under this ablation."""
    graph: Any = experiment.graph
    return Space(
        labels=graph.names,
        senders=tuple(node_at(edge.sender, edge.group) for edge in graph.edges),
        receivers=tuple(node_at(edge.receiver, edge.group) for edge in graph.edges),
        links=links(graph),
        consistent=experiment.kind in ("corrupted", "resample"),
        inert=inert_edges(experiment),
    )
