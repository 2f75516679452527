"""Sets of keys with which attention is compared.

A key set has a name (a role) and says for every target which keys belong to it. :func:`keys_by_role` uses the roles
that any task gives its positions, :func:`key_sets` those that a function names. Keys on which a head rests, such as
BOS, are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.key_roles import membership
from models.errors import known_name
from models.tasks import REST, Task

CLIP = 0.01  # weights up to this are not attended to (the clipping of Position Coupling's Figure 7)


@dataclass(frozen=True, eq=False)
class KeySets:
    """The keys of every role at every target.

    ``member`` rows are empty where a role is not defined. ``visible`` marks the keys up to the query, without the
    ``resting`` ones (BOS), and ``in_query`` the tokens before the response. ``column`` and ``step`` say which digit of
    which number a target is (column -1: a delimiter); ``queries`` are the positions that predict the targets.
    """

    roles: tuple[str, ...]
    member: Bool[np.ndarray, "role target key"]
    visible: Bool[np.ndarray, "target key"]
    resting: Bool[np.ndarray, " key"]
    in_query: Bool[np.ndarray, " key"]
    queries: tuple[int, ...]
    step: Int[np.ndarray, " target"]
    column: Int[np.ndarray, " target"]
    target_labels: tuple[str, ...]

    @property
    def defined(self) -> Bool[np.ndarray, "role target"]:
        return np.any(self.member, axis=-1)

    def index(self, role: str) -> int:
        return self.roles.index(known_name("role", role, self.roles))

    def only(self, roles: Sequence[str]) -> KeySets:
        """The key sets of these roles, as far as they exist."""
        kept = [role for role in self.roles if role in roles]
        return replace(self, roles=tuple(kept), member=self.member[[self.index(role) for role in kept]])

    def ideal(self, role: str, bos: bool = False) -> Float[np.ndarray, "target key"]:
        """Equal weights on the role's keys (and BOS, as in the construction); zeros where the role is not defined."""
        keys = self.member[self.index(role)].astype(float)
        if bos:
            keys[:, self.resting] = keys.any(1)[:, None]
        return keys / np.maximum(keys.sum(1, keepdims=True), 1)

    def shuffled(self, resamples: int, seed: int) -> Bool[np.ndarray, "draw role target key"]:
        """Random key sets: for every target as many visible tokens of the query, and as many of the response, as the
        role has there. A head that attends by place only (recent tokens, the query) does as well on these."""
        rng = np.random.default_rng(seed)
        drawn = np.zeros((resamples, *self.member.shape), dtype=bool)
        for target, visible in enumerate(self.visible):
            for side in (self.in_query, ~self.in_query):
                pool = np.flatnonzero(visible & side)
                if not len(pool):
                    continue
                order = pool[np.argsort(rng.random((resamples, len(pool))), axis=1)]
                for role, keys in enumerate(self.member[:, target] & side):
                    chosen = order[:, : int(keys.sum())]
                    drawn[np.arange(resamples)[:, None], role, target, chosen] = True
        return drawn


def key_sets(task: Task, positions: Callable[[int], Mapping[str, Sequence[int]]]) -> KeySets:
    """The key sets of a task whose tokens have fixed places.

    Args:
        positions: gives a target's positions by role; those that its query does not see are left out.
    """
    roles, queries = list(task.roles), list(task.query_positions)
    key = np.arange(task.input_length)
    resting = np.array([role.kind == "bos" for role in roles[: len(key)]])
    seen = [
        {name: [at for at in keys if at <= query and not resting[at]] for name, keys in positions(target).items()}
        for target, query in enumerate(queries)
    ]
    names, member = membership(seen, len(key))
    targets = list(task.target_roles)
    return KeySets(
        roles=tuple(names),
        member=member.transpose(1, 0, 2),
        visible=(key <= np.array(queries)[:, None]) & ~resting,
        resting=resting,
        in_query=key < queries[0],
        queries=tuple(queries),
        step=np.array([role.index or 0 for role in targets]),
        column=np.array([-1 if role.column is None else role.column for role in targets]),
        target_labels=tuple(role.label for role in targets),
    )


def keys_by_role(task: Task) -> KeySets:
    """The key sets of the roles that the task gives its positions for each target, without "rest"."""

    def positions(target: int) -> dict[str, list[int]]:
        return {name: keys for name, keys in task.relative_roles(target).items() if name != REST}

    found = key_sets(task, positions)
    return found.only([role for role, where in zip(found.roles, found.defined, strict=True) if where.any()])
