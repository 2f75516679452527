"""What a search has seen: its best margins so far, by target and by carry-chain length, and the wrong answers."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from interp.proofs.attacks.runs import Margins
from interp.proofs.attacks.space import Digits, ProblemSpace

KEPT = 20  # wrong problems that are kept: the first, and those with the smallest margins


@dataclass(frozen=True, eq=False)
class Wrong:
    """A problem whose smallest margin is not above zero, and after how many runs it was found."""

    digits: Tensor  # [operand, column]
    margin: float
    runs: int


@dataclass(eq=False)
class Tally:
    """Grows with every batch of problems that a search runs."""

    space: ProblemSpace
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
        """A batch, after which ``runs`` are spent; each problem of it took the last of them."""
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
        wrong = np.flatnonzero(least <= 0)  # a tie is no answer: which token leads is an accident
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
