"""Parts of a model that can be taken out: heads, neurons, sublayers, directions, attention edges, several together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.model_checks import has_mlp, require_layer
from interp.core.places import Place
from models.errors import UserError
from models.transformer import HookedModel, head_name, in_block, layer_part, neuron_name


@dataclass(frozen=True)
class Together:
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
    def parts(self) -> tuple[Place, ...]:
        return tuple(part for component in self.components for part in component.parts)

    def check(self, model: HookedModel, length: int) -> None:
        """Raise UserError where the model lacks one of the places."""
        for part in self.parts:
            part.check(model, length)


#: Something to ablate: a place, or several at once.
Component = Place | Together


def _at(positions: tuple[int, ...] | None) -> str:
    return "" if positions is None else f" at {','.join(map(str, positions))}"


def Head(layer: int, head: int, positions: tuple[int, ...] | None = None) -> Place:
    """One head's output before W_O (``attn.hook_z`` [batch, pos, head, d_head]); zero acts as W_O[head] = 0 does."""
    return Place(in_block(layer, "attn.hook_z"), positions, head=head, name=f"{head_name(layer, head)}{_at(positions)}")


def Neuron(layer: int, unit: int, positions: tuple[int, ...] | None = None) -> Place:
    """One MLP neuron after its activation (``mlp.hook_post`` [batch, pos, d_mlp]; times its gate in a gated MLP)."""
    name = f"{neuron_name(layer, unit)}{_at(positions)}"
    return Place(in_block(layer, "mlp.hook_post"), positions, neuron=unit, name=name)


def Sublayer(layer: int, kind: str, positions: tuple[int, ...] | None = None) -> Place:
    """All that a layer's "attention" or "mlp" writes to the residual stream (``hook_attn_out``, ``hook_mlp_out``)."""
    if kind not in ("attention", "mlp"):
        raise UserError(f"A sublayer is 'attention' or 'mlp', not {kind!r}.")
    part = "attn" if kind == "attention" else kind
    return Place(in_block(layer, f"hook_{part}_out"), positions, name=f"{layer_part(layer, part)}{_at(positions)}")


def Direction(
    at: str, vectors: Float[Tensor, "*k d"], name: str = "direction", positions: tuple[int, ...] | None = None
) -> Place:
    """The component along one or several vectors, at any hook point whose last axis has their length.

    ``P x = Q Q^T x`` with Q an orthonormal basis of the span of ``vectors`` ([d] or [k, d], of any length).

    Raises:
        UserError: vectors that are not finite, zero, or not independent of each other.
    """
    rows = torch.as_tensor(vectors).detach().cpu().reshape(-1, vectors.shape[-1]).double()
    if not bool(torch.isfinite(rows).all()):
        raise UserError("A direction must be made of finite numbers.")
    _, singular, basis = torch.linalg.svd(rows, full_matrices=False)
    if not len(rows) or float(singular.min()) <= 1e-9 * max(float(singular.max()), 1e-300):
        raise UserError("The vectors of a direction must be independent of each other and not zero.")
    return Place(at, positions, basis=basis.T, name=f"{name} at {at}{_at(positions)}")


def AttentionEdges(
    layer: int, head: int | None, edges: tuple[tuple[int, int], ...], name: str = "edges", renormalise: bool = False
) -> Place:
    """(destination, source) positions in the pattern of a head, or of all heads of the layer (``head`` None).

    Without ``renormalise`` the other weights stay as they are. With it the changed rows are scaled to their old sum, as
    if the scores of removed edges had been -inf. Where attention depends on positions only (MicroAdder), mean and
    resample change nothing, which is reported.
    """
    whose = layer_part(layer, "attn") if head is None else head_name(layer, head)
    label = f"{whose} {name}{', renormalised' if renormalise else ''}"
    hook = in_block(layer, "attn.hook_pattern")
    return Place(hook, None, head, edges=tuple(edges), renormalise=renormalise, name=label)


def _layers(model: HookedModel, layer: int | None) -> range:
    if layer is None:
        return range(model.cfg.n_layers)
    layer = require_layer(model, layer)
    return range(layer, layer + 1)


def heads(model: HookedModel, layer: int | None = None) -> list[Place]:
    """Every head, or those of one layer (negative layers count from the end)."""
    return [Head(index, head) for index in _layers(model, layer) for head in range(model.cfg.n_heads)]


def neurons(model: HookedModel, layer: int | None = None) -> list[Place]:
    """Every MLP neuron, or those of one layer; an empty list where the model has no MLP."""
    units = range(model.cfg.d_mlp if has_mlp(model.cfg) else 0)
    return [Neuron(index, unit) for index in _layers(model, layer) for unit in units]


def sublayers(model: HookedModel) -> list[Place]:
    """The attention and, where there is one, the MLP of every layer."""
    kinds = ("attention", "mlp") if has_mlp(model.cfg) else ("attention",)
    return [Sublayer(layer, kind) for layer in range(model.cfg.n_layers) for kind in kinds]


def hooks_of(components: Sequence[Component]) -> list[str]:
    """The hook points at which components are ablated."""
    return sorted({part.hook for component in components for part in component.parts})


def check_components(model: HookedModel, components: Any, length: int) -> list[Component]:
    """The components, checked. Raises UserError for none, two with one label, or one that the model does not have."""
    found: list[Component] = [components] if isinstance(components, (Place, Together)) else list(components)
    if not found:
        raise UserError("There is nothing to ablate: the list of components is empty.")
    for component in found:
        if not isinstance(component, (Place, Together)):
            raise UserError(
                f"A component is a Head, Neuron, Sublayer, Direction, AttentionEdges, Place or Together, not "
                f"a {type(component).__name__}."
            )
        component.check(model, length)
    labels = [component.label for component in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise UserError(f"Two components are called {twice!r}; give one of them another name.")
    return found
