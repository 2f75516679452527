"""The edge graph of :mod:`interp.causal.edges` as a space to search in."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.causal.circuits.circuit_space import Space
from interp.causal.edges import EdgeExperiment, EdgeGraph
from interp.causal.edges.graph import EMBED, LOGITS, POS_EMBED, part_and_input
from interp.causal.edges.masked import MaskedModel
from interp.causal.edges.written import Writes


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


def inert_edges(masked: MaskedModel, values: Writes, replacement: Writes) -> Bool[Tensor, " edge"]:
    """Edges from embeddings that write exactly what replaces it, in every example, at the edge's positions."""
    graph, n, inputs = masked.graph, masked.graph.n_positions, 1 + masked.graph.has_positions
    same = torch.ones(inputs, n, dtype=torch.bool)
    for at in masked.batches(values.shape[1]):
        own, other = (run[:inputs, at] for run in (values, replacement))
        same &= (own == other).all(-1).all(1).cpu()
    inert = torch.zeros(len(graph), dtype=torch.bool)
    for i, edge in enumerate(graph.edges):
        if edge.sender in (EMBED, POS_EMBED):
            places = list(range(n)) if edge.group is None or graph.groups is None else list(graph.groups[edge.group])
            inert[i] = same[graph.senders.index(edge.sender), places].all()
    return inert


def space_of(experiment: EdgeExperiment) -> Space:
    """The edges that a circuit of this model may keep, with what is known about them under this ablation."""
    consistent = experiment.kind in ("corrupted", "resample")
    return space_of_runs(experiment.masked, experiment.values, experiment.replacement, consistent)


def space_of_runs(masked: MaskedModel, values: Writes, replacement: Writes, consistent: bool) -> Space:
    """The same of what the senders write and what replaces it; ``consistent``: that is one run of the model."""
    graph: Any = masked.graph
    return Space(
        labels=graph.names,
        senders=tuple(node_at(edge.sender, edge.group) for edge in graph.edges),
        receivers=tuple(node_at(edge.receiver, edge.group) for edge in graph.edges),
        links=links(graph),
        consistent=consistent,
        inert=inert_edges(masked, values, replacement),
    )
