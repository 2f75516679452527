"""What can be patched: kinds of activation, their hooks, and the axes that a sweep runs over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from operator import index
from typing import Any, Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.core.model_checks import has_mlp, require_layer
from interp.core.places import Place
from models.errors import UserError, known_name, unknown_name
from models.tasks import Task
from models.transformer import HookedModel, head_name, in_block, layer_part

By = Literal["position", "role", "all"]


@dataclass(frozen=True)
class SweepSite:
    """One kind of activation; its places differ in layer, head or neuron, and positions.

    ``hook`` is its name within a block. A pattern's rows are destinations; with ``by_source`` its columns are swept
    over too.
    """

    name: str
    hook: str
    by_source: bool = False

    @cached_property
    def embedding(self) -> bool:
        """Whether it enters before layer 0, so that its hook is in no block."""
        return self.hook in ("hook_embed", "hook_pos_embed")

    @cached_property
    def part(self) -> Literal["head", "neuron"] | None:
        """What it is split into in addition to positions."""
        return "neuron" if self.name == "neuron" else None if Place(self.hook).axes == "plain" else "head"

    @cached_property
    def pattern(self) -> bool:
        return Place(self.hook).axes == "key"

    @cached_property
    def of_run(self) -> str:
        """Its name in a run (:mod:`models.run.run`)."""
        return self.name if self.by_source else self.hook.rpartition("hook_")[2]

    def hook_name(self, layer: int) -> str:
        return self.hook if self.embedding else in_block(layer, self.hook)

    def place(self, layer: int, part: int, positions: Sequence[int], sources: Sequence[int] | None = None) -> Place:
        """Its place in one layer, at some positions: of a pattern the rows, and with ``sources`` their columns alone.
        ``part`` is the number of the head or neuron, if it has any."""
        hook, edges = self.hook_name(layer), None if sources is None else tuple(product(positions, sources))
        head, neuron = (part if self.part == kind else None for kind in ("head", "neuron"))
        return Place(hook, tuple(positions), head, neuron, edges=edges)


SITES = {
    name: SweepSite(name, hook, name == "pattern_dest_src")
    for name, hook in {
        "resid_pre": "hook_resid_pre",
        "resid_mid": "hook_resid_mid",
        "resid_post": "hook_resid_post",
        "attn_out": "hook_attn_out",
        "mlp_out": "hook_mlp_out",
        "head_out": "attn.hook_z",
        "q": "attn.hook_q",
        "k": "attn.hook_k",
        "v": "attn.hook_v",
        "pattern": "attn.hook_pattern",
        "pattern_dest_src": "attn.hook_pattern",
        "neuron": "mlp.hook_post",
    }.items()
}
#: What the stream begins with. These have no layer; a sweep over them is labelled with layer 0, which they enter.
EMBEDDINGS = {name: SweepSite(name, f"hook_{name}") for name in ("embed", "pos_embed")}
_NEEDS_MLP = ("resid_mid", "mlp_out", "neuron")
_ALIASES = {"z": "head_out", "attn_head_out": "head_out", "mlp_post": "neuron", "post": "neuron"}


def get_site(name: str, cfg: Any) -> SweepSite:
    """A site by name; TransformerLens' short names work too.

    Raises:
        UserError: no such site (with the closest), an MLP's in a model without MLPs, or embeddings of positions in a
            model that adds none to the stream.
    """
    name, sites = _ALIASES.get(name, name), SITES | EMBEDDINGS
    known_name("site to patch", name, sites)
    if name == "pos_embed" and not adds_positions(cfg):
        raise UserError("This model adds no embeddings of positions to its stream, so that there is none to patch.")
    if name in _NEEDS_MLP and not has_mlp(cfg):
        raise UserError(f"This model has no MLPs, so that there is no {name} to patch.")
    return sites[name]


def adds_positions(cfg: Any) -> bool:
    """Whether embeddings of positions are added to the residual stream."""
    return getattr(cfg, "positional_embedding_type", "standard") in ("standard", "coupled")


def component_sites(cfg: Any, layers: Any) -> list[SweepSite]:
    """The sites whose parts are the components that write to the stream: both embeddings (if all layers are asked
    about), heads, and the sublayers' outputs. Attention with a single head is that head."""
    names = ["embed", *(["pos_embed"] if adds_positions(cfg) else [])] if layers is None else []
    names += ["head_out", *(["attn_out"] if cfg.n_heads > 1 else [])]
    return [get_site(name, cfg) for name in (*names, *(["mlp_out"] if has_mlp(cfg) else []))]


def component_name(site: SweepSite, layer: int, part: int) -> str:
    """What a component of :func:`component_sites` is called: "embed", "L0H1", "L0.attn", "L0.mlp"."""
    if site.embedding:
        return site.name
    return head_name(layer, part) if site.part == "head" else layer_part(layer, site.name.removesuffix("_out"))


def parts_of(site: SweepSite, cfg: Any) -> int:
    """How many heads or neurons a layer has at the site; 1 if it is not split. Heads may share keys and values."""
    if site.name in ("k", "v"):
        return getattr(cfg, "n_key_value_heads", None) or cfg.n_heads
    return {"head": cfg.n_heads, "neuron": cfg.d_mlp, None: 1}[site.part]


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of positions that are patched together: ``mask[i]`` marks those called ``labels[i]``."""

    by: By
    labels: tuple[str, ...]
    mask: Bool[Tensor, "group pos"]

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The positions of every group."""
        return tuple(tuple(row.nonzero()[:, 0].tolist()) for row in self.mask)


def position_groups(n_pos: int, by: str, task: Task | None = None, target: int | None = None) -> Groups:
    """Every position by itself, all positions of a role (relative to one target of a task), or all positions at once.

    Raises:
        UserError: an unknown grouping, or roles without a target.
    """
    if by == "position":
        roles = [] if task is None else list(task.roles)[:n_pos]
        labels = [role.label for role in roles] if len(roles) == n_pos else [str(i) for i in range(n_pos)]
        return _by_position(tuple(labels))
    if by == "all":
        return _all_at_once(n_pos)
    if by != "role":
        raise unknown_name("grouping of positions", by, ("position", "role", "all"))
    if task is None or target is None:
        raise UserError("Roles are roles to one target of a task: give pairs, or choose by='position'.")
    found = {role: [p for p in places if p < n_pos] for role, places in task.relative_roles(target).items()}
    return _of_roles({role: places for role, places in found.items() if places}, n_pos)


@cache
def _by_position(labels: tuple[str, ...]) -> Groups:
    return Groups("position", labels, torch.eye(len(labels), dtype=torch.bool))


@cache
def _all_at_once(n_pos: int) -> Groups:
    return Groups("all", ("all",), torch.ones(1, n_pos, dtype=torch.bool))


def _of_roles(roles: dict[str, list[int]], n_pos: int) -> Groups:
    mask = torch.zeros(len(roles), n_pos, dtype=torch.bool)
    for i, places in enumerate(roles.values()):
        mask[i, places] = True
    return Groups("role", tuple(roles), mask)


def check_layers(layers: Sequence[int] | int | None, model: HookedModel) -> list[int]:
    """The layers to sweep over (default: all), counted from 0, each once. Raises UserError for a missing layer."""
    given: Any = range(model.cfg.n_layers) if layers is None else layers
    try:
        chosen = [index(layer) for layer in (given if isinstance(given, Iterable) else [given])]
    except TypeError:
        raise UserError(f"Layers are whole numbers, counted from 0, not {layers!r}.") from None
    if not chosen:
        raise UserError(f"There is no layer to patch: this model has {model.cfg.n_layers}, counted from 0.")
    return list(dict.fromkeys(require_layer(model, layer) for layer in chosen))
