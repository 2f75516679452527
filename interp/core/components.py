"""What can be ablated: heads, neurons, whole sublayers, directions at a hook, and several of them at once.

A component is a *part* of the activation at a hook point: a projection ``P`` of it. Every method sets that part to
something else:

    x  ->  x - P x + P r        r = 0 (zero), the mean of x by position (mean), x in another example's run (resample)

For a head P keeps its slice of ``attn.hook_z``, for a neuron its entry of ``mlp.hook_post``, for a direction the
component along it. Attention edges are in :mod:`interp.causal.ablation.pattern_edges`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.sites import Site, has_mlp, require_layer
from models.errors import UserError
from models.transformer.hooked import HookedModel
from models.transformer.part_names import head_name, in_block, layer_part, neuron_name


class Component(ABC):
    """Something to ablate. ``parts`` are the parts that it consists of, each at one hook point."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name for tables and axes, such as "L0H1"."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]: ...

    def check(self, model: HookedModel, length: int) -> None:
        """Raise UserError where the model has no such component, or a run of ``length`` tokens no such position."""
        for part in self.parts:
            part.check(model, length)


class Part(Component):
    """A projection of the activation at one hook point."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self,)

    @property
    @abstractmethod
    def site(self) -> Site:
        """The piece of an activation that this part is."""

    @property
    def hook(self) -> str:
        """The hook point's name."""
        return self.site.hook

    def part(self, x: Float[Tensor, "batch pos ..."]) -> Float[Tensor, "batch pos ..."]:
        """``P x``: this component's share of an activation, in the activation's shape."""
        return self.site.write(torch.zeros_like(x), self.site.read(x))

    def size(self, x: Tensor) -> float:
        """The largest entry of ``P x``, with which a change of it is compared."""
        return float(self.site.read(x).abs().max())

    @property
    def feature_axes(self) -> int:
        """Over how many of the activation's last axes a disturbance of one position spreads."""
        return 2 if self.site.axes == "head" else 1

    def disturb(self, x: Tensor, noise: Tensor) -> Tensor:
        """The share of ``noise`` that may be added to ``x``: all of it, unless a component says otherwise."""
        return noise

    def replace(self, x: Float[Tensor, "batch ..."], other: Tensor | None) -> Float[Tensor, "batch ..."]:
        """``x - P x + P other``; ``other`` may lack x's batch axis, and None stands for zero."""
        if other is None:
            return self.site.write(x, 0.0)
        other = other.to(x)
        return self.site.write(x, self.site.read(other if other.ndim == x.ndim else other[None]))

    def check(self, model: HookedModel, length: int) -> None:
        self.site.check(model, length)


def _where(positions: tuple[int, ...] | None) -> str:
    return "" if positions is None else f" at {','.join(map(str, positions))}"


class InLayer(Part):
    """A part that belongs to one layer. The layer is part of its name, so it can only be counted from 0."""

    layer: int

    def check(self, model: HookedModel, length: int) -> None:
        if self.layer < 0:
            raise UserError(f"A component's layer counts from 0; there is no layer {self.layer}.")
        require_layer(model, self.layer)
        super().check(model, length)


@dataclass(frozen=True)
class Head(InLayer):
    """One head's output before W_O (``attn.hook_z`` [batch, pos, head, d_head]); zero acts as W_O[head] = 0 does."""

    layer: int
    head: int
    positions: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        return f"{head_name(self.layer, self.head)}{_where(self.positions)}"

    @property
    def site(self) -> Site:
        return Site(in_block(self.layer, "attn.hook_z"), self.positions, head=self.head)


@dataclass(frozen=True)
class Neuron(InLayer):
    """One MLP neuron after its activation (``mlp.hook_post`` [batch, pos, d_mlp]; times its gate in a gated MLP)."""

    layer: int
    unit: int
    positions: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        return f"{neuron_name(self.layer, self.unit)}{_where(self.positions)}"

    @property
    def site(self) -> Site:
        return Site(in_block(self.layer, "mlp.hook_post"), self.positions, neuron=self.unit)


@dataclass(frozen=True)
class Sublayer(InLayer):
    """All that a layer's attention or MLP writes to the residual stream (``hook_attn_out``, ``hook_mlp_out``)."""

    layer: int
    kind: str  # "attention" or "mlp"
    positions: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        return f"{layer_part(self.layer, self._part)}{_where(self.positions)}"

    @property
    def _part(self) -> str:
        return "attn" if self.kind == "attention" else self.kind

    @property
    def site(self) -> Site:
        return Site(in_block(self.layer, f"hook_{self._part}_out"), self.positions)

    def check(self, model: HookedModel, length: int) -> None:
        if self.kind not in ("attention", "mlp"):
            raise UserError(f"A sublayer is 'attention' or 'mlp', not {self.kind!r}.")
        if self.kind == "mlp" and not has_mlp(model):
            raise UserError("This model has no MLP, so it has no such sublayer to ablate.")
        super().check(model, length)


@dataclass(frozen=True, eq=False)
class Direction(Part):
    """The component along one or several vectors, at any hook point whose last axis has their length.

    ``P x = Q Q^T x`` with Q an orthonormal basis of the span of ``vectors`` ([d] or [k, d], of any length). Zero
    removes the component, mean sets it to its mean by position, resample takes it from another example.
    """

    at: str
    vectors: Float[Tensor, "*k d"]
    name: str = "direction"
    positions: tuple[int, ...] | None = None
    _basis: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = torch.as_tensor(self.vectors).detach().cpu().reshape(-1, self.vectors.shape[-1]).double()
        if not bool(torch.isfinite(rows).all()):
            raise UserError("A direction must be made of finite numbers.")
        _, singular, basis = torch.linalg.svd(rows, full_matrices=False)
        if not len(rows) or float(singular.min()) <= 1e-9 * max(float(singular.max()), 1e-300):
            raise UserError("The vectors of a direction must be independent of each other and not zero.")
        object.__setattr__(self, "_basis", basis.T)  # [d, k]

    @property
    def label(self) -> str:
        return f"{self.name} at {self.at}{_where(self.positions)}"

    @property
    def site(self) -> Site:
        return Site(self.at, self.positions, basis=self._basis)

    def size(self, x: Tensor) -> float:
        return float(x.abs().max())  # P x is a product, whose rounding error is on the scale of x


@dataclass(frozen=True, eq=False)
class Together(Component):
    """Several components ablated in the same run."""

    components: tuple[Component, ...]
    name: str | None = None

    def __post_init__(self) -> None:
        if not self.components:
            raise UserError("There is nothing to ablate together: the list of components is empty.")

    @property
    def label(self) -> str:
        return self.name or " + ".join(component.label for component in self.components)

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for component in self.components for part in component.parts)


def _layers(model: HookedModel, layer: int | None) -> range:
    if layer is None:
        return range(model.cfg.n_layers)
    layer = require_layer(model, layer)
    return range(layer, layer + 1)


def heads(model: HookedModel, layer: int | None = None) -> list[Head]:
    """Every head, or those of one layer (negative layers count from the end)."""
    return [Head(index, head) for index in _layers(model, layer) for head in range(model.cfg.n_heads)]


def neurons(model: HookedModel, layer: int | None = None) -> list[Neuron]:
    """Every MLP neuron, or those of one layer; an empty list where the model has no MLP."""
    units = range(model.cfg.d_mlp if has_mlp(model) else 0)
    return [Neuron(index, unit) for index in _layers(model, layer) for unit in units]


def sublayers(model: HookedModel) -> list[Sublayer]:
    """The attention and, where there is one, the MLP of every layer."""
    kinds = ("attention", "mlp") if has_mlp(model) else ("attention",)
    return [Sublayer(layer, kind) for layer in range(model.cfg.n_layers) for kind in kinds]


def hooks_of(components: Sequence[Component]) -> list[str]:
    """The hook points at which components are ablated."""
    return sorted({part.hook for component in components for part in component.parts})


def check_components(model: HookedModel, components: Any, length: int) -> list[Component]:
    """The components, checked. Raises UserError for none, two with one label, or one that the model does not have."""
    found: list[Component] = [components] if isinstance(components, Component) else list(components)
    if not found:
        raise UserError("There is nothing to ablate: the list of components is empty.")
    for component in found:
        if not isinstance(component, Component):
            raise UserError(
                f"A component is a Head, Neuron, Sublayer, Direction, AttentionEdges or Together, not "
                f"a {type(component).__name__}."
            )
        component.check(model, length)
    labels = [component.label for component in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise UserError(f"Two components are called {twice!r}; give one of them another name.")
    return found
