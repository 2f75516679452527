"""What one query of a model can see, over all problems of a task: the paths of a layered graph.

A :class:`~models.tasks.machines.machine.Machine` says a task's problems as paths. What a query sees of a problem is the
tokens up to its own position, or at the keys that its heads see, and so the paths are projected
(:mod:`interp.proofs.machine.path_projection`). A *node* of a proof is a set of options for every step. Its problems are
the paths through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.tasks import Machine


@dataclass(frozen=True, eq=False)
class VisibleStep:
    """One step of what a query sees.

    Options are sorted by ``after``, then by ``before``; ``groups`` has a slice of them for each pair of states.

    Attributes:
        positions: the positions whose tokens it says. tokens: what each option puts there.
        before, after: the states around it. label: for the target's step, which class an option belongs to; else zeros.
        source: which of the machine's steps it comes from, and which option here each of that step's options is (-1 for
            those that contradict the query's token).
    """

    positions: tuple[int, ...]
    tokens: Int[np.ndarray, "option position"]
    before: Int[np.ndarray, " option"]
    after: Int[np.ndarray, " option"]
    label: Int[np.ndarray, " option"]
    states: tuple[int, int]
    source: tuple[int, Int[np.ndarray, " original"]]

    @cached_property
    def groups(self) -> list[tuple[int, int, slice]]:
        """(before, after, options) for every pair of states that has options."""
        pairs = np.stack((self.after, self.before), 1)
        starts = np.flatnonzero(np.r_[True, (pairs[1:] != pairs[:-1]).any(1)])
        ends = np.r_[starts[1:], len(pairs)]
        return [
            (int(self.before[a]), int(self.after[a]), slice(int(a), int(b))) for a, b in zip(starts, ends, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.before)


@dataclass(frozen=True, eq=False)
class Label:
    """A class of a query's problems: the right token, and the states before and after the target's step."""

    answer: int
    before: int
    after: int


@dataclass(frozen=True, eq=False)
class QueryPaths:
    """All that a query with one token can see.

    Attributes:
        query, token: the query's position and the token there. target: which target it predicts.
        fixed: (position, token) of what stands in all problems, the query's own token included.
        steps: what varies.
        labels: the classes; ``labelled`` is the step that has them in ``label``, if they are several.
        kept: which of the machine's options the query's token allows.
    """

    machine: Machine
    query: int
    token: int
    target: int
    fixed: tuple[tuple[int, int], ...]
    steps: tuple[VisibleStep, ...]
    labels: tuple[Label, ...]
    labelled: int | None
    kept: tuple[Bool[np.ndarray, " original"], ...]

    # ---- nodes: a mask of options for each step, [node, option]

    @cached_property
    def roots(self) -> list[Bool[Tensor, "node option"]]:
        """One node for each label, without options that no path uses."""
        n = len(self.labels)
        masks = [torch.ones(n, len(step), dtype=torch.bool) for step in self.steps]
        if self.labelled is not None:
            masks[self.labelled] = torch.from_numpy(self.steps[self.labelled].label)[None] == torch.arange(n)[:, None]
        return self.pruned(masks)

    def pruned(self, masks: Sequence[Bool[Tensor, "node option"]]) -> list[Bool[Tensor, "node option"]]:
        """The masks without options that no path from the first step to the last goes through."""
        found = list(masks)
        reached = torch.ones(len(found[0]), self.steps[0].states[0], dtype=torch.bool)
        for k, step in enumerate(self.steps):
            found[k] = found[k] & reached[:, step.before]
            reached = _any(found[k], step.after, step.states[1])
        reached = torch.ones_like(reached)
        for k in range(len(self.steps) - 1, -1, -1):
            step = self.steps[k]
            found[k] = found[k] & reached[:, step.after]
            reached = _any(found[k], step.before, step.states[0])
        return found

    def possible(self, masks: Sequence[Bool[Tensor, "node option"]]) -> Bool[Tensor, " node"]:
        """Which nodes have a path, of pruned masks."""
        return torch.stack([mask.any(1) for mask in masks]).all(0)

    def path_counts(self, masks: Sequence[Bool[Tensor, "node option"]]) -> list[Float[Tensor, "node state"]]:
        """How many visible paths go on from each state before each step, and after the last, in float64."""
        counts = [torch.ones(len(masks[0]), self.steps[-1].states[1], dtype=torch.float64)]
        for step, mask in zip(reversed(self.steps), reversed(masks), strict=True):
            options = mask * counts[0][:, step.after]
            counts.insert(0, _sums(options, step.before, step.states[0]))
        return counts

    def sample(
        self, masks: Sequence[Bool[Tensor, "node option"]], n: int, generator: torch.Generator
    ) -> Int[Tensor, "node sample step"]:
        """Options of random paths of each node: half of them uniform over paths, half with states equally likely."""
        counts, nodes = self.path_counts(masks), len(masks[0])
        state, chosen = self._first_states(counts[0], n, generator), []
        for k, (step, mask) in enumerate(zip(self.steps, masks, strict=True)):
            onward = torch.where(mask, counts[k + 1][:, step.after], 0.0)
            draw = torch.rand(nodes, n, generator=generator, dtype=torch.float64)
            option = torch.empty_like(state)
            for half, weights in enumerate(((onward > 0).double(), onward)):
                option[:, half::2] = _drawn(step, weights, state[:, half::2], draw[:, half::2])
            chosen.append(option)
            state = torch.from_numpy(step.after)[option]
        return torch.stack(chosen, -1)

    def _first_states(self, counts: Float[Tensor, "node state"], n: int, generator: torch.Generator) -> Tensor:
        if counts.shape[1] == 1:
            return torch.zeros(len(counts), n, dtype=torch.int64)
        return torch.multinomial((counts > 0).double(), n, True, generator=generator)

    def all_paths(self, masks: Sequence[Bool[Tensor, " option"]]) -> Int[Tensor, "path step"]:
        """All visible paths of one node, whose masks are pruned."""
        found, state = torch.zeros(1, 0, dtype=torch.int64), None
        for step, mask in zip(self.steps, masks, strict=True):
            options = mask.nonzero()[:, 0]
            before = torch.from_numpy(step.before)[options]
            match = (
                torch.ones(len(found), len(options), dtype=torch.bool) if state is None else state[:, None] == before
            )
            row, column = match.nonzero().unbind(1)
            if state is None and step.states[0] > 1:  # a path may begin in any state
                row, column = torch.zeros_like(options), torch.arange(len(options))
            found = torch.cat((found[row], options[column, None]), 1)
            state = torch.from_numpy(step.after)[options[column]]
        return found

    # ---- problems

    def originals(self, masks: Sequence[Bool[Tensor, " option"]]) -> list[Bool[np.ndarray, " original"]]:
        """Which of the machine's options a node allows."""
        found = [kept.copy() for kept in self.kept]
        for step, mask in zip(self.steps, masks, strict=True):
            k, number = step.source
            found[k] &= (number >= 0) & mask.numpy()[number]
        return found

    def count(self, masks: Sequence[Bool[Tensor, " option"]]) -> int:
        """How many problems a node has, exactly."""
        return self.machine.count(self.originals(masks))

    def problem(self, path: Int[Tensor, " step"]) -> Int[Tensor, " operand"]:
        """A problem that shows the query the tokens of this path."""
        alone = [(torch.arange(len(step)) == at)[None] for step, at in zip(self.steps, path, strict=True)]
        return self.examples(alone)[0]

    def examples(self, masks: Sequence[Bool[Tensor, "node option"]]) -> Int[Tensor, "node operand"]:
        """The first problem of each node."""
        kept = [np.broadcast_to(own, (len(masks[0]), len(own))).copy() for own in self.kept]
        for step, mask in zip(self.steps, masks, strict=True):
            k, number = step.source
            kept[k] &= (number >= 0) & mask.numpy()[:, number]
        return self.machine.problems(self.machine.first_paths(kept))


def _any(mask: Tensor, state: Int[np.ndarray, " option"], n: int) -> Bool[Tensor, "node state"]:
    return _sums(mask.double(), state, n) > 0


def _sums(values: Tensor, state: Int[np.ndarray, " option"], n: int) -> Float[Tensor, "node state"]:
    found = torch.zeros(len(values), n, dtype=torch.float64)
    return found.index_add(1, torch.from_numpy(np.ascontiguousarray(state)), values.double())


def _drawn(
    step: VisibleStep, weights: Float[Tensor, "node option"], state: Int[Tensor, "node sample"], draw: Tensor
) -> Int[Tensor, "node sample"]:
    """An option from each state, by weight; ``draw`` is uniform in [0, 1)."""
    by_state = np.argsort(step.before, kind="stable")
    before = step.before[by_state]
    sorted_ = weights[:, by_state]
    # The options of each state have a sum of one, so that no state's are lost beside another's.
    total = _sums(sorted_, before, step.states[0])
    upto = (sorted_ / total.clamp_min(1e-300)[:, before]).cumsum(1)
    ends = torch.nn.functional.pad(upto, (1, 0))[:, np.searchsorted(before, np.arange(step.states[0] + 1))]
    start, end = ends[:, :-1].gather(1, state), ends[:, 1:].gather(1, state)
    at = torch.minimum(start + draw * (end - start), end.nextafter(torch.zeros_like(end)))
    found = torch.searchsorted(upto.contiguous(), at.contiguous(), right=True)
    return torch.from_numpy(by_state)[found]
