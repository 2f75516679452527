"""From a task's machine to what one query sees of it.

Options that show the query the same tokens become one (:func:`merge_options`), states that no longer make a difference
are merged (:func:`merge_states`), and steps without any state are taken apart into their positions
(:func:`split_free_steps`). An option has three numbers:

    in the task's machine    as its layer lists them
    in the projection        :class:`_Seen`: without what is said at other slots
    in the step              :class:`~interp.proofs.machine.path_graph.VisibleStep`: for one token at the query
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from interp.proofs.machine.path_graph import Label, QueryPaths, VisibleStep
from models.tasks import Layer, Machine

#: More states than these are not kept for all right tokens at once; each right token then has paths of its own.
MOST_STATES = 8
#: A query's classes are split by the state around the target's step up to this many for one right token.
MOST_LABELS = 8


def query_paths(machine: Machine, query: int, target: int, keys: Collection[int] | None = None) -> list[QueryPaths]:
    """What a query sees, for each token that it can have, in order; if the states are many, for each right token.

    ``keys`` are the positions that it sees, its own included; by default all up to its own.
    """
    slot = machine.input_length + target
    seen = _Seen.of(machine, {*(range(query + 1) if keys is None else keys), slot})
    found = []
    for token in seen.machine.tokens_at(query):
        kept = seen.machine.trimmed(seen.machine.having({query: token}))
        paths = _project(seen, kept, query, token, target)
        if max((step.states[0] for step in paths.steps), default=1) <= MOST_STATES:
            found.append(paths)
            continue
        for answer in seen.machine.tokens_at(slot, kept):
            some = seen.machine.trimmed(seen.machine.having({query: token, slot: answer}))
            found.append(_project(seen, some, query, token, target, labelled=False))
    return found


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a machine says at some slots.

    Attributes:
        whole: the task's machine. machine: it without the other slots, with as few states as that needs; its paths are
            those of ``whole`` as far as they are seen, and its parts are empty.
        source: for each step, which of the task's steps it is, and which option here each of that step's options is.
    """

    whole: Machine
    machine: Machine
    source: tuple[tuple[int, Int[np.ndarray, " original"]], ...]

    @classmethod
    def of(cls, whole: Machine, slots: Collection[int]) -> _Seen:
        after, found = np.zeros(whole.states[-1], np.int64), []
        for k in range(len(whole.layers) - 1, -1, -1):
            step = whole.layers[k]
            columns = [i for i, slot in enumerate(step.slots) if slot in slots]
            rows = np.concatenate((after[step.after][:, None], step.tokens[:, columns]), 1)
            before, n = merge_states(step.before, rows, np.ones(len(rows), bool), whole.states[k])
            full = np.concatenate((rows[:, :1], before[step.before][:, None], rows[:, 1:]), 1)
            unique, number = np.unique(full, axis=0, return_inverse=True)
            if len(unique) == n and not columns and (k or found):  # it says nothing, and keeps states apart
                after = unique[np.argsort(unique[:, 1]), 0][before]
                continue
            parts = np.zeros((len(unique), 0), np.int64)
            own = Layer(tuple(step.slots[i] for i in columns), unique[:, 2:], unique[:, 1], unique[:, 0], parts)
            found.insert(0, (own, n, (k, number.reshape(-1))))
            after = before
        # A path may begin in any state, so that steps which say nothing are not needed at the start.
        while len(found) > 1 and not found[0][0].slots:
            found.pop(0)
        steps, states, source = zip(*found, strict=True)
        fixed = {slot: token for slot, token in whole.fixed.items() if slot in slots}
        return cls(whole, replace(whole, layers=steps, states=(*states, 1), fixed=fixed), source)


def _project(
    seen: _Seen, kept: list[np.ndarray], query: int, token: int, target: int, labelled: bool = True
) -> QueryPaths:
    """The paths that a query sees of a machine, of which the options in ``kept`` are left."""
    machine = seen.machine
    slot = machine.input_length + target
    at = machine.places.get(slot)
    labels, label_of = _labels(machine, kept, slot, at, labelled)
    after = np.zeros(machine.states[-1], np.int64)  # the class of each state: all ends are alike
    classes, steps = 1, []
    for k in range(len(machine.layers) - 1, -1, -1):
        step, mask = machine.layers[k], kept[k]
        at_target = at is not None and k == at[0]
        label = label_of if at_target else np.zeros(len(mask), np.int64)
        inputs = [i for i, s in enumerate(step.slots) if s < machine.input_length]
        rows = np.concatenate((after[step.after][:, None], label[:, None], step.tokens[:, inputs]), 1)
        before, n = merge_states(step.before, rows, mask, machine.states[k])
        positions = tuple(step.slots[i] for i in inputs)
        found = merge_options(positions, rows, before[step.before], mask, (n, classes), seen.source[k])
        is_labelled = bool(label.any()) or (at_target and len(labels) > 1)
        steps = [*split_free_steps(found, is_labelled), *steps]
        after, classes = before, n
    alone, varies = keep_varying(steps, query)
    fixed = [(p, t) for p, t in machine.fixed.items() if p < machine.input_length] + alone
    if all(p != query for p, _ in fixed):
        fixed.append((query, token))
    at_step = None
    if at is not None and len(labels) > 1:
        own = seen.source[at[0]][0]
        at_step = next(i for i, step in enumerate(varies) if step.source[0] == own and len(np.unique(step.label)) > 1)
    whole = [np.ones(len(step.before), bool) for step in seen.whole.layers]
    for (k, number), mask in zip(seen.source, kept, strict=True):
        whole[k] = mask[number]
    whole = tuple(seen.whole.trimmed(whole))
    return QueryPaths(seen.whole, query, token, target, tuple(sorted(fixed)), varies, labels, at_step, whole)


def merge_options(
    positions: tuple[int, ...],
    rows: Int[np.ndarray, "option n"],
    before: Int[np.ndarray, " option"],
    kept: Bool[np.ndarray, " option"],
    states: tuple[int, int],
    source: tuple[int, Int[np.ndarray, " original"]],
) -> VisibleStep:
    """A step in which options of the projection with the same tokens between the same states are one.

    ``rows`` are the state after, the label and the tokens of each option, ``before`` the state before it.
    """
    full = np.concatenate((rows[:, :1], before[:, None], rows[:, 1:]), 1)
    unique, number = np.unique(full[kept], axis=0, return_inverse=True)
    numbers = np.full(len(kept), -1)
    numbers[kept] = number.reshape(-1)
    k, of_original = source
    return VisibleStep(
        positions, unique[:, 3:], unique[:, 1], unique[:, 0], unique[:, 2], states, (k, numbers[of_original])
    )


def keep_varying(steps: list[VisibleStep], query: int) -> tuple[list[tuple[int, int]], tuple[VisibleStep, ...]]:
    """((position, token) of what steps with one option say; the steps with several, without the query's position)."""
    alone = [step for step in steps if len(step) == 1]
    fixed = [(p, int(step.tokens[0, i])) for step in alone for i, p in enumerate(step.positions)]
    varies = tuple(without_position(step, query) for step in steps if len(step) > 1)
    if not varies:  # the query sees the same in all problems: one path, of a step that says nothing
        varies = (replace(steps[0], positions=(), tokens=steps[0].tokens[:, :0]),)
    return fixed, varies


def without_position(step: VisibleStep, query: int) -> VisibleStep:
    """The step without the query's own position, whose token is fixed."""
    if query not in step.positions:
        return step
    kept = [i for i, p in enumerate(step.positions) if p != query]
    positions = tuple(step.positions[i] for i in kept)
    return VisibleStep(positions, step.tokens[:, kept], step.before, step.after, step.label, step.states, step.source)


def _labels(
    machine: Machine, kept: list[np.ndarray], slot: int, at: tuple[int, int] | None, labelled: bool
) -> tuple[tuple[Label, ...], Int[np.ndarray, " option"]]:
    """The classes, and each option's at the target's step."""
    if at is None:
        return (Label(machine.fixed[slot], 0, 0),), np.zeros(0, np.int64)
    k, column = at
    step, mask = machine.layers[k], kept[k]
    answer = step.tokens[:, column]
    rows = np.stack((answer, step.before, step.after), 1)
    per_answer = len(np.unique(rows[mask], axis=0)) / max(1, len(np.unique(answer[mask])))
    if not labelled or per_answer > MOST_LABELS:
        rows = np.stack((answer, 0 * answer, 0 * answer), 1)
    unique, number = np.unique(rows[mask], axis=0, return_inverse=True)
    label = np.zeros(len(mask), np.int64)
    label[mask] = number.reshape(-1)
    return tuple(Label(*map(int, row)) for row in unique), label


def merge_states(
    before: Int[np.ndarray, " option"],
    rows: Int[np.ndarray, "option n"],
    kept: Bool[np.ndarray, " option"],
    states: int,
) -> tuple[Int[np.ndarray, " state"], int]:
    """The class of every state: two are alike if the same rows go on from both."""
    found, number = {}, np.zeros(states, np.int64)
    order = np.lexsort((*rows.T[::-1], before))
    order = order[kept[order]]
    bounds = np.searchsorted(before[order], np.arange(states + 1))
    for state in range(states):
        own = np.unique(rows[order[bounds[state] : bounds[state + 1]]], axis=0)
        number[state] = found.setdefault(own.tobytes(), len(found)) if len(own) else 0
    return number, max(1, len(found))


def split_free_steps(step: VisibleStep, labelled: bool) -> list[VisibleStep]:
    """A step without states as one step for each position, where every combination of their tokens occurs."""
    n = step.tokens.shape[1]
    if step.states != (1, 1) or labelled or n < 2:
        return [step]
    values = [np.unique(column) for column in step.tokens.T]
    if np.prod([len(value) for value in values]) != len(step):
        return [step]
    k, number = step.source
    found = []
    for i, value in enumerate(values):
        own = np.where(number >= 0, np.searchsorted(value, step.tokens[number, i]), -1)
        zeros = np.zeros(len(value), np.int64)
        found.append(VisibleStep((step.positions[i],), value[:, None], zeros, zeros, zeros, (1, 1), (k, own)))
    return found
