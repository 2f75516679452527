"""Sets of strings of different tokens: some places have a known token, and the others any tokens that are left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from math import perm

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

FREE = -1


@dataclass(frozen=True)
class Arrangements:
    """All strings with ``tokens`` at their places and, where these are :data:`FREE`, different tokens of a pool.

    Attributes:
        tokens: for each place, a token or FREE. pool: the tokens that free places may have, each at most once.
        answer: the right token, which is the same for all of the strings. source: the place that it is read from.
    """

    tokens: tuple[int, ...]
    pool: tuple[int, ...]
    answer: int
    source: int

    @property
    def free(self) -> list[int]:
        """The places without a known token."""
        return [place for place, token in enumerate(self.tokens) if token == FREE]

    @property
    def all_tokens(self) -> set[int]:
        """The tokens of all of the strings."""
        return {*self.tokens, *(self.pool if self.free else ())} - {FREE}

    def count(self) -> int:
        """How many strings there are."""
        return perm(len(self.pool), len(self.free))

    def by_place_of(self, token: int) -> list[Arrangements]:
        """The same strings, apart by where a token of the pool is: at each free place, or nowhere."""
        pool = tuple(other for other in self.pool if other != token)
        here: list[Arrangements] = [
            replace(self, tokens=_with(self.tokens, place, token), pool=pool) for place in self.free
        ]
        return here if len(pool) < len(self.free) else [*here, replace(self, pool=pool)]

    def strings(self) -> Int[Tensor, "n place"]:
        """All of them."""
        free = self.free
        rows = np.array(list(permutations(self.pool, len(free))), dtype=np.int64).reshape(self.count(), len(free))
        return self._filled(torch.from_numpy(rows))

    def sample(self, n: int, generator: torch.Generator) -> Int[Tensor, "n place"]:
        """Strings drawn uniformly."""
        order = torch.rand(n, len(self.pool), generator=generator).argsort(1)
        return self._filled(torch.tensor(self.pool, dtype=torch.int64)[order[:, : len(self.free)]])

    def _filled(self, rows: Int[Tensor, "n free"]) -> Int[Tensor, "n place"]:
        columns, known = iter(rows.T), torch.tensor(self.tokens)
        parts = [next(columns) if token == FREE else known[i].expand(len(rows)) for i, token in enumerate(self.tokens)]
        return torch.stack(parts, 1)


def _with(tokens: tuple[int, ...], place: int, token: int) -> tuple[int, ...]:
    return (*tokens[:place], token, *tokens[place + 1 :])
