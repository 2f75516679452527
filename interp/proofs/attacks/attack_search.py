"""The two searches for a problem that a model answers wrong: along gradients, and at random with as many runs.

:func:`gradient_search` keeps an archive of the smallest margins in every *cell* (a target, the token read there, the
right token and the best other one), so that it does not spend all its runs on one way to fail. A step takes some
problems of the archive that were not taken yet and computes the gradient of each one's margin. It estimates every
neighbour's margin (:mod:`interp.proofs.attacks.problem_digits`, :func:`interp.proofs.attacks.counted_runs.estimates`)
and runs the most promising ones through the model, with a few that have no estimate, the programme's proposals
(:mod:`interp.proofs.attacks.proposals`) and fresh problems. Nothing is run twice.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.batches import slices
from interp.proofs.attacks.counted_runs import GRADIENT_RUNS, Margins, Runner, estimates
from interp.proofs.attacks.problem_digits import (
    Digits,
    DigitSpace,
    OtherDigits,
    changed_digits,
    crossed,
    moved_digits,
    runs_of_nines,
    unseen,
)
from interp.proofs.attacks.proposals import Proposals, proposals_for

KEPT = 20  # wrong problems that are kept: the first, and those with the smallest margins
START_SHARE, MOST_START = 0.2, 4_096  # share of the runs for the sample that the search starts from, and its limit
PARENTS = 16  # taken from the archive per step
CHILDREN, BLIND, FRESH = 10, 2, 16  # run per parent with an estimate and without one; fresh problems per step
MOST_NEIGHBOURS = 1_500  # estimated per parent; of more, a random choice
CELL_SIZE = 4  # problems that a cell keeps; a step takes one of them
LOOKED_AT = 64  # problems of a batch that may enter the archive, for each target

Report = Callable[[int, "SearchRecord"], None]
Stop = Callable[[], bool]


@dataclass(frozen=True, eq=False)
class Wrong:
    """A problem whose smallest margin is not above zero, and after how many runs it was found."""

    digits: Tensor  # [operand, column]
    margin: float
    runs: int


@dataclass(eq=False)
class SearchRecord:
    """The record of a search, updated with every batch of problems that it runs."""

    space: DigitSpace
    n_targets: int
    tried: int = 0
    n_wrong: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)  # (runs, smallest margin so far), where it fell
    worst: tuple[float, int, Tensor] | None = None  # margin, target, digits
    by_chain: dict[int, tuple[int, float]] = field(default_factory=dict)  # length: (problems, smallest margin)
    first_wrong: Wrong | None = None

    def __post_init__(self) -> None:
        self.by_target = np.full(self.n_targets, np.inf)
        self._most_wrong: list[tuple[float, int, Wrong]] = []

    def add(self, digits: Digits, margins: Margins, runs: int) -> None:
        """Record a batch of problems, at one run each, after which ``runs`` are spent in all."""
        if not len(digits):
            return
        values = margins.values.numpy()
        least = values.min(1)
        before = runs - len(digits) + 1
        for row in np.flatnonzero(least < np.minimum.accumulate(np.append(self.smallest, least))[:-1]):
            self.history.append((before + int(row), float(least[row])))
        row = int(least.argmin())
        if self.worst is None or least[row] < self.worst[0]:
            self.worst = float(least[row]), int(values[row].argmin()), digits[row].clone()
        self.tried += len(digits)
        self.by_target = np.minimum(self.by_target, values.min(0))
        chains = self.space.task.chain_length(self.space.problems(digits)).numpy()
        for length in np.unique(chains).tolist():
            chosen = least[chains == length]
            n, smallest = self.by_chain.get(length, (0, np.inf))
            self.by_chain[length] = n + len(chosen), min(smallest, float(chosen.min()))
        wrong = np.flatnonzero(least <= 0)  # a tie counts as wrong: which token leads is an accident
        for row in wrong[np.argsort(least[wrong], kind="stable")[:KEPT]].tolist():
            found = Wrong(digits[row].clone(), float(least[row]), before + row)
            heapq.heappush(self._most_wrong, (-found.margin, -found.runs, found))  # the least wrong in front
            if len(self._most_wrong) > KEPT - 1:
                heapq.heappop(self._most_wrong)
        if self.first_wrong is None and len(wrong):
            row = int(wrong[0])
            self.first_wrong = Wrong(digits[row].clone(), float(least[row]), before + row)
        self.n_wrong += len(wrong)

    @property
    def smallest(self) -> float:
        return np.inf if self.worst is None else self.worst[0]

    def kept(self) -> list[Wrong]:
        """The first wrong problem, and those with the smallest margins, in the order in which they were found."""
        if self.first_wrong is None:
            return []
        others = [wrong for _, _, wrong in self._most_wrong if not torch.equal(wrong.digits, self.first_wrong.digits)]
        return [self.first_wrong, *sorted(others, key=lambda wrong: wrong.runs)]


@dataclass(frozen=True, eq=False)
class Entry:
    """A problem in the archive, for one of its targets."""

    margin: float
    target: int
    key: bytes
    digits: Int[Tensor, "operand column"]


class Archive:
    """The smallest margins of every cell, and which of them were taken already."""

    def __init__(self) -> None:
        self.cells: dict[tuple[int, ...], list[Entry]] = {}
        self.taken: set[tuple[int, bytes]] = set()

    def add(self, space: DigitSpace, digits: Digits, margins: Margins) -> None:
        keys = space.keys(digits)
        values = margins.values.numpy()
        for target in range(values.shape[1]):
            for row in np.argsort(values[:, target], kind="stable")[:LOOKED_AT].tolist():
                cell = (target, *(int(x[row, target]) for x in (margins.read, margins.right, margins.rival)))
                held = self.cells.setdefault(cell, [])
                if len(held) < CELL_SIZE or values[row, target] < held[-1].margin:
                    held.append(Entry(float(values[row, target]), target, keys[row], digits[row]))
                    held.sort(key=lambda entry: entry.margin)
                    del held[CELL_SIZE:]

    def take(self, n: int, rng: np.random.Generator) -> list[Entry]:
        """Up to ``n`` entries not taken yet: half the smallest margins, then the smallest of each target in turn."""
        open_ones = []
        for held in self.cells.values():
            left = [entry for entry in held if (entry.target, entry.key) not in self.taken]
            open_ones += left[:1]
        open_ones.sort(key=lambda entry: entry.margin)
        chosen = open_ones[: n // 2]
        rest = open_ones[n // 2 :]
        while rest and len(chosen) < n:
            first_of: dict[int, Entry] = {}
            for entry in rest:
                first_of.setdefault(entry.target, entry)
            turn = list(first_of.values())
            chosen += [turn[i] for i in rng.permutation(len(turn))[: n - len(chosen)].tolist()]
            rest = [entry for entry in rest if entry not in chosen]
        self.taken.update((entry.target, entry.key) for entry in chosen)
        return chosen


def random_search(runner: Runner, space: DigitSpace, runs: int, seed: int, report: Report, stop: Stop) -> SearchRecord:
    """Distinct problems drawn as the gradient search draws its start, one run each."""
    rng, seen = np.random.default_rng(seed), set()
    tally = SearchRecord(space, len(runner.queries))
    while runner.runs < runs and not stop():
        digits = space.fresh(min(1_024, runs - runner.runs), rng, seen)
        if not len(digits):
            break
        tally.add(digits, runner.margins(space.problems(digits)), runner.runs)
        report(runner.runs, tally)
    return tally


def gradient_search(
    runner: Runner, space: DigitSpace, runs: int, seed: int, report: Report, stop: Stop
) -> SearchRecord:
    """Search along gradients, as the module's docstring says, with at most ``runs`` runs. Equal seeds find the same."""
    rng, seen = np.random.default_rng(seed), set()
    tally, archive = SearchRecord(space, len(runner.queries)), Archive()
    proposer = proposals_for(runner, space.task)

    def run(digits: Digits) -> None:
        for rows in slices(len(digits), 1_024):
            margins = runner.margins(space.problems(digits[rows]))
            tally.add(digits[rows], margins, runner.runs)
            archive.add(space, digits[rows], margins)
            report(runner.runs, tally)

    run(space.fresh(min(max(1, int(START_SHARE * runs)), MOST_START), rng, seen))
    while runner.runs < runs and not stop():
        cost = GRADIENT_RUNS + 1 + (proposer.cost if proposer else 0)
        parents = archive.take(min(PARENTS, (runs - runner.runs) // cost), rng)
        children = [] if not parents else [propose(runner, space, parents, proposer, seen, rng)]
        children.append(space.fresh(FRESH if parents else runs - runner.runs, rng, seen))
        digits = torch.cat(children)[: runs - runner.runs]
        if not len(digits) and not parents:
            break  # nothing is left to try
        run(digits)
    return tally


def propose(
    runner: Runner,
    space: DigitSpace,
    parents: list[Entry],
    proposer: Proposals | None,
    seen: set[bytes],
    rng: np.random.Generator,
) -> Digits:
    """The neighbours of the parents to run: the best by estimate, some without one, and the programme's proposals."""
    digits = torch.stack([parent.digits for parent in parents])
    targets = torch.tensor([parent.target for parent in parents])
    problems = space.problems(digits)
    gradients = runner.gradients(problems, targets, proposer.hooks if proposer else ())
    tokens, answers = space.task.encode(problems), space.task.targets(problems)
    effects = proposer.effects(tokens, targets, gradients) if proposer else gradients.effects
    sums = space.digit_sums(digits)
    children = []
    for row, target in enumerate(targets.tolist()):
        near = neighbours(space, digits, row, None if sums is None else sums[row], rng)
        near = unseen(space, near, seen)
        if not len(near):
            continue
        its_problems = space.problems(near)
        same = space.task.targets(its_problems)[:, target] == answers[row, target]
        estimate = estimates(
            gradients.margins[row].expand(len(near)),
            effects[row].expand(len(near), -1, -1),
            tokens[row].expand(len(near), -1),
            space.task.encode(its_problems),
        )
        chosen = torch.cat((near[best(estimate, same)], near[some(~same, rng)]))
        seen.update(space.keys(chosen))
        children.append(chosen)
    if proposer is not None:
        proposed = unseen(space, proposer.proposals(space, digits, targets, effects), seen)
        seen.update(space.keys(proposed))
        children.insert(0, proposed)
    return torch.cat(children) if children else digits[:0]


def neighbours(
    space: DigitSpace,
    digits: Digits,
    row: int,
    sums: Int[Tensor, "operand column"] | None,
    rng: np.random.Generator,
) -> OtherDigits:
    """The neighbours of one parent: all moves from it, and its crossings with the next parent."""
    own = digits[row]
    near = [changed_digits(space, own), moved_digits(space, own), crossed(space, own, digits[(row + 1) % len(digits)])]
    if sums is not None:
        near.append(runs_of_nines(space, own, sums))
    found = torch.cat(near)
    if len(found) > MOST_NEIGHBOURS:
        found = found[torch.from_numpy(rng.permutation(len(found))[:MOST_NEIGHBOURS])]
    return found


def best(estimate: Float[Tensor, " n"], same: Tensor) -> Int[Tensor, " k"]:
    """Rows of the smallest estimates, among those with the same right token (``same``) whose estimate is a number."""
    ranked = torch.where(same & ~estimate.isnan(), estimate, torch.inf).argsort(stable=True)[:CHILDREN]
    return ranked[same[ranked]]


def some(other: Tensor, rng: np.random.Generator) -> Int[Tensor, " k"]:
    """A few random rows among those for which an estimate would mean nothing."""
    rows = other.nonzero().flatten()
    return rows[torch.from_numpy(rng.permutation(len(rows))[:BLIND])]
