"""The largest value that a linear functional of what attention writes takes over all problems of a node.

Let ``y = sum_h N_h / D_h`` be what the heads write, where N_h and D_h are sums over the letters of a problem. For a
functional c and any level l, ``F_h(l) = max (c . N_h - l D_h)`` over the paths of a node is a dynamic programme over
steps with the state, since the sum is additive. Then, for every path,

    c . N_h / D_h  <=  l + F_h(l) / min D_h    where F_h(l) > 0, and
    c . N_h / D_h  <=  l + F_h(l) / max D_h    elsewhere,

whatever l is; near the largest value, F_h is near zero and the bound tight (Dinkelbach, 1967). Levels start at the
largest value of some sampled paths, and go on by secants.

Heads are not at their largest values together. With b_h the bounds of single heads, ``c . N_h - b_h D_h`` is never
positive, so that ``c . y <= sum_h b_h + max sum_h (c . N_h - b_h D_h) / max D_h``: one more programme over all heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.proofs.enclosed import DOUBLE
from interp.proofs.query_paths import QueryPaths, VisibleStep
from interp.proofs.token_reading import Reading

PASSES = 2
CLOSE = 1e-9  # how far a level is put past its estimate, so that the last programme is hardly ever positive

Masks = Sequence[Bool[Tensor, "node option"]]


class Nodes:
    """Some nodes of one query, with the tables that programmes over them read.

    ``tables[k]`` is [head, option, d_head + 1]: what each option of step k adds to N_h and to D_h. Options that no
    node here allows are left out.
    """

    def __init__(self, paths: QueryPaths, reading: Reading, masks: Masks):
        self.paths, self.reading, self.masks = paths, reading, list(masks)
        self.n, self.heads = len(masks[0]), len(reading.weights)
        letters = torch.cat((reading.weights[..., None] * reading.values, reading.weights[..., None]), -1)
        self._letters = letters
        always = torch.tensor([reading.number[letter] for letter in paths.fixed], dtype=torch.int64)
        self.start = letters[:, always].sum(1)  # [head, d_head + 1]
        self.start[:, -1] += reading.sink
        self.kept = [mask.any(0).nonzero()[:, 0] for mask in self.masks]
        self.tables = [
            sum_of_letters(letters, reading, step, kept) for step, kept in zip(paths.steps, self.kept, strict=True)
        ]
        self.steps = [_Kept(step, kept) for step, kept in zip(paths.steps, self.kept, strict=True)]
        # Where all nodes allow all of the options that are kept, nothing needs to be masked.
        self.closed = [
            None if bool(mask[:, kept].all()) else torch.where(mask[:, kept].T, 0.0, -torch.inf).double()
            for mask, kept in zip(self.masks, self.kept, strict=True)
        ]

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
            nothing = None
            for after, found in enumerate(new):
                if found is None:
                    nothing = torch.full((groups, rows), -torch.inf, dtype=torch.float64) if nothing is None else nothing
                    new[after] = nothing
            state = torch.stack(new, 1)  # pyright: ignore[reportArgumentType]
        return state.amax(1)

    @cached_property
    def denominators(self) -> tuple[Float[Tensor, "head node"], Float[Tensor, "head node"]]:
        """(least, largest) D_h over each node's paths."""
        ends = []
        for sign in (-1.0, 1.0):
            values = [sign * table[..., -1:].expand(-1, -1, self.n) for table in self.tables]
            start = sign * self.start[:, -1:].expand(-1, self.n)
            ends.append(sign * self.programme(start.contiguous(), values))
        return ends[0] * (1 - 1e-12), ends[1] * (1 + 1e-12)

    @cached_property
    def sizes(self) -> Float[Tensor, "head d_head"]:
        """Upper bounds of the sum of magnitudes of all terms of N_h."""
        return self.start[:, :-1].abs() + sum(table[..., :-1].abs().amax(1) for table in self.tables)

    def sums(self, options: Int[Tensor, "node sample step"]) -> Float[Tensor, "head node sample d_head_and_1"]:
        """(N_h, D_h) of some paths."""
        found = self.start[:, None, None].expand(-1, *options.shape[:2], -1)
        for k, table in enumerate(self.every_table):
            found = found + table[:, options[..., k]]
        return found

    @cached_property
    def every_table(self) -> list[Float[Tensor, "head option d_head_and_1"]]:
        """As ``tables``, with all options."""
        return [
            sum_of_letters(self._letters, self.reading, step, torch.arange(len(step))) for step in self.paths.steps
        ]

    def largest(
        self, functionals: Float[Tensor, "node n d"], levels: Float[Tensor, "head node sample d_head"]
    ) -> Float[Tensor, "node n"]:
        """Upper bounds of ``c . y`` over each node's paths; ``levels`` are what heads write on some sampled paths.

        What float64 may be off by in the programmes is added.
        """
        h, (b, n, _), e = self.heads, functionals.shape, self.reading.W_O.shape[1]
        rows = b * n
        along = torch.einsum("hed,bnd->hebn", self.reading.W_O, functionals)  # each head's own functional
        level = torch.einsum("hebn,hbse->hbns", along, levels).amax(-1).reshape(h, rows)
        along = along.reshape(h, e, rows)
        least, most = (d.repeat_interleave(n, 1) for d in self.denominators)
        slack = (torch.einsum("he,her->hr", self.sizes, along.abs()), most)
        bound, last = torch.full((h, rows), torch.inf, dtype=torch.float64), None
        middle = (least + most) / 2
        for number in range(PASSES):
            if number == PASSES - 1:
                level = level + CLOSE * (1 + level.abs())
            weights = torch.cat((along, -level[:, None]), 1)
            start = torch.einsum("hk,hkr->hr", self.start, weights)
            found = self.programme(start, [torch.bmm(table, weights) for table in self.tables])
            off = (len(self.tables) + e + 8) * 4 * DOUBLE * (slack[0] + level.abs() * slack[1])
            found = found + off
            bound = torch.minimum(bound, level + found / torch.where(found > 0, least, most) * (1 + 8 * DOUBLE))
            slope = middle
            if last is not None:
                away = level - last[0]
                secant = (last[1] - found) / torch.where(away.abs() > 1e-14, away, torch.inf)
                slope = torch.where(secant > 0, torch.minimum(torch.maximum(secant, least), most), middle)
            last, level = (level, found), level + found / slope
        bound = torch.minimum(bound, self._means(along))
        total = bound.sum(0)
        if h > 1:
            scaled = torch.cat((along / most[:, None], -(bound / most)[:, None]), 1).flatten(0, 1)[None]
            start = torch.einsum("k,kr->r", self.start.flatten(), scaled[0])[None]
            side_by_side = [table.transpose(0, 1).flatten(1)[None] for table in self.tables]
            found = self.programme(start, [torch.bmm(table, scaled) for table in side_by_side])[0]
            off = (len(self.tables) + e * h + 8) * 4 * DOUBLE
            found = found + off * (slack[0] / most + bound.abs()).sum(0)
            total = total + found.clamp_max(0.0)
        total = total + 16 * DOUBLE * (h + 2) * bound.abs().sum(0)
        return total.view(b, n)

    def _means(self, along: Float[Tensor, "head d_head row"]) -> Float[Tensor, "head row"]:
        """The largest value of any letter, which no mean exceeds (nor zero, where something else has value zero)."""
        shown = self.reading.weights > 0
        values = torch.where(shown[..., None], self.reading.values, self.reading.values[:, :1] * 0)
        found = torch.bmm(values, along) + torch.where(shown, 0.0, -torch.inf)[..., None]
        most = found.amax(1)
        most = torch.where((self.reading.sink > 0)[:, None], most.clamp_min(0.0), most)
        return most + 1e-12 * torch.einsum("he,her->hr", self.reading.values.abs().amax(1), along.abs())


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


def sum_of_letters(
    letters: Float[Tensor, "head letter k"], reading: Reading, step: VisibleStep, kept: Int[Tensor, " option"]
) -> Float[Tensor, "head option k"]:
    """What each option of a step adds: the sum of its letters' rows."""
    found = torch.zeros(len(letters), len(kept), letters.shape[-1], dtype=torch.float64)
    for i, position in enumerate(step.positions):
        tokens = step.tokens[kept.numpy(), i].tolist()
        found = found + letters[:, [reading.number[position, token] for token in tokens]]
    return found
