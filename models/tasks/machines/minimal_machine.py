"""The smallest layers with the paths of some others: what a derivation says, with states merged (:func:`minimised`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from models.tasks.machines.machine import Layer
from models.tasks.refusals import NoProblems


@dataclass(frozen=True, eq=False)
class RawLayer:
    """What a layer says before states are trimmed and merged: ``labels`` are different where tokens are."""

    slots: tuple[int, ...]
    tokens: Int[np.ndarray, "label slot"]
    increments: Int[np.ndarray, "label operand"]
    before: Int[np.ndarray, " edge"]
    label: Int[np.ndarray, " edge"]
    after: Int[np.ndarray, " edge"]
    n_before: int


def minimised(raw: Sequence[RawLayer], accepted: np.ndarray) -> tuple[tuple[Layer, ...], tuple[int, ...]]:
    """Layers and numbers of states of the smallest graph with the paths of some layers that end in accepted states.

    Precondition: in each layer, a state has at most one edge with a label. Lemma: from the last layer down, two states
    may be one if they have the same edges (label, state after), and a state with none is on no path; what is left is
    then the smallest deterministic graph with these paths (Myhill and Nerode, in layers). States keep their order.
    """
    names = np.where(accepted, 0, -1)
    layers: list[Layer] = []
    states = [1]
    for layer in reversed(raw):
        after = names[layer.after]
        alive = after >= 0
        before, label, after = layer.before[alive], layer.label[alive], after[alive]
        if not len(before):
            raise NoProblems
        order = np.lexsort((label, before))
        before, label, after = before[order], label[order], after[order]
        first, count = np.unique(before, return_index=True, return_counts=True)[1:]
        rows = np.repeat(np.arange(len(first)), count)
        edge = label * states[0] + after
        table = np.full((len(first), int(count.max())), -1, dtype=np.int64)
        table[rows, np.arange(len(before)) - np.repeat(first, count)] = edge
        as_bytes = np.ascontiguousarray(table).view(np.dtype((np.void, 8 * table.shape[1])))[:, 0]
        _, one, same = np.unique(as_bytes, return_index=True, return_inverse=True)
        rank = np.empty(len(one), dtype=np.int64)
        rank[np.argsort(one)] = np.arange(len(one))  # in the order of the first of each
        name = rank[same.reshape(-1)]
        names = np.full(layer.n_before, -1)
        names[before[first]] = name
        kept = np.isin(rows, one)
        layers.insert(
            0,
            Layer(layer.slots, layer.tokens[label[kept]], name[rows[kept]], after[kept], layer.increments[label[kept]]),
        )
        states.insert(0, len(one))
    return tuple(layers), tuple(states)
