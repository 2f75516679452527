"""The largest value that a linear functional of what attention writes takes over all problems of a node.

Let ``y = sum_h N_h / D_h`` be what the heads write, where N_h and D_h are sums over the placed tokens of a problem. For
a functional c and any level l, ``F_h(l) = max (c . N_h - l D_h)`` over the paths of a node is a dynamic programme over
steps with the state, since the sum is additive. Then, for every path,

    c . N_h / D_h  <=  l + F_h(l) / min D_h    where F_h(l) > 0, and
    c . N_h / D_h  <=  l + F_h(l) / max D_h    elsewhere,

whatever l is; near the largest value, F_h is near zero and the bound tight (Dinkelbach, 1967). Levels start at the
largest value of some sampled paths, and go on by secants.

Weights are relative to the largest one that the nodes allow, so that they may vanish in float64 beside it. What that
takes from N and D is an absolute term of F (``VANISHED``), so that F is positive where nothing is known of it. Where
min D may have lost its digits it counts as zero, and the first bound is infinite: then only the largest value of any
placed token bounds the mean, until the nodes are so small that their own largest weight is met on all of their paths.

Heads are not at their largest values together. With b_h the bounds of single heads, ``c . N_h - b_h D_h`` is never
positive, so that ``c . y <= sum_h b_h + max sum_h (c . N_h - b_h D_h) / max D_h``: one more programme over all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.machine.path_graph import QueryPaths, VisibleStep
from interp.proofs.machine.query_reading import QueryReading
from interp.proofs.numbers.rounding_errors import DOUBLE, LEAST, OWN, OWN_OF_RADII, VANISHED

PASSES = 2
CLOSE = 1e-9  # how far a level is put past its estimate, so that the last programme is hardly ever positive

#: (orthonormal directions [node, cut, d], least, largest): a node's further condition on what heads write.
Cuts = tuple[Float[Tensor, "node cut d"], Float[Tensor, "node cut"], Float[Tensor, "node cut"]]
Masks = Sequence[Bool[Tensor, "node option"]]


class Nodes:
    """Some nodes of one query, with the tables that programmes over them read.

    ``tables[k]`` is [head, option, d_head + 1]: what each option of step k adds to N_h and to D_h. Options that no
    node here allows are left out.
    """

    def __init__(self, paths: QueryPaths, reading: QueryReading, masks: Masks, cuts: Cuts | None = None):
        self.cuts = cuts
        self.paths, self.reading, self.masks = paths, reading, list(masks)
        self.n, self.heads = len(masks[0]), len(reading.exponents)
        self._always = torch.tensor([reading.number[pair] for pair in paths.fixed], dtype=torch.int64)
        self.kept = [mask.any(0).nonzero()[:, 0] for mask in self.masks]
        self.numbers = [reading.placed_of(step) for step in paths.steps]
        #: The weights of placed tokens and of softmax1's further key; those that no node has may be as large as any.
        self.weights, self.sink = reading.weights_beside(self._placed_met())
        placed = torch.cat((self.weights[..., None] * reading.values, self.weights[..., None]), -1)
        self._placed = placed
        sink = torch.nn.functional.pad(self.sink[:, None], (placed.shape[-1] - 1, 0))
        self.start = placed[:, self._always].sum(1) + sink  # [head, d_head + 1]
        self.tables = [sum_of_placed(placed, own[kept]) for own, kept in zip(self.numbers, self.kept, strict=True)]
        self.steps = [_Kept(step, kept) for step, kept in zip(paths.steps, self.kept, strict=True)]
        # Where all nodes allow all of the options that are kept, nothing needs to be masked.
        self.closed = [
            None if bool(mask[:, kept].all()) else torch.where(mask[:, kept].T, 0.0, -torch.inf).double()
            for mask, kept in zip(self.masks, self.kept, strict=True)
        ]

    def _placed_met(self) -> Int[Tensor, " placed"]:
        """The placed tokens of some path of a node."""
        return torch.cat(
            (self._always, *(own[kept].flatten() for own, kept in zip(self.numbers, self.kept, strict=True)))
        )

    def programme(
        self, start: Float[Tensor, "group row"], values: Sequence[Float[Tensor, "group option row"]]
    ) -> Float[Tensor, "group row"]:
        """The largest sum of values along a path, for each row; rows are [node x functional]."""
        groups, rows = start.shape
        state = start[:, None].expand(groups, self.paths.steps[0].states[0], rows)
        for step, closed, value in zip(self.steps, self.closed, values, strict=True):
            if closed is not None:
                apart = value.reshape(groups, len(closed), self.n, -1)
                value = (apart + closed[:, :, None]).reshape(groups, len(closed), rows)
            new: list[Tensor | None] = [None] * step.states[1]
            for before, after, part in step.groups:
                here = value[:, part].amax(1) + state[:, before]
                there = new[after]
                new[after] = here if there is None else torch.maximum(there, here)
            nowhere = torch.full((groups, rows), -torch.inf, dtype=torch.float64)
            state = torch.stack([nowhere if found is None else found for found in new], 1)
        return state.amax(1)

    @cached_property
    def denominators(self) -> tuple[Float[Tensor, "head node"], Float[Tensor, "head node"]]:
        """(least, largest) D_h over each node's paths."""
        ends = []
        for sign in (-1.0, 1.0):
            values = [sign * table[..., -1:].expand(-1, -1, self.n) for table in self.tables]
            start = sign * self.start[:, -1:].expand(-1, self.n)
            ends.append(sign * self.programme(start.contiguous(), values))
        least = ends[0] * (1 - OWN)
        # A sum of so small weights may have lost its digits; above that, what vanished is no share of it.
        return torch.where(least > LEAST, least, 0.0), ends[1] * (1 + OWN) + VANISHED

    @property
    def vanishing(self) -> Bool[Tensor, " node"]:
        """In which nodes a head's weights may all vanish beside the largest one that any of the nodes allows."""
        return (self.denominators[0] == 0).any(0)

    @property
    def has_single(self) -> bool:
        """Whether one of the nodes has a single path."""
        return bool(torch.stack([mask.sum(1) == 1 for mask in self.masks]).all(0).any())

    @cached_property
    def sizes(self) -> Float[Tensor, "head node d_head"]:
        """Upper bounds of the sum of magnitudes of all terms of N_h, for each node by its own options."""
        found = self.start[:, None, :-1].abs().expand(-1, self.n, -1)
        for table, closed in zip(self.tables, self.closed, strict=True):
            size = table[..., :-1].abs()
            if closed is None:
                found = found + size.amax(1)[:, None]
            else:
                found = found + torch.where((closed == 0).T[:, :, None], size[:, None], 0.0).amax(2)
        return found

    def _size_of(self, along: Float[Tensor, "head d_head row"]) -> Float[Tensor, "head row"]:
        """Upper bounds of the magnitudes of all terms of functionals."""
        h, e, rows = along.shape
        return torch.einsum("hbe,hebn->hbn", self.sizes, along.abs().view(h, e, self.n, -1)).reshape(h, rows)

    def written(self, options: Int[Tensor, "node sample step"]) -> Float[Tensor, "head node sample d_head"]:
        """What heads write on some paths, from weights relative to each path's own largest."""
        shape = options.shape[:2]
        varied = [own[option] for own, option in zip(self.numbers, options.unbind(-1), strict=True)]
        placed = torch.cat((self._always.expand(*shape, -1), *varied), -1)  # [node, sample, key]
        exponents = self.reading.exponents[:, placed]
        sink = self.reading.sink[:, None, None, None].expand(-1, *shape, 1)
        pattern = torch.cat((exponents, sink), -1).softmax(-1)[..., :-1]
        return (pattern[..., None, :] @ self.reading.values[:, placed])[..., 0, :]

    def sums(self, options: Int[Tensor, "node sample step"]) -> Float[Tensor, "head node sample d_head_and_1"]:
        """(N_h, D_h) of some paths."""
        found = self.start[:, None, None].expand(-1, *options.shape[:2], -1)
        for k, table in enumerate(self.every_table):
            found = found + table[:, options[..., k]]
        return found

    @cached_property
    def every_table(self) -> list[Float[Tensor, "head option d_head_and_1"]]:
        """As ``tables``, with all options."""
        return [sum_of_placed(self._placed, own) for own in self.numbers]

    def largest(
        self, functionals: Float[Tensor, "node n d"], levels: Float[Tensor, "head node sample d_head"]
    ) -> Float[Tensor, "node n"]:
        """Upper bounds of ``c . y`` over each node's paths; ``levels`` are what heads write on some sampled paths.

        Where a node's ``cuts`` say that ``u . y`` lies in an interval for some orthonormal directions u, c is taken
        apart into these directions and the rest: each part has its own largest value.
        """
        found = self._largest(functionals, levels)
        if self.cuts is None:
            return found
        u, low, high = self.cuts
        along = functionals @ u.mT  # [node, n, cut]
        apart = self._largest(functionals - along @ u, levels)
        parts = torch.maximum(along * low[:, None], along * high[:, None]).sum(-1)
        own = OWN * (along.abs() * (low.abs() + high.abs())[:, None]).sum(-1)
        return torch.minimum(found, apart + parts + own)

    def _largest(self, functionals: Tensor, levels: Tensor) -> Float[Tensor, "node n"]:
        h, (b, n, _), e = self.heads, functionals.shape, self.reading.W_O.shape[1]
        rows = b * n
        along = torch.einsum("hed,bnd->hebn", self.reading.W_O, functionals)  # each head's own functional
        level = torch.einsum("hebn,hbse->hbns", along, levels).amax(-1).reshape(h, rows)
        along = along.reshape(h, e, rows)
        bound = self.of_heads(along, level)
        total = bound.sum(0)
        if h > 1:
            most = self.denominators[1].repeat_interleave(n, 1)
            scaled = torch.cat((along / most[:, None], -(bound / most)[:, None]), 1).flatten(0, 1)[None]
            start = torch.einsum("k,kr->r", self.start.flatten(), scaled[0])[None]
            side_by_side = [table.transpose(0, 1).flatten(1)[None] for table in self.tables]
            found = self.programme(start, [torch.bmm(table, scaled) for table in side_by_side])[0]
            off = (len(self.tables) + e * h + 8) * 4 * DOUBLE
            size = self._size_of(along)
            # No term of the sum is positive over the reals, so that a positive bound of it, also an infinite one where
            # all weights vanish, may count as zero. NaN stays.
            lost = self._terms * VANISHED * (self._reach(along) + bound.abs()) / most
            found = found + (off * (size / most + bound.abs()) + lost).sum(0)
            total = total + found.clamp_max(0.0)
        total = total + 16 * DOUBLE * (h + 2) * bound.abs().sum(0)
        return total.view(b, n)

    def of_heads(
        self, along: Float[Tensor, "head d_head row"], level: Float[Tensor, "head row"]
    ) -> Float[Tensor, "head row"]:
        """Upper bounds of ``along . N_h / D_h`` for each head by itself, from guessed levels; rows are [node x n].

        What float64 may be off by in the programmes is added.
        """
        values = lambda weights: [torch.bmm(table, weights) for table in self.tables]  # noqa: E731
        sizes = self._size_of(along)

        def best(level: Tensor) -> Tensor:
            weights = torch.cat((along, -level[:, None]), 1)
            return self.programme(torch.einsum("hk,hkr->hr", self.start, weights), values(weights))

        return torch.minimum(self._from_levels(best, level, sizes, self._reach(along)), self._means(along))

    @property
    def _terms(self) -> int:
        """At most how many placed tokens a path has, with softmax1's further key."""
        return len(self._always) + sum(len(step.positions) for step in self.paths.steps) + 1

    def _reach(self, along: Float[Tensor, "head d_head row"]) -> Float[Tensor, "head row"]:
        """The largest magnitude of any placed token's value along functionals."""
        return torch.einsum("he,her->hr", self.reading.values.abs().amax(1), along.abs())

    def _from_levels(
        self,
        best: Callable[[Tensor], Tensor],
        level: Float[Tensor, "head row"],
        sizes: Float[Tensor, "head row"],
        reach: Float[Tensor, "head row"],
    ) -> Float[Tensor, "head row"]:
        """The bound of a ratio from ``best(l)``, the largest ``N - l D``. ``sizes`` bound the magnitudes of N's terms,
        and ``reach`` the values that weights multiply in them."""
        n, e = level.shape[1] // self.n, self.reading.W_O.shape[1]
        least, most = (d.repeat_interleave(n, 1) for d in self.denominators)
        bound, last = torch.full_like(level, torch.inf), None
        middle = (least + most) / 2
        for number in range(PASSES):
            if number == PASSES - 1:
                level = level + CLOSE * (1 + level.abs())
            off = (len(self.tables) + e + 8) * 4 * DOUBLE * (sizes + level.abs() * most)
            # What vanished of N and D is not relative to them. So found > 0 wherever it may be, and found / 0 is inf.
            off = off + self._terms * VANISHED * (reach + level.abs() + 1)
            found = best(level) + off
            bound = torch.minimum(bound, level + found / torch.where(found > 0, least, most) * (1 + 8 * DOUBLE))
            slope = middle
            if last is not None:
                away = level - last[0]
                secant = (last[1] - found) / torch.where(away.abs() > 1e-14, away, torch.inf)
                slope = torch.where(secant > 0, torch.minimum(torch.maximum(secant, least), most), middle)
            last, level = (level, found), level + found / slope
        return bound

    def mixed_off(self, levels: Float[Tensor, "head node sample d_head"]) -> Float[Tensor, "node head d_head"]:
        """How far what heads write, ``z``, may be off by rounding on any of each node's paths.

        A weight that is off by a factor 1 + t moves the mean z by ``t p (v - z)``, p being its share. z lies within h
        of r, the middle of its range over the node. So z is off by at most the largest mean of ``eta_j (|v_j - r| + h)
        + rad_j``, which is one more programme.
        """
        reading, (h, _, _, e), b = self.reading, levels.shape, self.n
        both = torch.cat((torch.eye(e), -torch.eye(e)), 1).double()  # [d_head, 2 d_head]
        along = both[None, :, None].expand(h, -1, b, -1).reshape(h, e, b * 2 * e)
        level = torch.cat((levels, -levels), -1).amax(2).reshape(h, b * 2 * e)
        ends = self.of_heads(along, level).view(h, b, 2, e)
        middle, half = (ends[:, :, 0] - ends[:, :, 1]) / 2, (ends[:, :, 0] + ends[:, :, 1]) / 2 * (1 + OWN)
        half = half.clamp_min(0.0) + 1e-15 * middle.abs()
        away = (reading.values[:, :, None] - middle[:, None]).abs() + half[:, None]  # [head, placed, node, d_head]
        errors = reading.eta[..., None, None] * away + reading.rad[:, :, None]
        ofsink = reading.eta.amax(1)[:, None] * (middle.abs() + half).flatten(1)
        reach = torch.maximum(errors.flatten(2).amax(1), ofsink)
        errors = (self.weights[..., None, None] * errors).flatten(2)  # [head, placed, row]
        sink = self.sink[:, None] * ofsink
        start = errors[:, self._always].sum(1) + sink
        each = [sum_of_placed(errors, own[kept]) for own, kept in zip(self.numbers, self.kept, strict=True)]
        sizes = start + sum(value.amax(1) for value in each)
        weights = [table[..., -1:] for table in self.tables]

        def best(level: Tensor) -> Tensor:
            values = [value - level[:, None] * weight for value, weight in zip(each, weights, strict=True)]
            return self.programme(start - level * self.start[:, -1:], values)

        least, most = self.denominators
        level = sizes / ((least + most) / 2).repeat_interleave(e, 1)
        return self._from_levels(best, level, sizes, reach).view(h, b, e).transpose(0, 1) * (1 + OWN_OF_RADII)

    def _means(self, along: Float[Tensor, "head d_head row"]) -> Float[Tensor, "head row"]:
        """The largest value of what a head sees, which no mean exceeds; softmax1's further key has zero."""
        shown = self.reading.shown
        values = torch.where(shown[..., None], self.reading.values, self.reading.values[:, :1] * 0)
        found = torch.bmm(values, along) + torch.where(shown, 0.0, -torch.inf)[..., None]
        most = found.amax(1)
        most = torch.where(self.reading.sink.isfinite()[:, None], most.clamp_min(0.0), most)
        return most + OWN * self._reach(along)


class _Kept:
    """A step with some of its options, in its order."""

    def __init__(self, step: VisibleStep, kept: Int[Tensor, " option"]):
        self.states, number = step.states, torch.full((len(step),), -1)
        number[kept] = torch.arange(len(kept))
        self.groups = []
        for before, after, part in step.groups:
            own = number[part]
            own = own[own >= 0]
            if len(own):
                self.groups.append((before, after, slice(int(own[0]), int(own[-1]) + 1)))


def sum_of_placed(
    placed: Float[Tensor, "head placed k"], numbers: Int[Tensor, "option position"]
) -> Float[Tensor, "head option k"]:
    """What each option of a step adds: the sum of its placed tokens' rows."""
    found = torch.zeros(len(placed), len(numbers), placed.shape[-1], dtype=torch.float64)
    for own in numbers.T:
        found = found + placed[:, own]
    return found
