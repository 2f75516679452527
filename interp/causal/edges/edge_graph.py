"""The edge graph of a transformer: who writes to the residual stream, who reads from it, and every edge between them.

A model without norms after its sums is a graph of small parts. Every part reads the sum of all that was written before
it, so each term of that sum is an edge that can be cut by itself:

    senders     embed, pos_embed (where positions are added to the stream), L0H1 (a head), L0.mlp
    receivers   L1H0.q, L1H0.k, L1H0.v (a head reads the stream three times), L1.mlp, logits
    edges       from a sender to every receiver after it: "L0H1->L1H0.v"

A head writes its ``z W_O``, an MLP its output *with* ``b_out``, and the embeddings themselves. The attention's bias
``b_O`` belongs to no head and is not a sender: every later receiver gets it, whatever is cut. So the input of receiver
r is exactly

    input_r = sum over senders s before r of value_s + sum over earlier layers of b_O        [batch, pos, d_model],

the same sum that the model itself forms, up to the order of its terms.

Positions can be split as well. With ``groups`` there is one edge per group of positions, such as "embed->L0H0.v@own
operands": what the sender wrote there and the receiver reads there. For keys and values that is the position attended
*to*; for queries, MLPs and logits it is the position that computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError, known_name
from models.transformer import TransformerConfig, head_name, layer_part

EMBED, POS_EMBED, LOGITS = "embed", "pos_embed", "logits"


@dataclass(frozen=True)
class Edge:
    """``sender -> receiver``, at the positions of ``group`` (None: at all positions)."""

    sender: str
    receiver: str
    group: str | None = None

    @property
    def name(self) -> str:
        return f"{self.sender}->{self.receiver}" + ("" if self.group is None else f"@{self.group}")

    def __str__(self) -> str:
        return self.name


def part_and_input(receiver: str) -> tuple[str, str]:
    """The part that reads, and which of its inputs: ("L0H1", "q") of ``L0H1.q``, ("L0.mlp", "") of ``L0.mlp``."""
    part, _, letter = receiver.rpartition(".")
    return (part, letter) if letter in ("q", "k", "v") else (receiver, "")


@dataclass(frozen=True)
class EdgeGraph:
    """Senders, receivers and edges of a model of this shape, as far as they can affect the logits at ``read``.

    ``read`` are the positions whose logits are read, in ascending order. Nothing after the last of them is part of the
    graph. ``groups`` maps names to positions; without groups an edge spans all positions.
    """

    n_layers: int
    n_heads: int
    has_mlp: bool
    has_positions: bool
    read: tuple[int, ...]
    groups: Mapping[str, tuple[int, ...]] | None = None
    parallel: bool = False  # an MLP reads what its layer's attention reads

    def __post_init__(self) -> None:
        if not self.read or min(self.read) < 0 or list(self.read) != sorted(set(self.read)):
            raise UserError(f"Positions to read must be different, ascending and not negative, not {self.read}.")
        if self.groups is None:
            return
        placed = [position for group in self.groups.values() for position in group]
        missing = sorted(set(range(self.n_positions)) - set(placed))
        if missing or len(set(placed)) < len(placed):
            what = f"position {missing[0]} is in none" if missing else "one position is in two of them"
            raise UserError(
                f"Groups must hold every position up to {self.n_positions - 1}, the last that is read, once; {what}."
            )

    @staticmethod
    def of(cfg: TransformerConfig, read: Sequence[int], groups: Mapping[str, Sequence[int]] | None = None) -> EdgeGraph:
        """The graph of a model with this config. Groups that the graph does not reach (after ``read``) are dropped."""
        end = max(read, default=0) + 1
        kept = None
        if groups is not None:
            within = {name: tuple(sorted(p for p in group if p < end)) for name, group in groups.items()}
            kept = {name: group for name, group in within.items() if group}
        has_positions = cfg.positional_embedding_type in ("standard", "coupled")
        shape = cfg.n_layers, cfg.n_heads, bool(cfg.d_mlp), has_positions
        return EdgeGraph(*shape, tuple(read), kept, cfg.parallel_attn_mlp)

    @property
    def n_positions(self) -> int:
        """How many positions can affect what is read: all up to the last position read, in a causal model."""
        return max(self.read) + 1

    # ---- stages: layer l's attention is stage 2 l, its MLP stage 2 l + 1, the logits stage 2 n_layers

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """The senders, in the order in which they write."""
        names = [EMBED] + [POS_EMBED] * self.has_positions
        for layer in range(self.n_layers):
            names += [head_name(layer, head) for head in range(self.n_heads)] + [
                layer_part(layer, "mlp")
            ] * self.has_mlp
        return tuple(names)

    @cached_property
    def receivers(self) -> tuple[str, ...]:
        """The receivers, in the order in which they read; in a layer all queries, then all keys, then all values."""
        return tuple(self.stage_of)

    @property
    def n_stages(self) -> int:
        return 2 * self.n_layers + 1

    def reads(self, stage: int) -> list[tuple[tuple[str, ...], bool]]:
        """(receivers, whether only at the positions in ``read``) for q, k and v, or for the stage's one reader."""
        layer, mlp = divmod(stage, 2)
        last = layer >= self.n_layers - 1
        if layer == self.n_layers:
            return [((LOGITS,), True)]
        if mlp:
            return [((layer_part(layer, "mlp"),), last)] * self.has_mlp
        return [
            (tuple(f"{head_name(layer, head)}.{x}" for head in range(self.n_heads)), last and x == "q") for x in "qkv"
        ]

    def senders_before(self, stage: int) -> int:
        """How many senders this stage reads: the first ones, which have written before."""
        layer, mlp = divmod(stage, 2)
        own_heads = 0 if self.parallel else mlp * self.n_heads
        return 1 + self.has_positions + layer * (self.n_heads + self.has_mlp) + own_heads

    @cached_property
    def stage_of(self) -> dict[str, int]:
        """The stage at which each receiver reads."""
        return {name: stage for stage in range(self.n_stages) for names, _ in self.reads(stage) for name in names}

    # ---- edges

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge that can affect the logits read: receiver by receiver, in the order of :attr:`receivers`.

        In the last layer, queries, MLP and logits are only those at the positions read.
        """
        found = []
        for stage in range(self.n_stages):
            senders = self.senders[: self.senders_before(stage)]
            for names, only_read in self.reads(stage):
                groups: Iterable[str | None] = (None,)
                if self.groups is not None:
                    places = set(self.read if only_read else range(self.n_positions))
                    groups = [name for name, group in self.groups.items() if places & set(group)]
                found += [Edge(sender, name, group) for name in names for sender in senders for group in groups]
        return tuple(found)

    def __len__(self) -> int:
        return len(self.edges)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(edge.name for edge in self.edges)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def index(self, edge: Edge | str) -> int:
        """Index of an edge in :attr:`edges`. Raises UserError, with the closest name, if there is no such edge."""
        name = edge.name if isinstance(edge, Edge) else edge
        return self._index[known_name("edge", name, self._index)]

    def mask(self, kept: Iterable[Edge | str]) -> Bool[Tensor, " edge"]:
        """A mask that is True at the given edges and False at all others."""
        mask = torch.zeros(len(self), dtype=torch.bool)
        mask[[self.index(edge) for edge in kept]] = True
        return mask

    def kept(self, mask: Bool[Tensor, " edge"]) -> tuple[Edge, ...]:
        """The edges at which a mask is True."""
        return tuple(edge for edge, keep in zip(self.edges, mask.tolist(), strict=True) if keep)

    @cached_property
    def edge_index(self) -> Int[Tensor, "edge 3"]:
        """[edge, 3]: group, receiver and sender of each edge, counted from 0 (group 0 without groups)."""
        groups: dict[str | None, int] = {name: i for i, name in enumerate(self.groups or {None: ()})}
        receivers = {name: i for i, name in enumerate(self.receivers)}
        senders = {name: i for i, name in enumerate(self.senders)}
        rows = [(groups[edge.group], receivers[edge.receiver], senders[edge.sender]) for edge in self.edges]
        return torch.tensor(rows)

    @cached_property
    def stages(self) -> Int[Tensor, " edge"]:
        """The stage at which each edge is read."""
        return torch.tensor([self.stage_of[edge.receiver] for edge in self.edges])
