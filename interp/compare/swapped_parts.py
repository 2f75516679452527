"""Parts of a forward pass that can be swapped, each at one hook point, with their counterparts in another model.

    L0H0 pattern           attn.hook_pattern of one head: the other's weights as they are
    L0H0 pattern by role   the other's weight on every role (:meth:`models.tasks.task.Task.relative_roles`), divided
                           among the keys of the role as the model itself divides it; BOS keeps the model's own weight
    L0H0 values            attn.hook_v at all positions: with the model's own pattern, the OV circuit
    L0H0 output            attn.hook_z: pattern and OV together
    L0.attn                hook_attn_out: all heads together, unmatched
    L0N3                   one entry of mlp.hook_post: the unit's output
    L0N3 input             one entry of mlp.hook_pre: the unit's input; its threshold and sharpness stay
    L0.mlp                 hook_mlp_out
    L0.stream              hook_resid_mid: embeddings and attention, which the MLP reads
    final stream           hook_resid_post of the last layer, which only the unembedding reads
    all patterns, ...      every one of a kind at once; "all that layers write": attention and MLP of all layers
    A + B                  any of these at once

Heads are matched by where they look and units by what they respond to, as in :func:`interp.compare`. Attention, MLPs
and streams are matched layer by layer, which needs the same number of layers in both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.compare.head_matching import head_distances
from interp.compare.matching import match
from interp.compare.neuron_matching import matched_units
from interp.compare.paired_readings import ReadingFrame, Readings
from interp.core.places import Place
from interp.core.runs import Activations
from models.errors import UserError, known_name
from models.transformer import in_block, layer_part

Kind = Literal["pattern", "pattern by role", "values", "output", "attention", "unit", "unit input", "MLP", "stream"]
PATTERNS: tuple[Kind, ...] = ("pattern", "pattern by role")
UNITS: tuple[Kind, ...] = ("unit", "unit input")
EVERYTHING = "all that layers write"
_LAYER_PARTS: Mapping[Kind, str] = {"attention": "attn", "MLP": "mlp", "stream": "stream"}
_HOOKS: Mapping[Kind, str] = {
    "pattern": "attn.hook_pattern",
    "pattern by role": "attn.hook_pattern",
    "values": "attn.hook_v",
    "output": "attn.hook_z",
    "attention": "hook_attn_out",
    "unit": "mlp.hook_post",
    "unit input": "mlp.hook_pre",
    "MLP": "hook_mlp_out",
    "stream": "hook_resid_mid",
}
_GROUPS: Mapping[str, tuple[Kind, ...]] = {
    "all patterns": ("pattern",),
    "all patterns by role": ("pattern by role",),
    "all values": ("values",),
    "all patterns and values": ("pattern", "values"),
    "all outputs": ("output",),
    "all unit inputs": ("unit input",),
    "all units": ("unit",),
    "all MLPs": ("MLP",),
    EVERYTHING: ("attention", "MLP"),
}
_SINGLE_UNITS = 4  # with more units, they are swapped only together unless single ones are asked for


@dataclass(frozen=True)
class SwappedPart:
    """A piece of an activation of ``a`` and its counterpart in ``b`` (None if b has none)."""

    name: str
    kind: Kind
    place: Place
    source: Place | None = None
    partner: str = ""

    @property
    def layer(self) -> int:
        assert self.place.layer is not None
        return self.place.layer

    def of(self, activations: Activations) -> Float[Tensor, "batch pos feature"]:
        """The part's activation: [batch, query, key] for a pattern, else [batch, pos, feature]."""
        return _plain(self.place, activations)

    def counterpart(self, activations: Activations) -> Float[Tensor, "batch pos feature"]:
        """The activation of its counterpart, from the other model's activations."""
        assert self.source is not None
        return _plain(self.source, activations)


def _plain(place: Place, activations: Activations) -> Tensor:
    held = place.read(activations[place.hook])
    return held if place.head is None else held.squeeze(1 if place.axes == "key" else 2)


def parts_beside(a: Readings, b: Readings) -> dict[str, SwappedPart]:
    """Every part of ``a`` by name, with its counterpart in ``b``.

    Units that never vary on the problems have no counterpart and are left out.
    """
    heads_a, heads_b = a.model.cfg.n_heads, b.model.cfg.n_heads
    partner = {i: j for j, i in match(head_distances(a.roles, b.roles).mean(0))}
    found: list[SwappedPart] = []
    for i, head in enumerate(a.heads):
        j = partner.get(i)
        for kind in ("pattern", "pattern by role", "values", "output"):
            source, name = (None, "") if j is None else (_place(kind, *divmod(j, heads_b)), b.heads[j])
            found.append(SwappedPart(f"{head} {kind}", kind, _place(kind, *divmod(i, heads_a)), source, name))
    _, units = matched_units(a, b)
    width_a, width_b = a.model.cfg.d_mlp, b.model.cfg.d_mlp
    place_a, place_b = (dict(zip(r.unit_names, range(len(r.unit_names)), strict=True)) for r in (a, b))
    for row in sorted(units, key=lambda row: place_a[row["a"]]):
        i, j = place_a[row["a"]], place_b[row["b"]]
        for kind in UNITS:
            name = row["a"] if kind == "unit" else f"{row['a']} input"
            source = _place(kind, *divmod(j, width_b))
            found.append(SwappedPart(name, kind, _place(kind, *divmod(i, width_a)), source, row["b"]))
    layers = a.model.cfg.n_layers
    if layers == b.model.cfg.n_layers:
        for layer in range(layers):
            for kind in _LAYER_PARTS if width_a and width_b else ("attention",):
                name = layer_part(layer, _LAYER_PARTS[kind])
                found.append(SwappedPart(name, kind, _place(kind, layer), _place(kind, layer), name))
    last, source = (Place(in_block(each.model.cfg.n_layers - 1, "hook_resid_post"), None) for each in (a, b))
    found.append(SwappedPart("final stream", "stream", last, source, "final stream"))
    return {part.name: part for part in found}


def _place(kind: Kind, layer: int, index: int | None = None) -> Place:
    hook = in_block(layer, _HOOKS[kind])
    return Place(hook, None, neuron=index) if kind in UNITS else Place(hook, None, head=index)


def components_of(parts: Mapping[str, SwappedPart], asked: Sequence[str] | None = None) -> dict[str, tuple[str, ...]]:
    """Components by name, each with the names of its parts.

    Without ``asked``, these are all parts that have a counterpart (single units only if there are few, patterns by role
    only together if there are several heads) and the groups of more than one part.

    Raises:
        UserError: an unknown component (with the closest), none, or the same one twice.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for name, kinds in _GROUPS.items():
        of_kind = [part for part in parts.values() if part.kind in kinds and part.source is not None]
        if {part.kind for part in of_kind} == set(kinds):
            groups[name] = tuple(part.name for part in of_kind)
    known = {name: (name,) for name, part in parts.items() if part.source is not None} | groups
    if asked is None:
        units, heads = groups.get("all units", ()), groups.get("all outputs", ())
        few = len(units) <= _SINGLE_UNITS
        dropped = {part.name for part in parts.values() if part.kind in UNITS and not few}
        dropped |= {part.name for part in parts.values() if part.kind == "pattern by role" and len(heads) > 1}
        dropped |= {name for name, alone in groups.items() if len(alone) == 1}
        return {name: members for name, members in known.items() if name not in dropped}
    found: dict[str, tuple[str, ...]] = {}
    for name in [asked] if isinstance(asked, str) else asked:
        members: list[str] = []
        for each in str(name).split(" + "):
            known_name("component", each, known)
            members += [member for member in known[each] if member not in members]
        if name in found:
            raise UserError(f"The component {name!r} is asked for twice.")
        found[str(name)] = tuple(members)
    if not found:
        raise UserError("There is nothing to swap: the list of components is empty.")
    return found


def by_role(
    own: Float[Tensor, "batch target key"], other: Float[Tensor, "batch target key"], at: ReadingFrame
) -> Float[Tensor, "batch target key"]:
    """The other's weight on every role, divided within a role as the model's own rows are (equally if they have none
    there). If BOS is a role it keeps the model's own weight, unless the other has all of its weight there."""
    member = torch.from_numpy(at.member.astype(np.float64)).to(own.device)
    member = member / member.sum(1, keepdim=True).clamp_min(1.0)  # a key with two roles counts half for each
    own, other = own.double(), other.double()
    mass, wanted = (torch.einsum("ntk,trk->ntr", rows, member) for rows in (own, other))
    if "BOS" in at.roles:
        bos = at.roles.index("BOS")
        elsewhere = 1 - wanted[..., bos, None]
        kept = (1 - mass[..., bos, None]) / elsewhere.clamp_min(1e-6)
        only = torch.arange(len(at.roles), device=own.device) == bos
        wanted = torch.where(elsewhere > 1e-6, torch.where(only, mass, wanted * kept), wanted)
    has = mass > 1e-12
    within = torch.where(has, wanted / mass.clamp_min(1e-12), 0.0)
    equally = torch.where(has, 0.0, wanted / member.sum(-1).clamp_min(1e-12))
    return own * torch.einsum("ntr,trk->ntk", within, member) + torch.einsum("ntr,trk->ntk", equally, member)
