"""Chunks of groups of positions whose variants are run together, and which rows and keys each takes from which run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

#: Positions at which a variant differs, for each variant.
Groups = tuple[tuple[int, ...], ...]


def everywhere(n_pos: int) -> Groups:
    """One group of all positions."""
    return (tuple(range(n_pos)),)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Variants that are run together, from ``start``, the first changed position, on.

    Attributes:
        which: numbers of the groups.
        rows: the positions that are computed; ``skip``: how many rows of the layer are before them.
        mask: which positions a variant takes from the other sequence.
        of_rows: the same of its rows; None where no row is taken.
        queries: rows of each variant among the run's rows followed by the other's; ``keys``: the same of its keys.
        hidden: 0 where a row sees one of both sequences' keys, of which each position shows one; else -inf.
        place: the one position of each group, if each has one; the run's own variant is not among them.
        rides: whether the last variant has no positions, and so is the run itself; ``n`` counts it.
    """

    which: list[int]
    start: int
    rows: slice
    skip: int
    mask: Bool[Tensor, "variant pos"]
    of_rows: Bool[Tensor, "variant 1 row 1"] | None
    queries: Int[Tensor, " variant_and_row"]
    keys: Int[Tensor, " variant_and_pos"]
    hidden: Float[Tensor, "variant_and_row both_keys"]
    place: Int[Tensor, " group"] | None
    rides: bool

    @property
    def n(self) -> int:
        return len(self.mask)


@lru_cache(maxsize=128)
def chunks(
    groups: Groups,
    n_pos: int,
    first: int,
    rows: tuple[int, int],
    width: int,
    numbers: int,
    rides: bool,
    device: torch.device,
) -> list[Chunk]:
    """Groups ordered by their first position, in chunks; groups after all that is read are left out.

    Args:
        n_pos: number of positions that matter; ``first`` is the first that is read.
        rows: the layer's rows (from, to) that anything later needs.
        width: numbers per row in the widest activation of one group's variants; ``numbers``: the limit for a chunk.
        rides: whether the run itself is a variant of the first chunk.
    """
    with torch.inference_mode(False):  # else a later run with gradients could not save them
        return list(_chunks(groups, n_pos, first, rows, width, numbers, rides, device))


def _chunks(
    groups: Groups,
    n_pos: int,
    first: int,
    bounds: tuple[int, int],
    width: int,
    numbers: int,
    rides: bool,
    device: torch.device,
) -> Iterator[Chunk]:
    todo = sorted((min(group), i) for i, group in enumerate(groups) if group and min(group) < n_pos)
    keys = torch.arange(n_pos)
    while todo:
        start = min(todo[0][0], first)
        rows = slice(max(bounds[0], start), bounds[1])
        n_rows = rows.stop - rows.start
        chosen = [i for _, i in todo[: max(1, numbers // (width * n_rows))]]
        todo = todo[len(chosen) :]
        mask = torch.zeros(len(chosen) + rides, n_pos, dtype=torch.bool)
        for row, i in zip(mask, chosen, strict=False):
            row[[p for p in groups[i] if p < n_pos]] = True
        of_rows, skip = mask[:, rows], rows.start - bounds[0]
        seen = keys <= keys[rows, None]
        sees = torch.cat((~mask[:, None] & seen, mask[:, None] & seen), -1).flatten(0, 1)
        single = all(len(groups[i]) == 1 for i in chosen)
        yield Chunk(
            which=chosen,
            start=start,
            rows=rows,
            skip=skip,
            mask=mask.to(device),
            of_rows=of_rows[:, None, :, None].to(device) if bool(of_rows.any()) else None,
            queries=(skip + torch.arange(n_rows) + of_rows * (skip + n_rows)).flatten().to(device),
            keys=(keys + mask * n_pos).flatten().to(device),
            hidden=torch.zeros(sees.shape).masked_fill(~sees, float("-inf")).to(device),
            place=torch.tensor([groups[i][0] for i in chosen]).to(device) if single else None,
            rides=rides,
        )
        rides = False


@lru_cache(maxsize=128)
def read_by(
    groups: Groups, read: tuple[int, ...], device: torch.device
) -> tuple[list[int], Bool[Tensor, "touched 1 read 1"] | None]:
    """The groups that hold a position which is read, and which of them each holds; None if each holds all."""
    with torch.inference_mode(False):
        touched = [i for i, group in enumerate(groups) if set(group) & set(read)]
        table = torch.tensor([[p in groups[i] for p in read] for i in touched], dtype=torch.bool)
        return touched, None if bool(table.all()) else table[:, None, :, None].to(device)
