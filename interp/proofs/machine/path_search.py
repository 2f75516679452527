"""Branch and bound over what queries see: every class is bounded, and what stays open is split.

A node whose right token is not proved to lead is split in two. Mostly it is split by its options, at the step where
these differ most in what matters: in what they add to the neurons' inputs, weighted by what the activations' lines lose
there, and in the lead's own functional. Where many steps matter alike and heads write along few directions, it is split
by what they write: in one half a functional of it is at most its middle value, in the other at least. Of a node with
few paths each is bounded alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.machine.margin_bounds import Bounds, margin_bounds
from interp.proofs.machine.path_graph import QueryPaths
from interp.proofs.machine.post_attention import AfterAttention
from interp.proofs.machine.query_reading import QueryReading
from interp.proofs.machine.ratio_extremes import Cuts, Nodes
from interp.proofs.verdict.time_limit import check_time, watched

SAMPLES = 32  # paths of a node that guesses come from
FEW_PATHS = 8  # nodes with at most so many visible paths are taken apart
ROWS = 2**21  # numbers at a time in a programme
#: Nodes of a class that are bounded in each round, so that hard classes wait until easy ones are done.
ROUNDS = (1, 32, 256, 2048, 2**40)
#: What is written is split where no step has more than this share of what all steps add together.
ALIKE = 0.35
MOST_CUTS = 3  # directions of what is written that a node may be split along
#: Of all leads that were met, the least one times this is what the least proved margin should reach, if that is cheap.
CLOSE = 0.9
EXTRA_SHARE = 0.25  # and how many nodes may be bounded for that, as a share of those of the proof
#: After a wrong answer, classes that are still open get so many nodes each.
AFTER_REFUTATION = 64
NODES_AFTER_REFUTATION = 1024  # nodes of all classes with a wrong path, see below


@dataclass(frozen=True, eq=False)
class PathNode:
    """Some paths of a query: options for every step; and directions u of what heads write, with the interval in which
    ``u . y`` lies. ``bound`` is what was proved of its margin, if anything."""

    masks: tuple[Bool[Tensor, " option"], ...]
    cuts: tuple[tuple[Float[Tensor, " d"], float, float], ...] = ()
    bound: float = float("-inf")


@dataclass(eq=False)
class PathClass:
    """The problems of a query with one right token (and the same states around it), and how far their proof is.

    ``done`` are nodes that are proved; ``open`` those that are not, or that are looked at again for a larger bound.
    ``failed`` are single paths that are not proved: with a lead of zero or less, or one that rounding may turn.
    ``wrong`` says that a path has a lead of zero or less: ``lowest``, with the lead ``sampled``.
    """

    paths: QueryPaths
    reading: QueryReading
    label: int
    open: list[PathNode]
    done: list[PathNode] = field(default_factory=list)
    failed: list[PathNode] = field(default_factory=list)
    nodes: int = 0
    sampled: float = float("inf")
    lowest: Int[Tensor, " step"] | None = None
    wrong: bool = False

    @property
    def answer(self) -> int:
        return self.paths.labels[self.label].answer

    @property
    def bound(self) -> float:
        """The least margin proved of its nodes."""
        return min((node.bound for node in (*self.done, *self.open)), default=float("inf"))

    @property
    def unproved(self) -> list[PathNode]:
        """The nodes of which nothing is proved."""
        return [*self.failed, *(node for node in self.open if not node.bound > 0)]

    @property
    def proved(self) -> bool:
        return not self.unproved and not self.wrong


@dataclass(eq=False)
class PathSearch:
    """Branch and bound over the classes of some queries."""

    layers: AfterAttention
    classes: list[PathClass]
    #: What a node's margin should exceed, and for how many nodes more that is tried where it is positive anyway.
    target_margin: float = 0.0
    extra_nodes: int = 0
    #: No more nodes than these are bounded for a class.
    limit: float = float("inf")
    #: How many nodes of all classes with a wrong path may still be bounded, to see what else of them is right.
    nodes_after_refutation: int = NODES_AFTER_REFUTATION
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def after_refutation(self) -> None:
        """What else is right gets little time, for the share that is proved."""
        self.limit = AFTER_REFUTATION

    def run(self) -> Iterator[PathClass]:
        """Search until every path is proved or has failed, or the time is up. Yields each class once a path of it is
        wrong; whoever reads on goes on with the others."""
        for most in ROUNDS:
            yield from self._bound_all(most)
        # The proof is complete. Some more work may raise its least margin.
        if self.classes and all(one.proved for one in self.classes):
            self.target_margin = CLOSE * min(one.sampled for one in self.classes)
            self.extra_nodes = int(EXTRA_SHARE * sum(one.nodes for one in self.classes))
            for one in self.classes:
                one.open = [node for node in one.done if node.bound < self.target_margin]
                one.done = [node for node in one.done if node.bound >= self.target_margin]
            yield from self._bound_all(ROUNDS[-1])

    def _bound_all(self, most: int) -> Iterator[PathClass]:
        """Bound open nodes until their classes have ``most``."""
        for group in watched(grouped(self.classes), "proving", "query"):
            while active := [one for one in group if self._goes_on(one, most)]:
                if self.target_margin and self.extra_nodes <= 0:
                    return  # what is not looked at again for a larger bound is proved as it is
                check_time()
                yield from self._bound(self._taken(active, most))

    def _goes_on(self, one: PathClass, most: int) -> bool:
        """Whether more nodes of a class are to be bounded."""
        return (
            bool(one.open) and one.nodes < min(most, self.limit) and (not one.wrong or self.nodes_after_refutation > 0)
        )

    def _taken(self, active: list[PathClass], most: int) -> list[tuple[PathClass, PathNode]]:
        """The next open nodes of some classes of one query, as many as fit."""
        paths, reading = active[0].paths, active[0].reading
        functionals = max(2 * self.layers.reads, 2 * len(reading.base)) + 32
        size = functionals * len(reading.exponents) * max((len(step) for step in paths.steps), default=1)
        room, taken = max(1, ROWS // size), []
        for one in active:
            own = one.open[::-1][: min(room - len(taken), int(most) - one.nodes)]
            taken += [(one, node) for node in own]
        return taken

    def _bound(self, batch: list[tuple[PathClass, PathNode]]) -> Iterator[PathClass]:
        """Bound some open nodes of a query. A node is open until what replaces it is there, so that an interruption
        loses none."""
        paths, reading = batch[0][0].paths, batch[0][0].reading
        masks = [torch.stack(part) for part in zip(*(node.masks for _, node in batch), strict=True)]
        nodes = Nodes(paths, reading, masks, cuts_of([node for _, node in batch]))
        if len(batch) > 1 and bool((vanishing := nodes.vanishing).any()):  # their weights are on a scale of their own
            together = [one for one, lost in zip(batch, vanishing, strict=True) if not lost]
            alone = [[one] for one, lost in zip(batch, vanishing, strict=True) if lost]
            for part in [together, *alone] if together else alone:
                yield from self._bound(part)
            return
        answers = torch.tensor([one.answer for one, _ in batch])
        found = margin_bounds(self.layers, nodes, answers, paths.sample(masks, SAMPLES, self.generator))
        counts = paths.path_counts(masks)[0].sum(1).tolist()
        self.extra_nodes -= len(batch)
        self.nodes_after_refutation -= sum(one.wrong for one, _ in batch)
        for i, ((one, node), count) in enumerate(zip(batch, counts, strict=True)):
            one.nodes += 1
            if float(found.sampled[i]) < one.sampled:
                one.sampled, one.lowest = float(found.sampled[i]), found.sample[i]
            margin = max(float(found.margin[i]), node.bound)
            if margin > self.target_margin or (margin > 0 and (self.extra_nodes <= 0 or count == 1)):
                one.done.append(replace(node, bound=margin))
            elif count == 1:
                one.failed.append(node)
            elif count <= FEW_PATHS:
                one.open += [PathNode(path, bound=margin) for path in masks_of(paths, paths.all_paths(node.masks))]
            else:
                one.open += self._split(nodes, i, replace(node, bound=margin), found)
            one.open.remove(node)
            if one.sampled <= 0 and not one.wrong:
                one.wrong = True
                yield one

    def _split(self, nodes: Nodes, i: int, node: PathNode, found: Bounds) -> list[PathNode]:
        """Two nodes that have all paths of this one together."""
        paths, reading, layers = nodes.paths, nodes.reading, self.layers
        options = paths.sample([mask[None] for mask in node.masks], SAMPLES, self.generator)
        written, total = nodes.written(options)[:, 0], nodes.sums(options)[:, 0, :, -1].mean(1)
        middle = written.mean(1)
        through = found.functional[i][:, None] * 0.1
        if layers.has_mlp:
            through = torch.cat((through, layers.G * (found.loose[i] / found.scale[i])), 1)
        reaches, spreads = torch.zeros(len(paths.steps)), []
        for k, mask in enumerate(node.masks):
            added = nodes.every_table[k][:, mask]
            moved = (added[..., :-1] - added[..., -1:] * middle[:, None]) / total[:, None, None]
            spread = torch.einsum("hoe,hed->od", moved, reading.W_O) @ through
            spreads.append(spread)
            reaches[k] = (spread.amax(0) - spread.amin(0)).norm() if len(spread) > 1 else -1.0
        k = int(reaches.argmax())
        if float(reaches[k]) < ALIKE * float(reaches.clamp_min(0).sum()) and few_directions(reading):
            y = torch.einsum("hse,hed->sd", written, reading.W_O)
            if (halves := self._cut(nodes, node, y, through)) is not None:
                return halves
        kept = node.masks[k].nonzero()[:, 0]
        left = _lower_half(spreads[k])
        halves = []
        for part in (kept[left], kept[~left]):
            mask = torch.zeros_like(node.masks[k]).index_fill(0, part, True)
            half = paths.pruned([m[None] if j != k else mask[None] for j, m in enumerate(node.masks)])
            if bool(paths.possible(half)[0]):
                halves.append(PathNode(tuple(m[0] for m in half), node.cuts, node.bound))
        return halves

    def _cut(self, nodes: Nodes, node: PathNode, y: Tensor, through: Tensor) -> list[PathNode] | None:
        """The node in two by a functional of what heads write, along the direction that matters most; or None where
        that cannot be cut further. Directions are orthonormal, so that a functional is taken apart by its products."""
        matters = principal((y - y.mean(0)) @ through)
        u = through @ matters
        basis = basis_of(nodes.reading)
        u = basis.T @ (basis @ u)
        known = torch.stack([cut[0] for cut in node.cuts]) if node.cuts else u.new_zeros(0, len(u))
        rest = u - known.T @ (known @ u)
        if len(known) < MOST_CUTS and float(rest.norm()) > 0.1 * float(u.norm()):
            u = rest / rest.norm()
            u = u - known.T @ (known @ u)
            one = Nodes(nodes.paths, nodes.reading, [mask[None] for mask in node.masks], cuts_of([node]))
            options = nodes.paths.sample([mask[None] for mask in node.masks], SAMPLES, self.generator)
            high, low = one.largest(torch.stack((u, -u))[None], nodes.written(options))[0].tolist()
            cuts, which = [*node.cuts, (u, -low, high)], len(known)
        elif node.cuts:
            cuts = list(node.cuts)
            which = int(torch.tensor([(high - low) * float((u @ c).abs()) for c, low, high in cuts]).argmax())
        else:
            return None
        u, low, high = cuts[which]
        middle = (low + high) / 2
        if not low < middle < high:
            return None
        ends = ((low, middle), (middle, high))
        return [PathNode(node.masks, (*cuts[:which], (u, *end), *cuts[which + 1 :]), node.bound) for end in ends]


def principal(rows: Float[Tensor, "row n"]) -> Float[Tensor, " n"]:
    """The direction in which rows are longest; any direction where that cannot be found, as no bound depends on it."""
    try:
        return torch.linalg.svd(rows.nan_to_num(0.0, 0.0, 0.0), full_matrices=False)[2][0]
    except RuntimeError:
        return torch.eye(rows.shape[1], dtype=rows.dtype)[0]


def basis_of(reading: QueryReading) -> Float[Tensor, "direction d"]:
    """An orthonormal basis of what heads can write."""
    written = torch.einsum("hle,hed->hld", reading.values, reading.W_O).flatten(0, 1).nan_to_num(0.0, 0.0, 0.0)
    try:
        _, values, vectors = torch.linalg.svd(written, full_matrices=False)
    except RuntimeError:
        return torch.eye(written.shape[1], dtype=torch.float64)
    return vectors[values > 1e-9 * values[0]]


def few_directions(reading: QueryReading) -> bool:
    """Whether heads write along so few directions that intervals along them say where all that is written lies."""
    return len(basis_of(reading)) <= MOST_CUTS


def _lower_half(spread: Float[Tensor, "option n"]) -> Bool[Tensor, " option"]:
    """Options below the middle of the direction in which they differ most."""
    away = spread - spread.mean(0)
    along = away @ principal(away)
    left = along <= (along.min() + along.max()) / 2
    # Where options do not differ, or not by numbers, halves are as good as any.
    return torch.arange(len(left)) < len(left) // 2 if bool(left.all()) or not bool(left.any()) else left


def masks_of(paths: QueryPaths, options: Int[Tensor, "path step"]) -> list[tuple[Bool[Tensor, " option"], ...]]:
    """The masks of single paths."""
    return [
        tuple(torch.arange(len(step)) == option for step, option in zip(paths.steps, path, strict=True))
        for path in options
    ]


def cuts_of(nodes: list[PathNode]) -> Cuts | None:
    """The cuts of some nodes side by side; where a node has fewer, directions are zero."""
    most = max(len(node.cuts) for node in nodes)
    if not most:
        return None
    d = next(len(node.cuts[0][0]) for node in nodes if node.cuts)
    nothing = (torch.zeros(d, dtype=torch.float64), 0.0, 0.0)
    rows = [[*node.cuts, *[nothing] * (most - len(node.cuts))] for node in nodes]
    directions = torch.stack([torch.stack([cut[0] for cut in row]) for row in rows])
    ends = torch.tensor([[cut[1:] for cut in row] for row in rows], dtype=torch.float64)
    return directions, ends[..., 0], ends[..., 1]


def problems_of(classes: Sequence[PathClass]) -> Int[Tensor, "class operand"]:
    """For some classes of one query the problem with the least lead that was met, or the first one of the class."""
    paths = classes[0].paths
    rows = [
        [torch.arange(len(step)) == at for step, at in zip(paths.steps, one.lowest, strict=True)]
        if one.lowest is not None
        else one.open[0].masks
        for one in classes
    ]
    return paths.examples([torch.stack(part) for part in zip(*rows, strict=True)])


def grouped(classes: Sequence[PathClass]) -> list[list[PathClass]]:
    """Classes of the same query side by side."""
    found: dict[int, list[PathClass]] = {}
    for one in classes:
        found.setdefault(id(one.paths), []).append(one)
    return list(found.values())


def classes_of(paths: QueryPaths, reading: QueryReading) -> list[PathClass]:
    """The classes of a query, each as one open node."""
    roots = paths.roots
    return [
        PathClass(paths, reading, label, [PathNode(tuple(mask[label] for mask in roots))])
        for label in range(len(paths.labels))
    ]
