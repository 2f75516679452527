"""Which keys the algorithm of multi-operand addition needs: the ground truth that attention is measured against.

With the scratchpad ``a_1+...+a_m=b_0>b_1>...>b_m$``, predicting digit k of b_i, the four heads of Theorem 4.1 attend,
besides BOS, to exactly these tokens (D.5 of the Position Coupling paper):

    sum      a_i[k], b_{i-1}[k]                      the digits to be added
    carry    a_i[k-1], b_{i-1}[k-1]                  the digits that decide, with b_i[k-1], whether a carry comes in
    arrow    digit k of a_1 ... a_m, b_0 ... b_{i-1}  none are left behind the last digit: then ">" or EOS follows
    eos      b_i[k-1] (the query's own token) and a_{i+1}[k-1]    there is no a_{m+1}: the sum is the last one

"sum" and "carry" are ``task.needed_positions``: no constructed reading for delimiters, b_0 and (carry) units digits.
"arrow" is a superset of "sum", for digits only; "eos" exists for every target. Without the scratchpad, "sum" is the own
digit of *every* operand, "carry" the one before it, and the other two have no counterpart; nor have they where the
response is written from its most significant digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.core.model import HookedModel
from interp.core.problems import Sample, draw, resolve_task
from models.errors import UserError
from models.tasks.multi_addition import EQUALS, MultiOperandAddition

NEEDED = ("sum", "carry")
ROLES = ("sum", "carry", "arrow", "eos")
ROLE_NAMES = {"sum": "digit sum", "carry": "carry", "arrow": "arrow", "eos": "EOS"}
HAND_BUILT_HEADS = {0: "sum", 1: "carry", 2: "arrow", 3: "eos"}  # heads 1-4 of the theorem, counted from 0


@dataclass(frozen=True, eq=False)
class KeySets:
    """The constructed keys of every role at every target, BOS apart.

    ``member`` rows are empty where a role is not defined; ``visible`` are the keys up to the query, BOS apart;
    ``in_query`` the tokens before the response; ``step`` and ``column`` say which digit of which running sum a target
    is (column -1: the delimiter behind it); ``queries`` where each target is predicted.
    """

    roles: tuple[str, ...]
    member: Bool[np.ndarray, "role target key"]
    visible: Bool[np.ndarray, "target key"]
    in_query: Bool[np.ndarray, " key"]
    queries: tuple[int, ...]
    step: Int[np.ndarray, " target"]
    column: Int[np.ndarray, " target"]
    target_labels: tuple[str, ...]
    key_labels: tuple[str, ...]

    @property
    def defined(self) -> Bool[np.ndarray, "role target"]:
        return np.any(self.member, axis=-1)

    def index(self, role: str) -> int:
        if role not in self.roles:
            raise UserError(f"There is no role {role!r} in this format; there is {', '.join(self.roles)}.")
        return self.roles.index(role)

    def ideal(self, role: str, bos: bool = False) -> Float[np.ndarray, "target key"]:
        """Equal weights on the role's keys (and BOS, as constructed); rows of zeros where it is not defined."""
        keys = self.member[self.index(role)].astype(float)
        if bos:
            keys[:, 0] = keys.any(1)
        return keys / np.maximum(keys.sum(1, keepdims=True), 1)

    def shuffled(self, draws: int, seed: int) -> Bool[np.ndarray, "draw role target key"]:
        """Random key sets: for every target as many visible tokens of the query, and as many of the response, as the
        role has there. A head that attends by place alone (recent tokens, the query) does as well on these."""
        rng = np.random.default_rng(seed)
        drawn = np.zeros((draws, *self.member.shape), dtype=bool)
        for target, visible in enumerate(self.visible):
            for side in (self.in_query, ~self.in_query):
                pool = np.flatnonzero(visible & side)
                if not len(pool):
                    continue
                order = pool[np.argsort(rng.random((draws, len(pool))), axis=1)]
                for role, keys in enumerate(self.member[:, target] & side):
                    chosen = order[:, : int(keys.sum())]
                    drawn[np.arange(draws)[:, None], role, target, chosen] = True
        return drawn


def key_sets(task: MultiOperandAddition) -> KeySets:
    """The key sets of a task's shape. Cost: [target, key] of comparisons a role.

    Raises:
        UserError: a format without fixed places.
    """
    roles, queries = list(task.roles), list(task.query_positions)
    n_keys, n_targets = task.input_length, len(queries)
    key, query = np.arange(n_keys), np.array(queries)
    visible = (key <= query[:, None]) & (key > 0)
    found: dict[str, np.ndarray] = {name: np.zeros((n_targets, n_keys), dtype=bool) for name in NEEDED}
    for target in range(n_targets):
        for name, positions in task.needed_positions(target).items():
            found[name][target, [position for position in positions if position <= queries[target]]] = True
    column = np.array([-1 if role.column is None else role.column for role in task.target_roles])
    if task.format.scratchpad and task.format.reversed_response:
        layout = task.encode(torch.zeros(1, task.n_operands, task.n_digits, dtype=torch.int64))
        ids = task.position_ids(layout)[0].numpy()
        level1, level2 = ids[:, 0], ids[:, 1]
        after = level1 == level1[query][:, None] + 1  # keys of the significance to be predicted
        own = (level1 == level1[query][:, None]) & (level2 == level2[query][:, None])
        found["arrow"] = after & visible & (column >= 0)[:, None]
        found["eos"] = own & visible
    kinds = {"operand": False, "scratchpad": True, "answer": True}
    equals = next(i for i, role in enumerate(roles) if role.label == task.vocabulary[EQUALS])
    assert all((kinds[role.kind] == (i > equals)) for i, role in enumerate(roles) if role.kind in kinds)
    return KeySets(
        roles=tuple(found),
        member=np.stack(list(found.values())),
        visible=visible,
        in_query=key < equals,
        queries=tuple(queries),
        step=np.array([_step(task, target) for target in range(n_targets)]),
        column=column,
        target_labels=_distinct([role.label for role in task.target_roles], task),
        key_labels=tuple(role.label for role in roles[:n_keys]),
    )


def _step(task: MultiOperandAddition, target: int) -> int:
    """Which running sum a target belongs to; a ">" belongs to the number before it."""
    role = task.target_roles[target]
    if role.kind == "delimiter":
        return int(role.index or 0) - 1
    return task.n_operands if role.index is None else int(role.index)


def _distinct(labels: Sequence[str], task: MultiOperandAddition) -> tuple[str, ...]:
    """Target labels in which ">" says which number it follows."""
    return tuple(f"{label} after b{_step(task, i)}" if label == ">" else label for i, label in enumerate(labels))


def draw_coupled(task: MultiOperandAddition, problems: Any, n: int, seed: int) -> Sample:
    """:func:`interp.core.problems.draw`, with the shape of the problems in their provenance."""
    sample = draw(task, problems, n, seed)
    operands, digits = task.shape
    if sample.provenance.seed is None:
        source = f"{sample.provenance.source} ({operands} operands of up to {digits} digits)"
    else:
        source = f"problems of T_A({digits}, {operands})"
    return replace(sample, provenance=replace(sample.provenance, source=source))


def resolve_coupled_task(model: HookedModel, task: Any) -> MultiOperandAddition:
    """The multi-operand addition to ask about; the model's own, in its own shape, unless given.

    Raises:
        UserError: another task, or one whose tokens have no fixed places.
    """
    found = resolve_task(model, task)
    if not isinstance(found, MultiOperandAddition):
        raise UserError(
            f"These probes know the keys that multi-operand addition needs, not those of {found.name!r}; "
            "pass task=MultiOperandAddition(operands, digits)."
        )
    if not found.has_fixed_layout:
        raise UserError("Without zero padding tokens have no fixed places; these probes need the padded format.")
    return found
