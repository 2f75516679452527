"""The answer of a task as a machine with a small memory: :func:`machine_of`.

    machine = machine_of(formatted("{a:5}+{b:5}={s:6r}", "a + b"))
    machine.states                       (1, 2, 2, 2, 2, 2, 1): a carry of 0 or 1 between columns
    machine.count()                      10,000,000,000: every problem is one path

A machine is a graph in layers. It says the tokens of a problem and of its answer layer by layer, where a layer has
several tokens, such as a column's digits and the digit written there; between layers it remembers a *state*, such as
the carry. All problems are the paths through it, each exactly one. Layers go in the order in which little has to be
remembered: columns from the units up, in whichever order they are written. Every machine here is the smallest with its
layers: two states from which the same can follow are one.
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
from models.tasks.task import Task


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a machine: it says the tokens of some slots, by one of a list of transitions.

    A *slot* is a place of the teacher-forced sequence: slots 0 to input_length - 1 are the input positions, and slot
    input_length + i is target i. A target that is also fed back has two slots in the same layer, with the same token.

    Attributes:
        slots: which slots it says.
        tokens: the token that each transition puts there.
        before: the state from which a transition starts.
        after: the state in which it ends.
        increments: what it adds to the problem's numbers (int64), which are in the task's order.
    """

    slots: tuple[int, ...]
    tokens: Int[np.ndarray, "transition slot"]
    before: Int[np.ndarray, " transition"]
    after: Int[np.ndarray, " transition"]
    increments: Int[np.ndarray, "transition operand"]

    @cached_property
    def _tables(self) -> tuple[list[Int[np.ndarray, " key"]], Int[np.ndarray, " transition"]]:
        """A trie over the tokens of a layer: row after row, (node so far, token) -> node, kept sorted so that all
        problems are looked up at once. It begins with the states; the last nodes are numbers of transitions."""
        number, tables = self.before, []
        for token in self.tokens.T:
            table, number = np.unique(number * self._most + token, return_inverse=True)
            tables.append(table)
            number = number.reshape(-1)
        transition = np.zeros(int(number.max()) + 1, dtype=np.int64)
        transition[number] = np.arange(len(number))
        return tables, transition

    @cached_property
    def _most(self) -> int:
        return int(self.tokens.max(initial=0)) + 1

    def transition_of(
        self, tokens: Int[np.ndarray, "n slot"], before: Int[np.ndarray, " n"]
    ) -> tuple[Int[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """The transition that puts these tokens into :attr:`slots` from a state, and whether there is one."""
        tables, transition = self._tables
        number, fits = before, np.asarray(((tokens >= 0) & (tokens < self._most)).all(1))
        for table, token in zip(tables, tokens.T, strict=True):
            key = number * self._most + token
            number = np.minimum(np.searchsorted(table, key), len(table) - 1)
            fits &= table[number] == key
        return transition[number], fits


#: For each layer, which transitions are left.
Allowed = Sequence[Bool[np.ndarray, " transition"]]


@dataclass(frozen=True, eq=False)
class Machine:
    """All problems of a task as the paths of a graph in layers.

    Every problem is exactly one path from a state before the first layer to a state after the last one, and every path
    is a problem with its right answer. Every slot is said by exactly one layer, or is in ``fixed``.

    Attributes:
        layers: in the order in which states follow each other.
        states: how many states there are before each layer, and after the last.
        fixed: the token of every slot that has the same in all problems.
        state_name: the word for the state: "carry", "borrow", "order", "residue", "maximum", "depth", ...
        input_length: how many slots are inputs. n_targets: how many are targets.
        origin: the problem to which a path's increments are added, in the form that the task takes.
        checked_on: on how many problems it was compared with the task's answer where nothing else is known, as for a
            Python function of too many problems; None where it was derived, or all problems were run.
    """

    layers: tuple[Layer, ...]
    states: tuple[int, ...]
    fixed: dict[int, int]
    state_name: str
    input_length: int
    n_targets: int
    origin: Int[Tensor, "*operands"]
    checked_on: int | None = None

    def count(self, allowed: Allowed | None = None) -> int:
        """How many paths there are, exactly: the size of the task's domain; or of those whose transitions are all
        ``allowed``. Cost: one pass over all transitions."""
        return sum((self._path_counts if allowed is None else self.path_counts(allowed))[0])

    @cached_property
    def _path_counts(self) -> list[list[int]]:
        return self.path_counts([np.ones(len(layer.before), bool) for layer in self.layers])

    def path_counts(self, allowed: Allowed) -> list[list[int]]:
        """For every state before each layer, and after the last, how many paths of transitions that are allowed lead on
        from it (Python integers)."""
        found = [[1] * self.states[-1]]
        for layer, own, n in zip(reversed(self.layers), reversed(allowed), reversed(self.states[:-1]), strict=True):
            pairs, times = np.unique(np.stack((layer.before[own], layer.after[own])), axis=1, return_counts=True)
            counts = [0] * n
            for before, after, each in zip(*pairs.tolist(), times.tolist(), strict=True):
                counts[before] += each * found[0][after]
            found.insert(0, counts)
        return found

    def trimmed(self, allowed: Allowed) -> list[Bool[np.ndarray, " transition"]]:
        """The transitions that lie on a path of transitions that are allowed."""
        found, reached = list(allowed), np.ones(self.states[0], bool)
        for k, layer in enumerate(self.layers):
            found[k] = found[k] & reached[layer.before]
            reached = np.bincount(layer.after[found[k]], minlength=self.states[k + 1]) > 0
        for k in range(len(found) - 1, -1, -1):
            layer = self.layers[k]
            found[k] = found[k] & reached[layer.after]
            reached = np.bincount(layer.before[found[k]], minlength=self.states[k]) > 0
        return found

    def first_paths(
        self, allowed: Sequence[Bool[np.ndarray, "node transition"]] | None = None
    ) -> Int[np.ndarray, "node layer"]:
        """The first path of each node whose transitions are all allowed; by default the first of all. Precondition:
        there is one."""
        allowed = [np.ones((1, len(layer.before)), bool) for layer in self.layers] if allowed is None else allowed
        n = len(allowed[0])
        onward = [np.ones((n, self.states[-1]), bool)]
        for k in range(len(allowed) - 1, -1, -1):
            node, transition = (allowed[k] & onward[0][:, self.layers[k].after]).nonzero()
            here = np.zeros((n, self.states[k]), bool)
            here[node, self.layers[k].before[transition]] = True
            onward.insert(0, here)
        open_, chosen = onward[0], []
        for k, layer in enumerate(self.layers):
            transition = (allowed[k] & open_[:, layer.before] & onward[k + 1][:, layer.after]).argmax(1)
            chosen.append(transition)
            open_ = np.arange(self.states[k + 1]) == layer.after[transition][:, None]
        return np.stack(chosen, 1)

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        """Of every slot that is not in ``fixed``: which layer says it, and in which column of that layer's tokens."""
        return {slot: (k, column) for k, layer in enumerate(self.layers) for column, slot in enumerate(layer.slots)}

    def tokens_at(self, slot: int, allowed: Allowed | None = None) -> list[int]:
        """The tokens that the transitions of a slot's layer have there, all or those that are allowed, in order."""
        if slot in self.fixed:
            return [self.fixed[slot]]
        k, column = self.places[slot]
        tokens = self.layers[k].tokens[:, column]
        return np.unique(tokens if allowed is None else tokens[allowed[k]]).tolist()

    def having(self, wanted: Mapping[int, int]) -> list[Bool[np.ndarray, " transition"]]:
        """The transitions that put the ``wanted`` tokens at these slots, as far as their layer says such a slot."""
        found = [np.ones(len(layer.before), bool) for layer in self.layers]
        for slot, token in wanted.items():
            if slot not in self.fixed:
                k, column = self.places[slot]
                found[k] &= self.layers[k].tokens[:, column] == token
        return found

    def problems(self, transitions: Int[np.ndarray, "n layer"]) -> Int[Tensor, "n *operands"]:
        """The problems of paths, each given by its transition in every layer."""
        increments = sum(layer.increments[transitions[:, k]] for k, layer in enumerate(self.layers))
        return torch.as_tensor(increments).reshape(-1, *self.origin.shape) + self.origin

    def tokens(self, transitions: Int[np.ndarray, "n layer"]) -> Int[np.ndarray, "n slot"]:
        """What the paths say: the teacher-forced inputs, and after them the targets."""
        found = np.full((len(transitions), self.input_length + self.n_targets), -1)
        for slot, token in self.fixed.items():
            found[:, slot] = token
        for k, layer in enumerate(self.layers):
            found[:, list(layer.slots)] = layer.tokens[transitions[:, k]]
        return found

    def sample(self, n: int, generator: torch.Generator, rare: bool = False) -> Int[np.ndarray, "n layer"]:
        """``n`` paths, uniform over all (up to the rounding of probabilities to float64); with ``rare``, in each layer
        every state that can follow is as likely as another."""
        draw = lambda: torch.rand(n, generator=generator, dtype=torch.float64).numpy()  # noqa: E731
        state = _chosen(self._path_counts[0], np.zeros(n, dtype=np.int64), np.zeros(self.states[0], np.int64), draw())
        found = np.empty((n, len(self.layers)), dtype=np.int64)
        for k, layer in enumerate(self.layers):
            weights = np.array(self._path_counts[k + 1], dtype=object)[layer.after]
            if rare:
                edge = layer.before * self.states[k + 1] + layer.after
                _, index, times = np.unique(edge, return_inverse=True, return_counts=True)
                weights = 2**20 // times[index.reshape(-1)] + 1
            found[:, k] = _chosen(weights, state, layer.before, draw())
            state = layer.after[found[:, k]]
        return found

    def cheapest_paths(
        self, values: Sequence[np.ndarray], at: int
    ) -> tuple[Float[np.ndarray, " transition"], Int[np.ndarray, "transition layer"]]:
        """For every transition of layer ``at``, the least sum of ``values`` on a path through it (inf if none is
        finite), and that path: the Viterbi algorithm in both directions. Cost: one pass over all transitions, and a
        sort in each layer."""
        best_before, ways = [np.zeros(self.states[0])], []
        for k, layer in enumerate(self.layers[:at]):
            sums = best_before[-1][layer.before] + values[k]
            ways.append(_least_of_each(layer.after, sums, self.states[k + 1]))
            best_before.append(sums[ways[-1]])
        best_after, onward = np.zeros(self.states[-1]), []
        for k in range(len(self.layers) - 1, at, -1):
            layer = self.layers[k]
            sums = best_after[layer.after] + values[k]
            onward.insert(0, _least_of_each(layer.before, sums, self.states[k]))
            best_after = sums[onward[0]]
        layer = self.layers[at]
        paths = np.empty((len(layer.before), len(self.layers)), dtype=np.int64)
        paths[:, at], state = np.arange(len(layer.before)), layer.before
        for k in range(at - 1, -1, -1):
            paths[:, k] = ways[k][state]
            state = self.layers[k].before[paths[:, k]]
        state = layer.after
        for k, way in enumerate(onward, at + 1):
            paths[:, k] = way[state]
            state = self.layers[k].after[paths[:, k]]
        return best_before[-1][layer.before] + values[at] + best_after[layer.after], paths

    def run(self, tokens: Int[np.ndarray, "n slot"]) -> Int[np.ndarray, "n layer"]:
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
        found = np.empty((len(tokens), len(self.layers)), dtype=np.int64)
        for k, layer in enumerate(self.layers):
            found[:, k], fits = layer.transition_of(tokens[:, list(layer.slots)], state)
            wrong |= ~fits
            state = layer.after[found[:, k]]
        if wrong.any():
            raise NotAPath(int(wrong.argmax()))
        return found


class NotAPath(UserError):
    """A row of tokens that no path of a machine says; ``row`` is the first."""

    def __init__(self, row: int):
        super().__init__(f"Row {row} of the tokens is no path of the machine.")
        self.row = row


def _least_of_each(
    state: Int[np.ndarray, " transition"], sums: Float[np.ndarray, " transition"], n: int
) -> Int[np.ndarray, " state"]:
    """For each of ``n`` states, its transition with the least sum."""
    order = np.lexsort((sums, state))
    return order[np.searchsorted(state[order], np.arange(n))]


def _chosen(
    weights: Sequence[int] | np.ndarray,
    state: Int[np.ndarray, " n"],
    of: Int[np.ndarray, " transition"],
    draws: np.ndarray,
) -> Int[np.ndarray, " n"]:
    """For each draw in [0, 1), one of the transitions ``of`` its state, in proportion to their weights."""
    order = np.argsort(of, kind="stable")
    most = max(weights)
    scaled = np.array([int(w) / int(most) for w in weights])[order]
    ends, last = np.cumsum(scaled), np.searchsorted(of[order], np.arange(of.max() + 2))
    ends = np.concatenate(([0.0], ends))
    low, high = ends[last[state]], ends[last[state + 1]]
    at = np.searchsorted(ends, low + draws * (high - low), side="right") - 1
    return order[np.clip(at, last[state], last[state + 1] - 1)]


def target_slots(task: Task, target: int) -> tuple[int, ...]:
    """The slots of a target: its own, and the position where it is read."""
    after = task.query_positions[target] + 1
    return (task.input_length + target, *([after] if after < task.input_length else []))


def sequences(task: Task, problems: Any) -> Int[np.ndarray, "n slot"]:
    """The teacher-forced inputs of problems, and after them their targets: what a machine of the task says."""
    found = torch.cat((task.encode(problems), task.targets(problems)), 1)
    return found.cpu().numpy().astype(np.int64)
