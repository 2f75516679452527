"""Chunks of variants that are run together, and which rows and keys each variant takes from which run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.patching.patch_sites import Groups
from interp.core.places import as_slice

#: Up to this many numbers, cost depends on the number of operations and not on their size: old and new keys are joined.
FEW_NUMBERS = 2**15


@dataclass(frozen=True, eq=False)
class Chunk:
    """Groups of positions whose variants are run together.

    ``place``: the positions of the groups, if each has just one and they are consecutive. Rows from ``start``, the
    first changed position, are computed: ``rows`` of the sequence, without the first ``skip`` of the layer.
    ``touched``: the groups with a position among the rows, whose own queries change. With ``rides``, the last row of
    ``mask`` is empty: the unpatched run is one more variant.
    """

    groups: list[int]
    mask: Bool[Tensor, "group pos"]
    place: slice | None
    start: int
    rows: slice
    skip: int
    touched: list[int]
    is_small: bool
    rides: bool = False

    @cached_property
    def of_rows(self) -> Bool[Tensor, "group row 1"]:
        """Whether a row's position is in the group."""
        return self.mask[:, self.rows, None]

    @cached_property
    def queries(self) -> Int[Tensor, " query"]:
        """Indices of each variant's rows in the layer's old rows followed by its new ones."""
        n_rows, device = self.rows.stop - self.rows.start, self.mask.device
        row = self.skip + torch.arange(n_rows, device=device)
        return (row + self.of_rows[..., 0] * (self.skip + n_rows)).flatten()

    @cached_property
    def hidden(self) -> Float[Tensor, "query both_keys"]:
        """-inf where a row does not see an old key or, after these, a new one; of each pair it sees at most one."""
        keys = torch.arange(self.mask.shape[1], device=self.mask.device)
        seen = keys <= keys[self.rows, None]
        of_old, of_new = (~self.mask[:, None] & seen, self.mask[:, None] & seen)
        sees = torch.cat((of_old, of_new), -1).flatten(0, 1)
        return torch.zeros(sees.shape, device=sees.device).masked_fill(~sees, float("-inf"))

    def only(self, chosen: list[int]) -> Chunk:
        """A chunk of only the chosen groups, all of them touched."""
        return replace(
            self,
            groups=[self.groups[i] for i in chosen],
            mask=self.mask[as_slice(chosen)],
            place=None if self.place is None else _run_of([self.place.start + i for i in chosen]),
            touched=list(range(len(chosen))),
        )


@lru_cache(maxsize=64)
def chunks(
    groups: Groups,
    n_pos: int,
    first: int,
    low: int,
    stop: int,
    width: int,
    most: int,
    rides: bool,
    may_be_small: bool,
    device: torch.device,
) -> list[Chunk]:
    """Groups in chunks that are run together, ordered by their first position; groups after all reads are left out.

    Args:
        n_pos: number of positions that matter; ``first`` is the first that is read.
        low, stop: rows of the layer that anything later needs.
        width: numbers per row in the widest activation of one group's variants; ``most``: the limit for a chunk.
        rides: whether the unpatched run is a variant of the first chunk, if that is small.
        may_be_small: whether old and new keys may be joined.
    """
    places = [[p for p in group if p < n_pos] for group in groups.places]
    todo = sorted((group[0], i) for i, group in enumerate(places) if group)
    found = []
    while todo:
        start = min(todo[0][0], first)
        rows = slice(max(low, start), stop)
        numbers = width * (rows.stop - rows.start)
        chosen = [i for _, i in todo[: max(1, most // numbers)]]
        todo = todo[len(chosen) :]
        single = all(len(places[i]) == 1 for i in chosen)
        is_small = may_be_small and len(chosen) * numbers <= FEW_NUMBERS
        along = rides and is_small and not found
        mask = groups.mask[as_slice(chosen), :n_pos]
        found.append(
            Chunk(
                groups=chosen,
                mask=(torch.cat((mask, torch.zeros_like(mask[:1]))) if along else mask).to(device),
                place=_run_of([places[i][0] for i in chosen]) if single else None,
                start=start,
                rows=rows,
                skip=rows.start - low,
                touched=[g for g, i in enumerate(chosen) if any(rows.start <= p < rows.stop for p in places[i])],
                is_small=is_small,
                rides=along,
            )
        )
    return found


def _run_of(places: list[int]) -> slice | None:
    """Consecutive places as a slice, else None."""
    found = as_slice(places)
    return found if isinstance(found, slice) else None


def z_of_changed_values(
    pattern: Float[Tensor, "batch head group row key"], change: Float[Tensor, "batch key head d_head"], chunk: Chunk
) -> Float[Tensor, "batch group row head d_head"]:
    """What a change of the values at each group's keys adds to z."""
    if chunk.place is None:
        return weighted(pattern * chunk.mask[: len(chunk.groups), None, :], change)
    weight = pattern.diagonal(chunk.place.start, 2, 4)  # [batch, head, row, group]
    return weight.permute(0, 3, 2, 1)[..., None] * change[:, chunk.place, None]


def with_columns(
    old: Float[Tensor, "batch head row key"], new: Float[Tensor, "batch head row key"], chunk: Chunk
) -> Float[Tensor, "batch head group row key"]:
    """``old`` for each group, with the group's columns taken from ``new``."""
    if chunk.place is None:
        return torch.where(chunk.mask[: len(chunk.groups), None, :], new[:, :, None], old[:, :, None])
    out = old[:, :, None].repeat(1, 1, len(chunk.groups), 1, 1)  # a copy and few writes: much faster than torch.where
    out.diagonal(chunk.place.start, 2, 4).copy_(new[..., chunk.place])
    return out


def weighted(
    pattern: Float[Tensor, "batch head group row key"], v: Float[Tensor, "batch key head d_head"]
) -> Float[Tensor, "batch group row head d_head"]:
    """z from each group's pattern."""
    groups = pattern.shape[2]
    z = pattern.flatten(2, 3) @ v.transpose(1, 2)  # [batch, head, group * row, d_head]
    return z.unflatten(2, (groups, -1)).permute(0, 2, 3, 1, 4)
