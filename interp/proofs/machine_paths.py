"""Paths of a machine all of whose options are kept: which options lie on one, how many there are, and the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from models.tasks.machine import Machine


def pruned(machine: Machine, kept: Sequence[Bool[np.ndarray, " option"]]) -> list[Bool[np.ndarray, " option"]]:
    """The options that lie on a path of options that are kept."""
    found, reached = list(kept), np.ones(machine.states[0], bool)
    for k, step in enumerate(machine.steps):
        found[k] = found[k] & reached[step.before]
        reached = np.bincount(step.after[found[k]], minlength=machine.states[k + 1]) > 0
    for k in range(len(found) - 1, -1, -1):
        step = machine.steps[k]
        found[k] = found[k] & reached[step.after]
        reached = np.bincount(step.before[found[k]], minlength=machine.states[k]) > 0
    return found


def _onward(machine: Machine, kept: Sequence[Bool[np.ndarray, " option"]]) -> list[list[int]]:
    """For every state before each step, and after the last, how many paths lead on (Python integers)."""
    counts = [[1] * machine.states[-1]]
    for k in range(len(kept) - 1, -1, -1):
        step = machine.steps[k]
        pairs = step.before[kept[k]] * machine.states[k + 1] + step.after[kept[k]]
        here = [0] * machine.states[k]
        for pair, times in zip(*(x.tolist() for x in np.unique(pairs, return_counts=True)), strict=True):
            before, after = divmod(pair, machine.states[k + 1])
            here[before] += times * counts[0][after]
        counts.insert(0, here)
    return counts


def count_within(machine: Machine, kept: Sequence[Bool[np.ndarray, " option"]]) -> int:
    """How many paths have only options that are kept, exactly."""
    return sum(_onward(machine, kept)[0])


def first_paths(machine: Machine, kept: Sequence[Bool[np.ndarray, "node option"]]) -> Int[np.ndarray, "node step"]:
    """The first path of each node whose options are all kept. Precondition: there is one."""
    n = len(kept[0])
    onward = [np.ones((n, machine.states[-1]), bool)]
    for k in range(len(kept) - 1, -1, -1):
        step = machine.steps[k]
        leads = kept[k] & onward[0][:, step.after]
        node, option = leads.nonzero()
        here = np.zeros((n, machine.states[k]), bool)
        here[node, step.before[option]] = True
        onward.insert(0, here)
    open_, chosen = onward[0], []
    for k, step in enumerate(machine.steps):
        option = (kept[k] & open_[:, step.before] & onward[k + 1][:, step.after]).argmax(1)
        chosen.append(option)
        open_ = np.arange(machine.states[k + 1]) == step.after[option][:, None]
    return np.stack(chosen, 1)
