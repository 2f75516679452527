"""The rules that compare our numbers with printed ones.

    reproduced     as printed, or as claimed, beyond the stated uncertainty
    compatible     as printed or claimed by our estimate, but too uncertain to confirm it
    differs        told apart from it
    undecided      our measurement is too uncertain to say either

A rule sees only the printed numbers and ours, and says in ``words`` what it requires.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import gammaln

from interp.core.stats import clopper_pearson
from interp.core.thresholds import SIGNIFICANT
from models.errors import UserError
from studies.claims.ours import Ours
from studies.claims.printed import Printed

#: Largest half-width of a 95% interval that still confirms a paper's number: as a share of the number; for counted
#: rates, absolute and as a share of the rarer outcome's rate, since every rate near 0 is within 0.05 of another.
CONFIRMS, CONFIRMS_RATE, CONFIRMS_RARE = 0.1, 0.05, 0.5
#: Half-width, as a share of the paper's number, above which an interval cannot tell: numbers of twice the size fit too.
DECIDES = 1.0

Judgement = Literal["reproduced", "compatible", "differs", "undecided"]


class Rule(ABC):
    """How our number is compared with the printed ones."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What the rule requires, in words."""

    @abstractmethod
    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        """The rule's verdict. Raises UserError for numbers of a kind that it does not compare."""


@dataclass(frozen=True)
class Near(Rule):
    """Our number is within a share of the printed one, or equal to it as the paper rounds, where the share is zero; for
    measurements without an interval."""

    factor: float = 0.1

    @property
    def words(self) -> str:
        return f"within {self.factor:.0%} of the printed number" if self.factor else "equal to the printed digits"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        if not stated:
            raise UserError("The paper prints no number that ours could equal.")
        room = (self.factor * abs(stated[0].value) + stated[0].half) * (1 + 1e-9)
        return "reproduced" if abs(ours.value - stated[0].value) <= room else "differs"


@dataclass(frozen=True)
class Inside(Rule):
    """The printed number lies in our interval; an interval that is wide for that number confirms nothing.

    If the half-width exceeds the printed number itself, hardly any number could have differed: "undecided".
    """

    @property
    def words(self) -> str:
        return (
            f"inside our 95% interval; compatible if its half-width is above {CONFIRMS:.0%} of the printed number, "
            f"undecided above {DECIDES:.0%}"
        )

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        (low, high), printed = ours.ends, stated[0]
        if printed.value + printed.half < low or printed.value - printed.half > high:
            return "differs"
        half = (high - low) / 2 / abs(printed.value) if printed.value else math.inf
        return "reproduced" if half <= CONFIRMS else "compatible" if half <= DECIDES else "undecided"


@dataclass(frozen=True)
class Within(Rule):
    """Our number is at least ``least`` and at most ``most``; an interval that holds one of these bounds leaves it open.

    It is then "compatible" if our estimate itself lies between them and the interval has two ends, else "undecided".
    A bound that is the text "printed" is the printed number, as rounded.
    """

    least: float | Literal["printed"] = -math.inf
    most: float | Literal["printed"] = math.inf
    of: str = ""

    @property
    def bounds(self) -> list[float]:
        """The bounds that the rule itself has, and not the paper."""
        return [x for x in (self.least, self.most) if not isinstance(x, str) and math.isfinite(x)]

    @property
    def words(self) -> str:
        least, most = (
            "the printed number, as rounded" if isinstance(x, str) else f"{x:g}" for x in (self.least, self.most)
        )
        one_sided = {"inf": f"at least {least}", "-inf": f"at most {most}"}
        return f"{self.of or 'ours'} is {one_sided.get(most) or one_sided.get(least) or f'from {least} to {most}'}"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        least = stated[0].value - stated[0].half if isinstance(self.least, str) else self.least
        most = stated[0].value + stated[0].half if isinstance(self.most, str) else self.most
        low, high = ours.ends
        if high < least or low > most:
            return "differs"
        if low >= least and high <= most:
            return "reproduced"
        bounded = math.isfinite(low) and math.isfinite(high)
        return "compatible" if bounded and least <= ours.value <= most else "undecided"


@dataclass(frozen=True)
class SameRate(Rule):
    """Two counted shares agree by Fisher's exact test; both intervals must be narrow for one to confirm the other.

    Narrow is meant for the rarer outcome (errors, if most are right): its interval's half-width must be small, and
    small next to that outcome's share as well, or neither side may have had it at all. So 0 errors do not confirm 2 to
    5.

    The paper prints successes and trials, or only successes, ``of`` this many.
    """

    of: int | None = None

    @property
    def words(self) -> str:
        return (
            f"Fisher's exact test, p < 0.05 differs; compatible if an interval's half-width is above {CONFIRMS_RATE}, "
            f"or above {CONFIRMS_RARE:.0%} of the rarer outcome's share unless neither has it"
        )

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        if ours.counts is None or len(stated) < (2 if self.of is None else 1):
            raise UserError("Shares are compared by their counts: successes and trials, of both.")
        (k, n), k2 = ours.counts, round(stated[0].value)
        n2 = round(stated[1].value) if self.of is None else self.of
        if fisher_p(k, n, k2, n2) < 0.05:
            return "differs"
        if 2 * (k + k2) > n + n2:
            k, k2 = n - k, n2 - k2  # the rarer outcome
        halves = [(high - low) / 2 for low, high in (clopper_pearson(k, n), clopper_pearson(k2, n2))]
        shares = (k / n, k2 / n2)
        rare = k == k2 == 0 or all(half <= CONFIRMS_RARE * one for half, one in zip(halves, shares, strict=True))
        return "reproduced" if max(halves) <= CONFIRMS_RATE and rare else "compatible"


@dataclass(frozen=True)
class LessFar(Rule):
    """Seeds of a variant get less far than those of the model: the chance is below one half, and significantly so.

    ``p`` is corrected for all comparisons with the same seeds that were made with it
    (:func:`studies.claims.ours.ranked`). Where no seed of the model itself succeeded in the same steps, no difference
    is "undecided": the budget is too small for a failure to show.
    """

    @property
    def words(self) -> str:
        return (
            "below 0.5 with p < 0.05 (Mann-Whitney, Holm over its comparisons); above it with p < 0.05 differs; else "
            "undecided if no seed of the unchanged model succeeds either"
        )

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        if ours.p is None:
            raise UserError("A comparison of ranks needs its p-value.")
        if ours.p >= SIGNIFICANT:
            return "compatible" if ours.able else "undecided"
        return "reproduced" if ours.value < 0.5 else "differs"


#: The rules by the words that claims use; "digits" and the bounds are read by :mod:`studies.claims.read`.
RULES: dict[str, type[Rule]] = {
    "near": Near,
    "inside": Inside,
    "within": Within,
    "same rate": SameRate,
    "less far": LessFar,
}


def fisher_p(k: int, n: int, k2: int, n2: int) -> float:
    """The p-value of Fisher's exact test of ``k`` of ``n`` against ``k2`` of ``n2``, two-sided: all tables at most as
    likely.

    It equals :func:`scipy.stats.fisher_exact`, whose import takes longer than the whole table of headlines.
    """
    total, successes = n + n2, k + k2
    x = np.arange(max(0, successes - n2), min(n, successes) + 1)

    def log_choose(a: int, b: np.ndarray) -> np.ndarray:
        return gammaln(a + 1) - gammaln(b + 1) - gammaln(a - b + 1)

    log_p = log_choose(n, x) + log_choose(n2, successes - x) - log_choose(total, np.array([successes]))
    chance = np.exp(log_p)
    return float(min(1.0, chance[chance <= chance[k - x[0]] * (1 + 1e-7)].sum()))
