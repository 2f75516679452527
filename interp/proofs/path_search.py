"""Branch and bound over what queries see: every class is bounded, and what stays open is split.

A node whose right token is not proved to lead is split at the step whose options differ most in what matters: in what
they add to the neurons' inputs, weighted by what the activations' lines lose there, and in the lead's own functional.
Nodes with few paths are run one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.functional_extremes import Nodes, sum_of_letters
from interp.proofs.margin_bounds import Bounds, MarginBounds
from interp.proofs.query_paths import QueryPaths
from interp.proofs.token_reading import Reading
from interp.proofs.watch import check_time

SAMPLES = 32  # paths of a node that guesses come from
FEW_PATHS = 64  # nodes with at most so many visible paths are run one by one
ROWS = 2**21  # numbers at a time in a programme
#: Nodes of a class that are bounded in each round, so that hard classes wait until easy ones are done.
ROUNDS = (1, 32, 256, 2048, 2**40)

Masks = list[Bool[Tensor, " option"]]


@dataclass(eq=False)
class PathClass:
    """The problems of a query with one right token (and the same states around it), and how far their proof is.

    ``open`` are nodes that are not proved yet; ``bound`` is the least margin proved of the others. ``wrong`` says that a
    path has a lead of zero or less, or one so small that rounding may turn it: ``lowest``, with the lead ``sampled``.
    """

    paths: QueryPaths
    reading: Reading
    label: int
    open: list[Masks]
    bound: float = float("inf")
    nodes: int = 0
    sampled: float = float("inf")
    lowest: Int[Tensor, " step"] | None = None
    wrong: bool = False

    @property
    def answer(self) -> int:
        return self.paths.labels[self.label].answer

    def problem(self) -> Int[Tensor, " operand"]:
        """The problem with the least lead that was met, or any of the class."""
        if self.lowest is None:
            return self.paths.example(self.open[0])
        return self.paths.problem(self.lowest)

    @property
    def proved(self) -> bool:
        return not self.open and not self.wrong


@dataclass(eq=False)
class PathSearch:
    """Branch and bound over the classes of some queries."""

    layers: MarginBounds
    classes: list[PathClass]
    #: No more nodes than these are bounded for a class; a caller may lower it during the search.
    limit: float = float("inf")
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def run(self) -> Iterator[PathClass]:
        """Search until every class is proved or found wrong, or the time is up. Yields a class with each wrong path;
        whoever reads on goes on with the others."""
        for most in ROUNDS:
            for group in self._groups():
                active = group
                while active := [one for one in active if one.open and not one.wrong and one.nodes < min(most, self.limit)]:
                    check_time()
                    batch = self._taken(active, most)
                    yield from self._bound(batch)

    def _groups(self) -> list[list[PathClass]]:
        """Classes of the same query."""
        found: dict[int, list[PathClass]] = {}
        for one in self.classes:
            found.setdefault(id(one.paths), []).append(one)
        return list(found.values())

    def _taken(self, active: list[PathClass], most: int) -> list[tuple[PathClass, Masks]]:
        """The next open nodes of some classes of one query, as many as fit."""
        paths, reading = active[0].paths, active[0].reading
        functionals = max(2 * self.layers.reads, 2 * len(reading.base)) + 32
        size = functionals * len(reading.weights) * max((len(step) for step in paths.steps), default=1)
        room, taken = max(1, ROWS // size), []
        for one in active:
            while one.open and len(taken) < room and one.nodes < most:
                taken.append((one, one.open.pop()))
                one.nodes += 1
        return taken

    def _bound(self, batch: list[tuple[PathClass, Masks]]) -> Iterator[PathClass]:
        paths, reading = batch[0][0].paths, batch[0][0].reading
        masks = [torch.stack(part) for part in zip(*(node for _, node in batch), strict=True)]
        nodes = Nodes(paths, reading, masks)
        answers = torch.tensor([one.answer for one, _ in batch])
        found = self.layers.of(nodes, answers, paths.sample(masks, SAMPLES, self.generator))
        counts = paths.path_counts(masks)[0].sum(1)
        for i, (one, node) in enumerate(batch):
            if float(found.sampled[i]) < one.sampled:
                one.sampled, one.lowest = float(found.sampled[i]), found.sample[i]
            if float(found.margin[i]) > 0:
                one.bound = min(one.bound, float(found.margin[i]))
            elif float(found.sampled[i]) <= 0:
                one.wrong = True
                one.open.append(node)
                yield one
            elif float(counts[i]) > FEW_PATHS or not self._run(one, node, nodes, float(found.charge[i])):
                if float(counts[i]) > 1 and one.sampled > 0:
                    one.open += self._split(nodes, i, node, found)
                    continue
                one.wrong = True
                one.open.append(node)
                yield one

    def _run(self, one: PathClass, node: Masks, nodes: Nodes, charge: float) -> bool:
        """Compute every path of a small node, and take from each lead what rounding may. Whether all are right."""
        options = one.paths.all_paths(node)
        sums = nodes.sums(options[None])
        x = one.reading.base + torch.einsum("hse,hed->sd", (sums[..., :-1] / sums[..., -1:])[:, 0], one.reading.W_O)
        lead, _, scale = self.layers.leads(x, torch.full((len(x),), one.answer))
        # The computed stream is another one than x; what that moves is part of the charge.
        least = lead.amin(1)
        proved = least - charge / scale * (1 + 1e-9)
        at = int(least.argmin())
        if float(least[at]) < one.sampled:
            one.sampled, one.lowest = float(least[at]), options[at]
        if not bool((proved > 0).all()):
            return False
        one.bound = min(one.bound, float(proved.min()))
        return True

    def _split(self, nodes: Nodes, i: int, node: Masks, found: Bounds) -> list[Masks]:
        """Two halves of a node, without paths in common."""
        paths, reading, layers = nodes.paths, nodes.reading, self.layers
        samples = nodes.sums(paths.sample([mask[None] for mask in node], SAMPLES, self.generator))[:, 0]
        middle, total = (samples[..., :-1] / samples[..., -1:]).mean(1), samples[..., -1].mean(1)
        through = found.functional[i][:, None] * 0.1
        if layers.has_mlp:
            through = torch.cat((through, layers.G * (found.loose[i] / found.scale[i])), 1)
        best, chosen = -1.0, None
        for k, (step, mask) in enumerate(zip(paths.steps, node, strict=True)):
            kept = mask.nonzero()[:, 0]
            if len(kept) < 2:
                continue
            added = nodes.every_table[k][:, kept]
            moved = (added[..., :-1] - added[..., -1:] * middle[:, None]) / total[:, None, None]
            spread = torch.einsum("hoe,hed->od", moved, reading.W_O) @ through
            reach = float((spread.amax(0) - spread.amin(0)).norm())
            if reach > best:
                best, chosen = reach, (k, kept, spread)
        assert chosen is not None  # a node with one path is run
        k, kept, spread = chosen
        away = spread - spread.mean(0)
        direction = torch.linalg.svd(away, full_matrices=False)[2][0] if best > 0 else torch.zeros(away.shape[1]).double()
        along = away @ direction
        left = along <= (along.min() + along.max()) / 2
        if bool(left.all()):  # all alike: in the middle
            left = torch.arange(len(kept)) < len(kept) // 2
        halves = []
        for part in (kept[left], kept[~left]):
            mask = torch.zeros_like(node[k]).index_fill(0, part, True)
            half = paths.tidy([m[None] if j != k else mask[None] for j, m in enumerate(node)])
            if bool(paths.possible(half)[0]):
                halves.append([m[0] for m in half])
        return halves


def classes_of(paths: QueryPaths, reading: Reading) -> list[PathClass]:
    """The classes of a query, each as one open node."""
    roots = paths.roots
    return [PathClass(paths, reading, label, [[mask[label] for mask in roots]]) for label in range(len(paths.labels))]
