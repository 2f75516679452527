"""Ablation of attention edges: the weights of destinations on sources, of one head or all heads of a layer.

    pattern[dest, src]  ->  0, its mean over the sample, or its value in another example

Without renormalisation the other weights stay as they are. With it the changed rows are scaled to their old sum, as if
the scores of removed edges had been -inf; a row that keeps no weight at all stays zero. Where attention depends on
positions only (MicroAdder), mean and resample change nothing, which is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.core.components import InLayer
from interp.core.problems import check_targets
from interp.core.sites import Site, check_positions
from models.errors import UserError, known_name, unknown_name
from models.tasks import Task
from models.transformer.hooked import HookedModel
from models.transformer.part_names import head_name, in_block, layer_part


@dataclass(frozen=True)
class AttentionEdges(InLayer):
    """(destination, source) positions in the pattern of a head, or of all heads of the layer (``head`` None)."""

    layer: int
    head: int | None
    edges: tuple[tuple[int, int], ...]
    name: str = "edges"
    renormalise: bool = False

    @property
    def label(self) -> str:
        whose = layer_part(self.layer, "attn") if self.head is None else head_name(self.layer, self.head)
        return f"{whose} {self.name}{', renormalised' if self.renormalise else ''}"

    @property
    def site(self) -> Site:
        destinations = tuple(sorted({dest for dest, _ in self.edges}))
        return Site(in_block(self.layer, "attn.hook_pattern"), destinations, self.head)

    def part(self, x: Tensor) -> Tensor:
        """A pattern [*batch, head, query, key] with all entries but the edges' set to zero."""
        dest, src = torch.tensor(self.edges, device=x.device).T
        mask = torch.zeros(x.shape[-3:], dtype=x.dtype, device=x.device)
        mask[slice(None) if self.head is None else self.head, dest, src] = 1
        return x * mask

    def size(self, x: Tensor) -> float:
        return float(self.part(x).abs().max())

    def disturb(self, x: Tensor, noise: Tensor) -> Tensor:
        return noise.tril()  # no query may attend to a later position

    def replace(self, x: Tensor, other: Tensor | None) -> Tensor:
        """Replace as for every part, and renormalise if asked for."""
        new = x - self.part(x) if other is None else x - self.part(x) + self.part(other.to(x))
        if not self.renormalise:
            return new
        before, after = x.sum(-1, keepdim=True), new.sum(-1, keepdim=True)
        changed = (self.part(torch.ones_like(x)).sum(-1, keepdim=True) > 0) & (after > 0)
        return new * torch.where(changed, before / torch.where(after > 0, after, 1.0), 1.0)

    def check(self, model: HookedModel, length: int) -> None:
        super().check(model, length)
        check_positions(tuple(src for _, src in self.edges), length)
        if ahead := [edge for edge in self.edges if edge[1] > edge[0]]:
            raise UserError(f"Position {ahead[0][0]} cannot attend to the later position {ahead[0][1]}.")


def positions_of(task: Task, group: int | str | Sequence[int | str]) -> list[int]:
    """Positions of the model's input, given by number, role ("a3", "=", "s4") or kind ("operand", "answer").

    Raises:
        UserError: a name that no position has, with the closest.
    """
    if not isinstance(group, (int, str)):
        return sorted({position for item in group for position in positions_of(task, item)})
    if isinstance(group, int):
        return [group]
    roles = list(task.roles)[: task.input_length]
    found = [i for i, role in enumerate(roles) if group in (role.label, role.kind)]
    if not found:
        raise unknown_name("role", group, {role.label for role in roles} | {role.kind for role in roles})
    return found


def edges_between(
    task: Task,
    destinations: int | str | Sequence[int | str],
    sources: int | str | Sequence[int | str],
    layer: int = 0,
    head: int | None = None,
    renormalise: bool = False,
    name: str | None = None,
) -> AttentionEdges:
    """All edges from the sources to the destinations that causal attention allows, as one component.

    Groups are positions, roles or kinds (:func:`positions_of`).

    Raises:
        UserError: an unknown role, or no source at or before a destination.
    """
    pairs = [(d, s) for d in positions_of(task, destinations) for s in positions_of(task, sources) if s <= d]
    if not pairs:
        raise UserError(f"No source among {sources!r} stands at or before a destination among {destinations!r}.")
    return AttentionEdges(layer, head, tuple(pairs), name or f"{_text(sources)} to {_text(destinations)}", renormalise)


def _text(group: int | str | Sequence[int | str]) -> str:
    return str(group) if isinstance(group, (int, str)) else ",".join(map(str, group))


def role_edges(
    model: HookedModel,
    task: Task,
    roles: Sequence[str] | None = None,
    targets: Sequence[int] | None = None,
    renormalise: bool = False,
    per_head: bool = True,
) -> list[AttentionEdges]:
    """One component per head and relative role: the edges from, say, "previous operands" to each target's query.

    Roles are ``task.relative_roles(target)``; ``targets`` are numbers of the task's targets (default all). ``per_head``
    False takes the heads of a layer together.

    Raises:
        UserError: a role or target that the task does not have.
    """
    queries = list(task.query_positions)
    chosen = check_targets(task, targets)
    groups = [task.relative_roles(target) for target in chosen]
    known = list(dict.fromkeys(role for group in groups for role in group))
    for role in roles or ():
        known_name("relative role", role, known)
    found = []
    for layer in range(model.cfg.n_layers):
        for head in range(model.cfg.n_heads) if per_head else (None,):
            for role in known if roles is None else roles:
                pairs = tuple(
                    (queries[target], source)
                    for target, group in zip(chosen, groups, strict=True)
                    for source in group.get(role, ())
                    if source <= queries[target]
                )
                if pairs:
                    found.append(AttentionEdges(layer, head, pairs, role, renormalise))
    return found
