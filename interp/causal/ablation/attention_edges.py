"""Attention edges by the roles of their ends: what is ablated of a pattern, as places of it.

pattern[dest, src]  ->  0, its mean over the sample, or its value in another example
"""

from __future__ import annotations

from collections.abc import Sequence

from interp.causal.ablation.components import AttentionEdges
from interp.core.places import Place
from interp.core.task_checks import check_targets
from models.errors import known_name
from models.tasks import Task
from models.transformer import HookedModel


def role_edges(
    model: HookedModel,
    task: Task,
    roles: Sequence[str] | None = None,
    targets: Sequence[int] | None = None,
    renormalise: bool = False,
    per_head: bool = True,
) -> list[Place]:
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
