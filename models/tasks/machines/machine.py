"""The answer of a task as a machine with a small memory: :func:`machine_of`.

    machine = machine_of(formatted("{a:5}+{b:5}={s:6r}", "a + b"))
    machine.states                       (1, 2, 2, 2, 2, 2, 1): a carry of 0 or 1 between columns
    machine.count()                      10,000,000,000: every problem is one path

A machine is a graph in layers. It says the tokens of a problem and of its answer step by step, where a step has several
tokens, such as a column's digits and the digit written there; between steps it remembers a *state*, such as the carry.
All problems are the paths through it, each exactly one. Steps go in the order in which little has to be remembered:
columns from the units up, in whichever order they are written. Every machine here is the smallest with its steps: two
states from which the same can follow are one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import UserError
from models.tasks.refusals import NoProblems
from models.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a machine: it says the tokens of some slots, by one of a list of options.

    A *slot* is a place of the teacher-forced sequence: slots 0 to input_length - 1 are the input positions, and slot
    input_length + i is target i. A target that is also fed back has two slots in the same step, with the same token.

    Attributes:
        slots: which slots it says.
        tokens: the token that each option puts there.
        before: the state from which an option starts.
        after: the state in which it ends.
        parts: what it adds to the problem's numbers (int64), which are in the task's order.
    """

    slots: tuple[int, ...]
    tokens: Int[np.ndarray, "option slot"]
    before: Int[np.ndarray, " option"]
    after: Int[np.ndarray, " option"]
    parts: Int[np.ndarray, "option operand"]

    @cached_property
    def _tables(self) -> tuple[list[Int[np.ndarray, " key"]], Int[np.ndarray, " option"]]:
        """For each slot, the keys (number of the tokens before it) * most + token that occur, in order, and last the
        option of each number."""
        number, tables = self.before, []
        for token in self.tokens.T:
            table, number = np.unique(number * self._most + token, return_inverse=True)
            tables.append(table)
            number = number.reshape(-1)
        option = np.zeros(int(number.max()) + 1, dtype=np.int64)
        option[number] = np.arange(len(number))
        return tables, option

    @cached_property
    def _most(self) -> int:
        return int(self.tokens.max(initial=0)) + 1

    def option_of(
        self, tokens: Int[np.ndarray, "n slot"], before: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """The option that puts these tokens into :attr:`slots` from a state, and whether there is one."""
        tables, option = self._tables
        number, fits = before, np.asarray(((tokens >= 0) & (tokens < self._most)).all(1))
        for table, token in zip(tables, tokens.T, strict=True):
            key = number * self._most + token
            number = np.minimum(np.searchsorted(table, key), len(table) - 1)
            fits &= table[number] == key
        return option[number], fits


#: For each step, which options are left.
Kept = Sequence[Bool[np.ndarray, " option"]]


@dataclass(frozen=True, eq=False)
class Machine:
    """All problems of a task as the paths of a graph in layers.

    Every problem is exactly one path from a state before the first step to a state after the last one, and every path
    is a problem with its right answer. Every slot is said by exactly one step, or is in ``fixed``.

    Attributes:
        steps: in the order in which states follow each other.
        states: how many states there are before each step, and after the last.
        fixed: the token of every slot that has the same in all problems.
        state_name: the word for the state: "carry", "borrow", "order", "residue", "maximum", "depth", ...
        input_length: how many slots are inputs. n_targets: how many are targets.
        origin: the problem to which a path's parts are added, in the form that the task takes.
        tried: on how many problems it was compared with the task's answer where nothing else is known, as for a Python
            function of too many problems; None where it was derived, or all problems were run.
    """

    steps: tuple[Step, ...]
    states: tuple[int, ...]
    fixed: dict[int, int]
    state_name: str
    input_length: int
    n_targets: int
    origin: Int[Tensor, "*operands"]
    tried: int | None = None

    def count(self, kept: Kept | None = None) -> int:
        """How many paths there are, exactly: the size of the task's domain; or of those whose options are all ``kept``.
        Cost: one pass over all options."""
        return sum((self._following if kept is None else self.following(kept))[0])

    @cached_property
    def _following(self) -> list[list[int]]:
        return self.following([np.ones(len(step.before), bool) for step in self.steps])

    def following(self, kept: Kept) -> list[list[int]]:
        """For every state before each step, and after the last, how many paths of options that are kept lead on from it
        (Python integers)."""
        found = [[1] * self.states[-1]]
        for step, own, n in zip(reversed(self.steps), reversed(kept), reversed(self.states[:-1]), strict=True):
            pairs, times = np.unique(np.stack((step.before[own], step.after[own])), axis=1, return_counts=True)
            counts = [0] * n
            for before, after, each in zip(*pairs.tolist(), times.tolist(), strict=True):
                counts[before] += each * found[0][after]
            found.insert(0, counts)
        return found

    def pruned(self, kept: Kept) -> list[Bool[np.ndarray, " option"]]:
        """The options that lie on a path of options that are kept."""
        found, reached = list(kept), np.ones(self.states[0], bool)
        for k, step in enumerate(self.steps):
            found[k] = found[k] & reached[step.before]
            reached = np.bincount(step.after[found[k]], minlength=self.states[k + 1]) > 0
        for k in range(len(found) - 1, -1, -1):
            step = self.steps[k]
            found[k] = found[k] & reached[step.after]
            reached = np.bincount(step.before[found[k]], minlength=self.states[k]) > 0
        return found

    def first_paths(
        self, kept: Sequence[Bool[np.ndarray, "node option"]] | None = None
    ) -> Int[np.ndarray, "node step"]:
        """The first path of each node whose options are all kept; by default the first of all. Precondition: there is
        one."""
        kept = [np.ones((1, len(step.before)), bool) for step in self.steps] if kept is None else kept
        n = len(kept[0])
        onward = [np.ones((n, self.states[-1]), bool)]
        for k in range(len(kept) - 1, -1, -1):
            node, option = (kept[k] & onward[0][:, self.steps[k].after]).nonzero()
            here = np.zeros((n, self.states[k]), bool)
            here[node, self.steps[k].before[option]] = True
            onward.insert(0, here)
        open_, chosen = onward[0], []
        for k, step in enumerate(self.steps):
            option = (kept[k] & open_[:, step.before] & onward[k + 1][:, step.after]).argmax(1)
            chosen.append(option)
            open_ = np.arange(self.states[k + 1]) == step.after[option][:, None]
        return np.stack(chosen, 1)

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Of every slot that is not in ``fixed``: which step says it, and in which column of that step's tokens."""
        return {slot: (k, column) for k, step in enumerate(self.steps) for column, slot in enumerate(step.slots)}

    def tokens_at(self, slot: int, kept: Kept | None = None) -> list[int]:
        """The tokens that the options of a slot's step have there, all or those that are kept, in order."""
        if slot in self.fixed:
            return [self.fixed[slot]]
        k, column = self.places[slot]
        tokens = self.steps[k].tokens[:, column]
        return np.unique(tokens if kept is None else tokens[kept[k]]).tolist()

    def having(self, wanted: Mapping[int, int]) -> list[Bool[np.ndarray, " option"]]:
        """The options that put the ``wanted`` tokens at these slots, as far as their step says such a slot."""
        found = [np.ones(len(step.before), bool) for step in self.steps]
        for slot, token in wanted.items():
            if slot not in self.fixed:
                k, column = self.places[slot]
                found[k] &= self.steps[k].tokens[:, column] == token
        return found

    def problems(self, options: Int[np.ndarray, "n step"]) -> Int[Tensor, "n *operands"]:
        """The problems of paths, each given by its option in every step."""
        parts = sum(step.parts[options[:, k]] for k, step in enumerate(self.steps))
        return torch.as_tensor(parts).reshape(-1, *self.origin.shape) + self.origin

    def tokens(self, options: Int[np.ndarray, "n step"]) -> Int[np.ndarray, "n slot"]:
        """What the paths say: the teacher-forced inputs, and after them the targets."""
        found = np.full((len(options), self.input_length + self.n_targets), -1)
        for slot, token in self.fixed.items():
            found[:, slot] = token
        for k, step in enumerate(self.steps):
            found[:, list(step.slots)] = step.tokens[options[:, k]]
        return found

    def sample(self, n: int, generator: torch.Generator, rare: bool = False) -> Int[np.ndarray, "n step"]:
        """``n`` paths, uniform over all (up to the rounding of probabilities to float64); with ``rare``, in each step
        every state that can follow is as likely as another."""
        draw = lambda: torch.rand(n, generator=generator, dtype=torch.float64).numpy()  # noqa: E731
        state = _chosen(self._following[0], np.zeros(n, dtype=np.int64), np.zeros(self.states[0], np.int64), draw())
        found = np.empty((n, len(self.steps)), dtype=np.int64)
        for k, step in enumerate(self.steps):
            weights = np.array(self._following[k + 1], dtype=object)[step.after]
            if rare:
                edge = step.before * self.states[k + 1] + step.after
                _, index, times = np.unique(edge, return_inverse=True, return_counts=True)
                weights = 2**20 // times[index.reshape(-1)] + 1
            found[:, k] = _chosen(weights, state, step.before, draw())
            state = step.after[found[:, k]]
        return found

    def least(
        self, values: Sequence[np.ndarray], at: int
    ) -> tuple[Float[np.ndarray, " option"], Int[np.ndarray, "option step"]]:
        """For every option of step ``at``, the least sum of its options' ``values`` that a path through it has (inf if
        none is finite), and that path. Cost: one pass over all options, and a sort in each step."""
        best_before, ways = [np.zeros(self.states[0])], []
        for k, step in enumerate(self.steps[:at]):
            sums = best_before[-1][step.before] + values[k]
            ways.append(_least_of_each(step.after, sums, self.states[k + 1]))
            best_before.append(sums[ways[-1]])
        best_after, onward = np.zeros(self.states[-1]), []
        for k in range(len(self.steps) - 1, at, -1):
            step = self.steps[k]
            sums = best_after[step.after] + values[k]
            onward.insert(0, _least_of_each(step.before, sums, self.states[k]))
            best_after = sums[onward[0]]
        step = self.steps[at]
        paths = np.empty((len(step.before), len(self.steps)), dtype=np.int64)
        paths[:, at], state = np.arange(len(step.before)), step.before
        for k in range(at - 1, -1, -1):
            paths[:, k] = ways[k][state]
            state = self.steps[k].before[paths[:, k]]
        state = step.after
        for k, way in enumerate(onward, at + 1):
            paths[:, k] = way[state]
            state = self.steps[k].after[paths[:, k]]
        return best_before[-1][step.before] + values[at] + best_after[step.after], paths

    def run(self, tokens: Int[np.ndarray, "n slot"]) -> Int[np.ndarray, "n step"]:
        """The paths that say these tokens: the inverse of :meth:`tokens`.

        Raises:
            UserError: a row that no path says.
        """
        if self.states[0] != 1:
            raise UserError("A machine is run from its only first state, and this one has several.")
        wrong = np.zeros(len(tokens), dtype=bool)
        for slot, token in self.fixed.items():
            wrong |= tokens[:, slot] != token
        state = np.zeros(len(tokens), dtype=np.int64)
        found = np.empty((len(tokens), len(self.steps)), dtype=np.int64)
        for k, step in enumerate(self.steps):
            found[:, k], fits = step.option_of(tokens[:, list(step.slots)], state)
            wrong |= ~fits
            state = step.after[found[:, k]]
        if wrong.any():
            raise NotAPath(int(wrong.argmax()))
        return found


class NotAPath(UserError):
    """A row of tokens that no path of a machine says; ``row`` is the first."""

    def __init__(self, row: int):
        super().__init__(f"Row {row} of the tokens is no path of the machine.")
        self.row = row


def _least_of_each(
    state: Int[np.ndarray, " option"], sums: Float[np.ndarray, " option"], n: int
) -> Int[np.ndarray, " state"]:
    """For each of ``n`` states, its option with the least sum."""
    order = np.lexsort((sums, state))
    return order[np.searchsorted(state[order], np.arange(n))]


def _chosen(
    weights: Sequence[int] | np.ndarray, state: Int[np.ndarray, " n"], of: Int[np.ndarray, " option"], draws: np.ndarray
) -> Int[np.ndarray, " n"]:
    """For each draw in [0, 1), one of the options ``of`` its state, in proportion to their weights."""
    order = np.argsort(of, kind="stable")
    most = max(weights)
    scaled = np.array([int(w) / int(most) for w in weights])[order]
    ends, last = np.cumsum(scaled), np.searchsorted(of[order], np.arange(of.max() + 2))
    ends = np.concatenate(([0.0], ends))
    low, high = ends[last[state]], ends[last[state + 1]]
    at = np.searchsorted(ends, low + draws * (high - low), side="right") - 1
    return order[np.clip(at, last[state], last[state + 1] - 1)]


@dataclass(frozen=True, eq=False)
class Layer:
    """What a step says before states are pruned and merged: ``labels`` are different where tokens are."""

    slots: tuple[int, ...]
    tokens: Int[np.ndarray, "label slot"]
    parts: Int[np.ndarray, "label operand"]
    before: Int[np.ndarray, " edge"]
    label: Int[np.ndarray, " edge"]
    after: Int[np.ndarray, " edge"]
    n_before: int


def smallest(layers: Sequence[Layer], accepted: np.ndarray) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Steps and numbers of states of the smallest graph with the paths of some layers that end in accepted states.

    Precondition: in each layer, a state has at most one edge with a label. Lemma: from the last layer down, two states
    may be one if they have the same edges (label, state after), and a state with none is on no path; what is left is
    then the smallest deterministic graph with these paths (Myhill and Nerode, in layers). States keep their order.
    """
    names = np.where(accepted, 0, -1)
    steps: list[Step] = []
    states = [1]
    for layer in reversed(layers):
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
        steps.insert(
            0, Step(layer.slots, layer.tokens[label[kept]], name[rows[kept]], after[kept], layer.parts[label[kept]])
        )
        states.insert(0, len(one))
    return tuple(steps), tuple(states)


def target_slots(task: Task, target: int) -> tuple[int, ...]:
    """The slots of a target: its own, and the position where it is read."""
    after = task.query_positions[target] + 1
    return (task.input_length + target, *([after] if after < task.input_length else []))


def sequences(task: Task, problems: Any) -> Int[np.ndarray, "n slot"]:
    """The teacher-forced inputs of problems, and after them their targets: what a machine of the task says."""
    found = torch.cat((task.encode(problems), task.targets(problems)), 1)
    return found.cpu().numpy().astype(np.int64)
