"""The edge graph of :mod:`interp.causal.edges` as a space to search in.

An edge is live by position: it carries a difference only where its sender's positions get one, and only to positions
that its receiver reads. In the last layer queries, MLP and logits are read at the query alone, so that an edge from the
embedding to them is dead where the query's own token is the same in both runs. That an embedding is the same is looked
up. What later senders write is not: a circuit's runs mix both, and may change what neither whole run does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.causal.circuits.circuit_space import CircuitSpace
from interp.causal.edges import EdgeExperiment, EdgeGraph
from interp.causal.edges.edge_graph import LOGITS, part_and_input
from interp.causal.edges.masked_model import MaskedModel
from interp.causal.edges.sender_values import Writes
from models.errors import UserError
from models.tasks import ProblemPairs


def unchanged_embeddings(masked: MaskedModel, values: Writes, replacement: Writes) -> Bool[Tensor, "sender seen"]:
    """Where each embedding writes exactly what replaces it, in every example."""
    n, inputs = masked.graph.n_positions, 1 + masked.graph.has_positions
    same = torch.ones(inputs, n, dtype=torch.bool)
    for at in masked.batches(values.shape[1]):
        own, other = (run[:inputs, at] for run in (values, replacement))
        same = same & (own == other).all(-1).all(1).cpu()
    return same


@dataclass(frozen=True)
class _Run:
    """Neighbouring positions that are alike: what reaches one of them, and what one of them reaches, does so for all.

    ``first``: the first position alone. There is one key for its queries, whatever they ask.
    """

    number: int
    first: bool
    read: bool
    group: str | None
    unchanged: tuple[str, ...]  # embeddings


def _runs(graph: EdgeGraph, same: Bool[Tensor, "sender seen"]) -> list[_Run]:
    group_of = {place: name for name, places in (graph.groups or {}).items() for place in places}

    def kind(place: int) -> tuple[Any, ...]:
        unchanged = tuple(name for name, column in zip(graph.senders, same.T[place], strict=False) if column)
        return place == 0, place in graph.read, group_of.get(place), unchanged

    return [_Run(number, *of) for number, (of, _) in enumerate(groupby(range(graph.n_positions), kind))]


def space_of(experiment: EdgeExperiment) -> CircuitSpace:
    """The edges that a circuit of this model may keep, with what is known about them under this ablation."""
    consistent = experiment.kind in ("corrupted", "resample")
    return space_of_runs(experiment.masked, experiment.values, experiment.replacement, consistent)


def space_of_runs(masked: MaskedModel, values: Writes, replacement: Writes, consistent: bool) -> CircuitSpace:
    """The same of what the senders write and what replaces it; ``consistent``: that is one run of the model."""
    graph: Any = masked.graph
    runs = _runs(graph, unchanged_embeddings(masked, values, replacement))
    reads = [reader for stage in range(graph.n_stages) for reader in graph.reads(stage)]
    read_only = {name for names, only in reads if only for name in names}
    at = lambda node, run: f"{node}@{run.number}"  # noqa: E731
    reached = lambda receiver: [run for run in runs if run.read or receiver not in read_only]  # noqa: E731
    arcs = [
        (at(edge.sender, run), at(edge.receiver, run), i, edge.sender in run.unchanged)
        for i, edge in enumerate(graph.edges)
        for run in reached(edge.receiver)
        if edge.group == run.group
    ]
    links = []
    for receiver in graph.receivers:
        component, letter = part_and_input(receiver)
        for run in reached(receiver):
            if letter == "q" and not run.first:
                links.append((at(receiver, run), at(component, run)))
            elif letter in ("k", "v"):
                later = [other for other in runs[run.number :] if letter == "v" or not other.first]
                links += [(at(receiver, run), at(component, other)) for other in later]
            elif receiver == LOGITS:
                links.append((at(receiver, run), LOGITS))
    senders, receivers, of, inert = zip(*arcs, strict=True)
    return CircuitSpace(graph.names, senders, receivers, tuple(links), consistent, torch.tensor(inert), of)


def position_groups(
    pairs: ProblemPairs, groups: Mapping[str, Sequence[int]] | str | None
) -> Mapping[str, Sequence[int]] | None:
    """Groups of positions; "roles" are those relative to the pairs' target. Raises UserError for another word."""
    if not isinstance(groups, str):
        return groups
    if groups != "roles":
        raise UserError(f"groups is 'roles' or a mapping from names to positions, not {groups!r}.")
    return {name: places for name, places in pairs.task.relative_roles(pairs.target).items() if places}
