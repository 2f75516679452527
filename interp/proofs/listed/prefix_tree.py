"""The nodes that a causal model's forward pass over a small domain has, each prefix of a problem once.

What a causal model computes at a position depends on the tokens up to there. The problems of a domain share their first
tokens, so that there are far fewer pairs (position, prefix) than problems times positions: 31,110 in place of 60,000
for two-digit addition, 131,070 in place of 1,048,576 for strings of 16 bits. Each such pair is a node here.

Where positions are ids that a task derives from the tokens (coupled positions), a node is a prefix of tokens and ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from models.tasks import Task

ROWS = 1024  # problems at a time, so that their nodes' activations stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Rows:
    """Problems sorted by their tokens: what a model reads, and what it should answer.

    Attributes:
        index: the problems' numbers in the domain.
        ids: the position ids of each token.
    """

    index: Int[Tensor, " n"]
    tokens: Int[Tensor, "n pos"]
    ids: Int[Tensor, "n pos level"]
    targets: Int[Tensor, "n target"]
    queries: tuple[int, ...]

    @classmethod
    def of(cls, task: Task) -> Rows:
        """All problems of a task, sorted; ``index`` says which problem each row is."""
        problems = task.domain.every()
        tokens, last = task.encode(problems), max(task.query_positions) + 1
        ids = task.position_ids(tokens)[:, :last]
        tokens = tokens[:, :last]
        keys = torch.cat((tokens[..., None], ids), -1).flatten(1)
        order = torch.arange(len(problems))
        for column in keys.flip(1).unbind(1):
            order = order[column[order].argsort(stable=True)]
        return cls(order, tokens[order], ids[order], task.targets(problems)[order], tuple(task.query_positions))

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def first(self) -> Tensor:
        """[n, pos]: whether the prefix up to a position differs from the previous row's."""
        keys = torch.cat((self.tokens[..., None], self.ids), -1)
        changed = (keys[1:] != keys[:-1]).any(-1).cummax(1).values
        return torch.cat((torch.ones_like(changed[:1], dtype=torch.bool).new_ones(1, keys.shape[1]), changed))

    @property
    def n_nodes(self) -> int:
        return int(self.first.sum())

    def parts(self) -> Iterator[Rows]:
        """Yield ``ROWS`` at a time."""
        for at in range(0, len(self), ROWS):
            yield self[at : at + ROWS]

    def __getitem__(self, rows: slice | Tensor) -> Rows:
        return Rows(self.index[rows], self.tokens[rows], self.ids[rows], self.targets[rows], self.queries)

    def asked(self, target: int) -> Rows:
        """The rows up to the query of one target, for that target only."""
        query = self.queries[target]
        parts = self.tokens[:, : query + 1], self.ids[:, : query + 1], self.targets[:, [target]]
        return Rows(self.index, *parts, (query,))


@dataclass(frozen=True, eq=False)
class Tree:
    """The nodes of some rows, position by position.

    Attributes:
        number: the number of each row's node at each position.
        above: by position, the numbers of the nodes in every node's prefix, its own last.
        problem: the row of the original tree that each row is, or is a case of.
        apart: whether each row has nodes of its own, so that it can be split into cases.
    """

    tokens: Int[Tensor, " node"]
    ids: Int[Tensor, "node level"]
    position: Int[Tensor, " node"]
    number: Int[Tensor, "row pos"]
    above: tuple[Int[Tensor, "node_here key"], ...]
    problem: Int[Tensor, " row"]
    apart: bool = False

    @classmethod
    def of(cls, rows: Rows, apart: bool = False) -> Tree:
        first = torch.ones_like(rows.first) if apart else rows.first
        here = [column.nonzero()[:, 0] for column in first.unbind(1)]
        starts = torch.tensor([0, *(len(at) for at in here)]).cumsum(0)
        number = first.long().cumsum(0) - 1 + starts[:-1]
        return cls(
            torch.cat([rows.tokens[at, p] for p, at in enumerate(here)]),
            torch.cat([rows.ids[at, p] for p, at in enumerate(here)]),
            torch.cat([torch.full_like(at, p) for p, at in enumerate(here)]),
            number,
            tuple(number[at, : p + 1] for p, at in enumerate(here)),
            torch.arange(len(rows)),
            apart,
        )

    def split(self, rows: Int[Tensor, " case"]) -> Tree:
        """A tree with rows repeated, left out or in another order; this tree's rows must be apart."""
        nodes = self.number[rows].T.flatten()
        number = torch.arange(len(nodes)).view(-1, len(rows)).T
        above = tuple(number[:, : p + 1] for p in range(len(self.above)))
        parts = self.tokens[nodes], self.ids[nodes], self.position[nodes]
        return Tree(*parts, number, above, self.problem[rows], True)

    def nodes_at(self, queries: tuple[int, ...]) -> Int[Tensor, " node"]:
        """The numbers of the nodes at these positions, in order."""
        return torch.isin(self.position, torch.tensor(queries)).nonzero()[:, 0]
