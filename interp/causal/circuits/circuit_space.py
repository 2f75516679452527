"""The edges that a search may keep or ablate, and which subsets of them are different circuits.

Two masks can be the same circuit. An edge matters if kept edges lead to it from an input and from it to the logits: it
does nothing unless a path of kept edges leads from its receiver to the logits. Where the replacement values come from
one consistent run (a corrupted run, not zeros or means), an edge also does nothing unless a path of kept edges leads to
its sender from an embedding in which the runs differ: a node with only corrupted inputs computes its corrupted output
itself. :meth:`CircuitSpace.live` drops such edges, so a circuit is counted once and its size is the number of edges
that can matter. Nothing else is assumed: effects need not be monotone in the edges.
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

#: Edges up to which all subsets are made at once.
MOST_AT_ONCE = 20


@dataclass(frozen=True, eq=False)
class CircuitSpace:
    """Edges, called ``labels``, as arcs from node ``senders[a]`` to node ``receivers[a]``.

    An edge is one arc, or several that are kept and cut together: ``of[a]`` is the edge of arc ``a``, such as an edge
    at one of its positions. ``permanent`` arcs are in every circuit: they join a head's three inputs to the head.
    ``same_value_if_ablated[a]``: the arc carries the same value kept or ablated, so it never counts.
    ``replacement_from_one_run``: the replacement values are those of one run of the model.

    Raises:
        UserError: no edges, lists of different lengths, a repeated label, a cycle, or no arc into ``output``.
    """

    labels: tuple[str, ...]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    permanent: tuple[tuple[str, str], ...] = ()
    replacement_from_one_run: bool = False
    same_value_if_ablated: Bool[Tensor, " arc"] | None = None
    of: tuple[int, ...] | None = None
    output: str = "logits"

    def __post_init__(self) -> None:
        lengths = {len(self.labels if self.of is None else self.of), len(self.senders), len(self.receivers)}
        if self.same_value_if_ablated is not None:
            lengths.add(len(self.same_value_if_ablated))
        if len(lengths) > 1 or not self.labels or {*self._edge_of} - {*range(len(self.labels))}:
            raise UserError(f"A circuit's edges need a label, a sender and a receiver each; there are {lengths}.")
        if len(set(self.labels)) < len(self.labels):
            raise UserError("Every edge needs a name of its own.")
        ends = {*self.receivers, *(end for _, end in self.permanent)}
        known_name("output node", self.output, ends)
        _ = self.order

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes, each after all nodes that it reads from."""
        graph: dict[str, set[str]] = {}
        for sender, receiver in (*zip(self.senders, self.receivers, strict=True), *self.permanent):
            graph.setdefault(receiver, set()).add(sender)
            graph.setdefault(sender, set())
        try:
            return tuple(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise UserError(f"The edges go round in a circle: {' -> '.join(error.args[1])}.") from None

    @cached_property
    def _place(self) -> dict[str, int]:
        """Where every node stands in the order."""
        return {node: at for at, node in enumerate(self.order)}

    @property
    def _edge_of(self) -> Sequence[int]:
        """The edge of every arc."""
        return range(len(self.labels)) if self.of is None else self.of

    @cached_property
    def _inputs(self) -> set[str]:
        """Nodes whose own value can differ whatever is kept: those that read nothing, if ablated edges carry one run's
        values, and else all."""
        if not self.replacement_from_one_run:
            return {*self.order}
        return {*self.order} - {*self.receivers, *(end for _, end in self.permanent)}

    @cached_property
    def _arcs(self) -> list[tuple[str, str, int | None]]:
        """(sender, receiver, edge) of what can matter in some circuit; the edge is None for a permanent arc."""
        never = self.same_value_if_ablated
        unmoved = [False] * len(self.senders) if never is None else never.tolist()
        found: list[tuple[str, str, int | None]] = [(*link, None) for link in self.permanent]
        own = zip(self.senders, self.receivers, self._edge_of, unmoved, strict=True)
        found += [(sender, receiver, edge) for sender, receiver, edge, same in own if not same]
        found.sort(key=lambda arc: self._place[arc[1]])
        reachable_from_input, reaches_output = {*self._inputs}, {self.output}
        for sender, receiver, _ in found:
            reachable_from_input |= {receiver} if sender in reachable_from_input else set()
        for sender, receiver, _ in reversed(found):
            reaches_output |= {sender} if receiver in reaches_output else set()
        return [arc for arc in found if arc[0] in reachable_from_input and arc[1] in reaches_output]

    @cached_property
    def _into(self) -> dict[str, list[tuple[str, int | None]]]:
        """What every node reads that can matter, as (sender, edge); the edge is None for a permanent arc."""
        into: dict[str, list[tuple[str, int | None]]] = {node: [] for node in self.order}
        for sender, receiver, edge in self._arcs:
            into[receiver].append((sender, edge))
        return into

    def live(self, masks: Bool[Tensor, "*variant edge"]) -> Bool[Tensor, "*variant edge"]:
        """The masks without the edges that cannot change the output (see the module). The outputs are equal.

        Raises:
            UserError: the masks have another number of edges.
        """
        if masks.shape[-1] != len(self):
            raise UserError(f"These masks are over {masks.shape[-1]} edges, the circuit's space has {len(self)}.")
        off, on = torch.zeros_like(masks[..., 0]), torch.ones_like(masks[..., 0])
        present = lambda i: on if i is None else masks[..., i]  # noqa: E731
        reaches_output = {node: on if node == self.output else off for node in self.order}
        reachable_from_input = {node: on if node in self._inputs else off for node in self.order}
        for sender, receiver, edge in reversed(self._arcs):
            reaches_output[sender] = reaches_output[sender] | (present(edge) & reaches_output[receiver])
        for sender, receiver, edge in self._arcs:
            reachable_from_input[receiver] = reachable_from_input[receiver] | (
                present(edge) & reachable_from_input[sender]
            )
        matters = [off] * len(self)
        for sender, receiver, edge in self._arcs:
            if edge is not None:
                matters[edge] = matters[edge] | (reachable_from_input[sender] & reaches_output[receiver])
        return masks & torch.stack(matters, -1)

    def everything(self) -> Bool[Tensor, " edge"]:
        """The mask of the whole graph, without edges that never matter."""
        return self.live(torch.ones(len(self), dtype=torch.bool))

    def reverse_topological(self) -> list[int]:
        """Edges from the logits backwards: the latest receiver first, and among its edges the latest sender first."""
        steps = dict.fromkeys(self.order, 0)  # the most arcs that lead to a node
        arcs = [*zip(self.senders, self.receivers, strict=True), *self.permanent]
        for sender, receiver in sorted(arcs, key=lambda arc: self._place[arc[1]]):
            steps[receiver] = max(steps[receiver], steps[sender] + 1)
        latest = [(0, 0)] * len(self)
        for sender, receiver, edge in zip(self.senders, self.receivers, self._edge_of, strict=True):
            latest[edge] = max(latest[edge], (steps[receiver], steps[sender]))
        return sorted(range(len(self)), key=lambda i: (*latest[i], i), reverse=True)

    def circuits(self, at_most: int) -> tuple[Bool[Tensor, "circuit edge"], int]:
        """(circuits, size): every different circuit of up to ``size`` edges once, the smallest first, where ``size`` is
        the largest for which there are no more than ``at_most``; ``len(everything())`` if these are all.

        A circuit that is not empty is a smaller one and a chain of further edges, which starts at a node that something
        reaches and ends at one that reaches the output. So sizes are completed one after the other, from the empty
        circuit on. Cost: that of the circuits listed, not of the 2^edges subsets; where there is room for all subsets
        of at most twenty edges, these are made at once instead.
        """
        everything = int(self.everything().sum())
        if everything <= MOST_AT_ONCE and 2**everything <= at_most:
            return self._of_all_subsets(), everything
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

    def _of_all_subsets(self) -> Bool[Tensor, "circuit edge"]:
        """Every different circuit once, the smallest first."""
        edges = self.everything().nonzero()[:, 0]
        at = torch.arange(len(edges))
        found = []
        for bits in torch.arange(2 ** len(edges)).split(2**16):
            masks = torch.zeros(len(bits), len(self), dtype=torch.bool)
            masks[:, edges] = (bits[:, None] >> at & 1).bool()
            found.append((self.live(masks)[:, edges].long() << at).sum(1).unique())
        bits = torch.cat(found).unique()
        kept = (bits[:, None] >> at & 1).bool()
        masks = torch.zeros(len(bits), len(self), dtype=torch.bool)
        masks[:, edges] = kept
        return masks[kept.sum(1).argsort(stable=True)]

    def _extensions(self, circuit: int, length: int) -> set[int]:
        """Circuits, as bits, with a chain of ``length`` more edges."""
        has = lambda edge: edge is None or circuit >> edge & 1  # noqa: E731
        reaches_output, reachable_from_input = {self.output}, {*self._inputs}
        for node in reversed(self.order):
            if node in reaches_output:
                reaches_output |= {sender for sender, edge in self._into[node] if has(edge)}
        for node in self.order:
            if any(has(edge) and sender in reachable_from_input for sender, edge in self._into[node]):
                reachable_from_input.add(node)
        found = set[int]()

        def back(node: str, left: int, bits: int) -> None:
            """Put edges into ``node`` in front of a chain, until it is long enough and starts where something is. An
            edge that the circuit has may lie between them, at another of its arcs."""
            if not left:
                if node in reachable_from_input:
                    found.add(bits)
                return
            for sender, edge in self._into[node]:
                if edge is None or bits >> edge & 1:
                    back(sender, left, bits)
                else:
                    back(sender, left - 1, bits | 1 << edge)

        for node in reaches_output:
            back(node, length, circuit)
        return found

    @cached_property
    def _longest(self) -> int:
        """The number of edges of the longest path."""
        steps = dict.fromkeys(self.order, 0)
        for sender, receiver, edge in self._arcs:
            steps[receiver] = max(steps[receiver], steps[sender] + (edge is not None))
        return steps[self.output]

    def names(self, mask: Bool[Tensor, " edge"]) -> tuple[str, ...]:
        """The labels of the kept edges."""
        return tuple(self.labels[i] for i in mask.nonzero()[:, 0].tolist())

    def mask(self, labels: Sequence[str]) -> Bool[Tensor, " edge"]:
        """The mask that keeps the edges of these names. Raises UserError for an unknown name (with the closest)."""
        index = {label: i for i, label in enumerate(self.labels)}
        kept = [index[known_name("edge", label, index)] for label in labels]
        where: Int[Tensor, " kept"] = torch.tensor(kept, dtype=torch.long)
        return torch.zeros(len(self), dtype=torch.bool).index_fill(0, where, True)


def without_each(mask: Bool[Tensor, " edge"]) -> Bool[Tensor, "kept edge"]:
    """The circuit without each of its edges in turn, in the order of the edges."""
    kept = mask.nonzero()[:, 0]
    return mask.expand(len(kept), -1) & ~torch.eye(len(mask), dtype=torch.bool)[kept]


def jaccard(one: Bool[Tensor, " part"], other: Bool[Tensor, " part"]) -> float:
    """How much two sets overlap: the size of their intersection over that of their union, and 1 for two empty sets."""
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else 1.0
