"""What the keys of a query are to its target, and the names of targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool

from models.tasks import Task
from models.tasks.roles import with_rest

#: The row of a table that is about all targets together.
ALL_TARGETS = "all targets"


def visible_roles(task: Task, target: int) -> dict[str, list[int]]:
    """A target's relative roles over the positions up to its query; positions without a role are added to "rest"."""
    return with_rest(task.relative_roles(target), task.query_positions[target])


def membership(
    groups: Sequence[Mapping[str, Sequence[int]]], n_keys: int
) -> tuple[list[str], Bool[np.ndarray, "target role key"]]:
    """The roles of positions relative to each target, in order of appearance, and which keys have which role."""
    names = list(dict.fromkeys(name for group in groups for name in group))
    member = np.zeros((len(groups), len(names), n_keys), dtype=bool)
    for target, group in enumerate(groups):
        for name, keys in group.items():
            member[target, names.index(name), list(keys)] = True
    return names, member


def target_labels(task: Task, targets: Sequence[int] | None = None) -> list[str]:
    """A name for each target: its role's label. Labels that several targets share are numbered: ">", "> (2)", ..."""
    seen: dict[str, int] = {}
    names = []
    for role in task.target_roles:
        seen[role.label] = seen.get(role.label, 0) + 1
        names.append(role.label if seen[role.label] == 1 else f"{role.label} ({seen[role.label]})")
    return names if targets is None else [names[target] for target in targets]
