"""The edges that a search may keep or ablate, and which subsets of them are different circuits.

Two masks can be the same circuit. An edge does nothing unless a path of kept edges leads from its receiver to the
logits. Where the replacement values come from one consistent run (a corrupted run, not zeros or means), an edge also
does nothing unless a path of kept edges leads to its sender from an embedding in which the runs differ: a node with
only corrupted inputs computes its corrupted output itself. :meth:`Space.live` drops such edges, so a circuit is counted
once and its size is the number of edges that can matter. Nothing else is assumed: effects need not be monotone in the
edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError, known_name


@dataclass(frozen=True, eq=False)
class Space:
    """Edge ``i`` runs from node ``senders[i]`` to node ``receivers[i]`` and is called ``labels[i]``.

    ``links`` are permanent: they join a head's three inputs to the head. ``inert[i]``: the edge carries the same value
    kept or ablated, so it never counts. ``consistent``: the replacement values are those of one run of the model.

    Raises:
        UserError: no edges, lists of different lengths, a repeated label, a cycle, or no edge into ``output``.
    """

    labels: tuple[str, ...]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    links: tuple[tuple[str, str], ...] = ()
    consistent: bool = False
    inert: Bool[Tensor, " edge"] | None = None
    output: str = "logits"

    def __post_init__(self) -> None:
        lengths = {len(self.labels), len(self.senders), len(self.receivers)}
        if self.inert is not None:
            lengths.add(len(self.inert))
        if len(lengths) > 1 or not self.labels:
            raise UserError(f"A circuit's edges need a label, a sender and a receiver each; there are {lengths}.")
        if len(set(self.labels)) < len(self.labels):
            raise UserError("Every edge needs a name of its own.")
        ends = {*self.receivers, *(end for _, end in self.links)}
        known_name("output node", self.output, ends)
        _ = self.order

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes, each after all nodes that it reads from."""
        graph: dict[str, set[str]] = {}
        for sender, receiver in (*zip(self.senders, self.receivers, strict=True), *self.links):
            graph.setdefault(receiver, set()).add(sender)
            graph.setdefault(sender, set())
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise UserError(f"The edges go round in a circle: {' -> '.join(error.args[1])}.") from None

    @cached_property
    def _into(self) -> dict[str, list[tuple[str, int | None]]]:
        """What every node reads, as (sender, edge); the edge is None for a link."""
        into: dict[str, list[tuple[str, int | None]]] = {node: [] for node in self.order}
        for i, (sender, receiver) in enumerate(zip(self.senders, self.receivers, strict=True)):
            into[receiver].append((sender, i))
        for sender, receiver in self.links:
            into[receiver].append((sender, None))
        return into

    def live(self, masks: Bool[Tensor, "*variant edge"]) -> Bool[Tensor, "*variant edge"]:
        """The masks without the edges that cannot change the output (see the module). The outputs are equal.

        Raises:
            UserError: the masks have another number of edges.
        """
        if masks.shape[-1] != len(self):
            raise UserError(f"These masks are over {masks.shape[-1]} edges, the circuit's space has {len(self)}.")
        kept = masks if self.inert is None else masks & ~self.inert
        off, on = torch.zeros_like(kept[..., 0]), torch.ones_like(kept[..., 0])
        present = lambda i: on if i is None else kept[..., i]  # noqa: E731
        reaches = {node: on if node == self.output else off for node in self.order}
        for node in reversed(self.order):
            for sender, i in self._into[node]:
                reaches[sender] = reaches[sender] | (present(i) & reaches[node])
        kept = kept & torch.stack([reaches[node] for node in self.receivers], -1)
        if not self.consistent:
            return kept
        fed = {node: off if self._into[node] else on for node in self.order}
        for node in self.order:
            for sender, i in self._into[node]:
                fed[node] = fed[node] | (present(i) & fed[sender])
        return kept & torch.stack([fed[node] for node in self.senders], -1)

    def everything(self) -> Bool[Tensor, " edge"]:
        """The mask of the whole graph, without edges that never matter."""
        return self.live(torch.ones(len(self), dtype=torch.bool))

    def reverse_topological(self) -> list[int]:
        """Edges from the logits backwards: the latest receiver first, and among its edges the latest sender first."""
        place = {node: i for i, node in enumerate(self.order)}
        return sorted(range(len(self)), key=lambda i: (-place[self.receivers[i]], -place[self.senders[i]], i))

    def circuits(self, at_most: int) -> tuple[Bool[Tensor, "circuit edge"], int]:
        """(circuits, size): every different circuit of up to ``size`` edges once, the smallest first, where ``size`` is
        the largest for which there are no more than ``at_most``; ``len(everything())`` if these are all.

        A circuit that is not empty is a smaller one and a chain of further edges, which starts at a node that something
        reaches and ends at one that reaches the output. So sizes are completed one after the other, from the empty
        circuit on. Cost: that of the circuits listed, not of the 2^edges subsets.
        """
        everything = int(self.everything().sum())
        by_size: list[set[int]] = [{0}]
        while len(by_size) <= everything:
            size, found = len(by_size), set[int]()
            room = at_most - sum(map(len, by_size))
            for length in range(1, min(size, self._longest) + 1):
                for circuit in by_size[size - length]:
                    found |= self._extensions(circuit, length)
                    if len(found) > room:
                        break
                if len(found) > room:
                    break
            if len(found) > room:
                break
            by_size.append(found)
        listed = [bits for circuits in by_size for bits in sorted(circuits)]
        rows = [[bits >> edge & 1 for edge in range(len(self))] for bits in listed]
        return torch.tensor(rows, dtype=torch.bool).reshape(len(rows), len(self)), len(by_size) - 1

    def _extensions(self, circuit: int, length: int) -> set[int]:
        """Circuits, as bits, with a chain of ``length`` more edges."""
        has = lambda edge: edge is None or circuit >> edge & 1  # noqa: E731
        reaches, fed = {self.output}, {node for node in self.order if not self.consistent or not self._into[node]}
        for node in reversed(self.order):
            if node in reaches:
                reaches |= {sender for sender, edge in self._into[node] if has(edge)}
        for node in self.order:
            if any(has(edge) and sender in fed for sender, edge in self._into[node]):
                fed.add(node)
        found = set[int]()

        def back(node: str, left: int, bits: int) -> None:
            """Put edges into ``node`` in front of a chain, until it is long enough and starts where something is."""
            if not left:
                if node in fed:
                    found.add(bits)
                return
            for sender, edge in self._into[node]:
                if edge is None:
                    back(sender, left, bits)
                elif self.may_matter >> edge & 1 and not bits >> edge & 1:
                    back(sender, left - 1, bits | 1 << edge)

        for node in reaches:
            back(node, length, circuit)
        return found

    @cached_property
    def _longest(self) -> int:
        """The number of edges of the longest path."""
        steps: dict[str, int] = {}
        for node in self.order:
            steps[node] = max((steps[sender] + (edge is not None) for sender, edge in self._into[node]), default=0)
        return steps[self.output]

    @cached_property
    def may_matter(self) -> int:
        """The edges of :meth:`everything`, as bits."""
        return sum(1 << edge for edge in self.everything().nonzero()[:, 0].tolist())

    def names(self, mask: Bool[Tensor, " edge"]) -> tuple[str, ...]:
        """The labels of the kept edges."""
        return tuple(self.labels[i] for i in mask.nonzero()[:, 0].tolist())

    def mask(self, labels: Sequence[str]) -> Bool[Tensor, " edge"]:
        """The mask that keeps the edges of these names. Raises UserError for an unknown name (with the closest)."""
        index = {label: i for i, label in enumerate(self.labels)}
        kept = [index[known_name("edge", label, index)] for label in labels]
        where: Int[Tensor, " kept"] = torch.tensor(kept, dtype=torch.long)
        return torch.zeros(len(self), dtype=torch.bool).index_fill(0, where, True)


def jaccard(one: Bool[Tensor, " part"], other: Bool[Tensor, " part"]) -> float:
    """How much two sets overlap: the size of their intersection over that of their union, and 1 for two empty sets."""
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else 1.0
