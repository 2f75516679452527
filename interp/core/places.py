"""Places in a run: which piece of an activation is read, and what it is replaced by.

A :class:`Place` is a piece of the activation at a hook point: one head, one neuron, some edges of a pattern, a subspace
or all of it, at some positions. It is a projection ``P`` of the activation ``x``, and every intervention (patching,
interchange, swaps, ablation) sets it to something else:

    x  ->  x - P x + P r        r: another run's activation, a mean, zero

as a list of :class:`Replacement`, one for each place, with which :mod:`interp.core.runs` runs a model.

What is ablated are places with a name (:mod:`interp.causal.ablation.components`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.model_checks import has_mlp, require_head, require_hook, require_layer
from models.errors import UserError
from models.transformer import HookedModel

#: Hook points whose axis 2 is the heads; all others but the query-by-key ones are [batch, pos, width].
_BY_HEAD = ("hook_q", "hook_k", "hook_v", "hook_z", "hook_rot_q", "hook_rot_k", "hook_result", "hook_attn_in",
            "hook_q_input", "hook_k_input", "hook_v_input")  # fmt: skip
_BY_KEY = ("hook_pattern", "hook_attn_scores")  # [batch, head, query, key]: a position is a query's row
_OF_MLP = ("hook_mlp_in", "hook_mlp_out", "hook_pre", "hook_pre_linear", "hook_post")
_LAYER = re.compile(r"blocks\.(-?\d+)\.")
#: The position that predicts the column that is asked about.
QUERY = "query"


class Replacement(NamedTuple):
    """What becomes of the activation at a hook point: ``change(activation, rows)``, ``rows`` of the sample."""

    hook: str
    change: Callable[[Tensor, slice], Tensor]


def as_slice(positions: list[int]) -> slice | list[int]:
    """Consecutive positions as a slice, which needs no index tensor and no copy; others as they are."""
    if positions and positions[0] < 0:  # counted from the end, where a slice would end at 0
        return positions
    whole = slice(positions[0], positions[0] + len(positions)) if positions else slice(0)
    return whole if positions == list(range(whole.start or 0, whole.stop)) else positions


@dataclass(frozen=True)
class Place:
    """A piece of an activation: one head, one neuron, a subspace, or all of it, at some positions of a hook point.

    Attributes:
        at: positions (for a pattern: the queries' rows), or None for all of them. A hypothesis about a column may name
            them instead (:mod:`interp.core.named_places`), as they are others in each column.
        head, neuron: their number, from 0; None takes all of them.
        basis: orthonormal directions; the piece is then the activation's coordinates along them.
        edges: (query, key) positions of a pattern, in place of ``at``.
        renormalise: whether a pattern's rows with ``edges`` keep their sum, as if the scores of removed edges had been
            -inf; a row that keeps no weight at all stays zero.
        name: what tables and axes call it.
    """

    hook: str
    at: int | str | tuple[int | str, ...] | None = QUERY
    head: int | None = None
    neuron: int | None = None
    basis: Float[Tensor, "width k"] | None = field(default=None, compare=False)
    edges: tuple[tuple[int, int], ...] | None = None
    renormalise: bool = False
    name: str = ""

    def __str__(self) -> str:
        part = "" if self.head is None else f" head {self.head}"
        part += "" if self.neuron is None else f" neuron {self.neuron}"
        return self.hook + part + ("" if self.at is None else f" at {', '.join(map(str, self._places))}")

    @property
    def label(self) -> str:
        """A short name, such as "L0H1"."""
        return self.name or str(self)

    @property
    def parts(self) -> tuple[Place, ...]:
        """The places of a component: itself."""
        return (self,)

    @property
    def layer(self) -> int | None:
        """The layer of its block; None for the embeddings and what follows the last block."""
        found = _LAYER.match(self.hook)
        return int(found[1]) if found else None

    @property
    def axes(self) -> str:
        """How the activation is laid out: "key" [batch, head, query, key], "head" [batch, pos, head, ...], "plain"."""
        last = self.hook.rsplit(".", 1)[-1]
        return "key" if last in _BY_KEY else "head" if last in _BY_HEAD else "plain"

    @property
    def _places(self) -> tuple[int | str, ...]:
        return self.at if isinstance(self.at, tuple) else () if self.at is None else (self.at,)

    @property
    def positions(self) -> tuple[int, ...] | None:
        """The positions, or None for all. Raises UserError for places that are only named."""
        if self.edges is not None:
            return tuple(sorted({query for query, _ in self.edges}))
        found = tuple(place for place in self._places if isinstance(place, int))
        if len(found) < len(self._places):
            raise UserError(f"{self} names places, which are positions of a column only.")
        return None if self.at is None else found

    @cached_property
    def index(self) -> tuple[Any, ...]:
        """Where the piece is in the activation. One head and one neuron stay axes of size 1."""
        every, positions = slice(None), self.positions
        rows = every if positions is None else as_slice([*positions])
        head = every if self.head is None else slice(self.head, self.head + 1)
        if self.edges is not None:
            return (every, head, *map(list, zip(*self.edges, strict=True)))
        if self.axes == "key":
            return (every, head, rows)
        if self.axes == "head":
            return (every, rows, head)
        return (every, rows) if self.neuron is None else (every, rows, slice(self.neuron, self.neuron + 1))

    def read(self, activation: Float[Tensor, "batch ..."]) -> Float[Tensor, "batch ..."]:
        """The piece, with the activation's axes; edges are one axis."""
        held = activation[self.index]
        return held if self.basis is None else held @ self._basis_of(held)

    def _basis_of(self, held: Tensor) -> Float[Tensor, "width k"]:
        assert self.basis is not None
        if len(self.basis) != held.shape[-1]:
            raise UserError(
                f"The direction has {len(self.basis)} entries and the activation at {self.hook} has {held.shape[-1]}."
            )
        return self.basis.to(held)

    def write(self, activation: Float[Tensor, "batch ..."], value: Tensor | float) -> Float[Tensor, "batch ..."]:
        """A copy of the activation with the piece replaced; gradients flow to both.

        ``value`` has the shape of :meth:`read`, or one that broadcasts to it; without a basis, also as many numbers.
        """
        held = activation[self.index]
        new = torch.as_tensor(value, dtype=activation.dtype, device=activation.device)
        if self.basis is not None:
            basis = self._basis_of(held)
            new = held - (held @ basis) @ basis.T + new.expand(*held.shape[:-1], basis.shape[1]) @ basis.T
        elif new.numel() == held.numel():
            new = new.reshape(held.shape)
        copy = activation.clone()
        copy[self.index] = new
        return self._with_sums(copy, activation) if self.renormalise else copy

    def _with_sums(self, new: Tensor, old: Tensor) -> Tensor:
        """The rows that have an edge scaled to the sums that they had."""
        before, after = old.sum(-1, keepdim=True), new.sum(-1, keepdim=True)
        changed = replace(self, renormalise=False).write(torch.zeros_like(old), 1.0).amax(-1, keepdim=True) * after > 0
        return new * torch.where(changed, before / torch.where(after > 0, after, 1.0), 1.0)

    def take(self, activation: Float[Tensor, "batch ..."], other: Tensor | None) -> Float[Tensor, "batch ..."]:
        """A copy with the piece of another activation, which may lack the batch axis; None stands for zeros."""
        if other is None:
            return self.write(activation, 0.0)
        other = other.to(activation)
        return self.write(activation, self.read(other if other.ndim == activation.ndim else other[None]))

    def put(self, value: Tensor | float | Callable[[Tensor, slice], Tensor]) -> Replacement:
        """Write ``value`` here: one value for all examples, or a function of (piece, rows)."""

        def change(activation: Tensor, rows: slice) -> Tensor:
            return self.write(activation, value(self.read(activation), rows) if callable(value) else value)

        return Replacement(self.hook, change)

    def check(self, model: HookedModel, length: int) -> None:
        """Raise UserError where the model has no such piece, or a run of ``length`` tokens no such positions."""
        if self.layer is not None and self.layer < 0:
            raise UserError(f"A place's layer counts from 0; there is no layer {self.layer}.")
        if self.layer is not None:
            require_layer(model, self.layer)
        if self.head is not None:
            require_head(model, self.head)
        if self.hook.rsplit(".", 1)[-1] in _OF_MLP and not has_mlp(model.cfg):
            raise UserError(f"This model has no MLP, so it has nothing at {self.hook}.")
        if self.neuron is not None and not 0 <= self.neuron < model.cfg.d_mlp:
            raise UserError(f"There is no neuron {self.neuron}: each layer has {model.cfg.d_mlp}, counted from 0.")
        if self.neuron is not None and self.axes != "plain":
            raise UserError(f"The hook point {self.hook!r} has heads and no neurons; leave neuron away.")
        _check_positions(self.positions, length)
        _check_positions(None if self.edges is None else tuple(key for _, key in self.edges), length)
        if ahead := [edge for edge in self.edges or () if edge[1] > edge[0]]:
            raise UserError(f"Position {ahead[0][0]} cannot attend to the later position {ahead[0][1]}.")
        require_hook(model, self.hook)


def _check_positions(positions: tuple[int, ...] | None, length: int) -> None:
    wrong = [position for position in positions or () if not 0 <= position < length]
    if wrong or positions == ():
        said = f"position {wrong[0]}" if wrong else "an empty list of positions"
        raise UserError(f"There is nothing at {said}: the runs have {length} positions, counted from 0.")


# ---- what is ablated
