"""Our measured numbers, and the rules that compare them with printed ones.

    reproduced     as printed, or as claimed, beyond the stated uncertainty
    compatible     as printed or claimed by our estimate, but too uncertain to confirm it
    differs        told apart from it
    undecided      our measurement is too uncertain to say either

A rule sees only the printed numbers and ours, and says in ``words`` what it requires.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from scipy.special import gammaln, stdtrit

from interp.core.results import Provenance, Strength
from interp.core.stats import UPPER, clopper_pearson
from interp.core.thresholds import CONFIRMS, CONFIRMS_RARE, CONFIRMS_RATE, DECIDES, SIGNIFICANT
from models.errors import UserError
from studies.claims.printed import Printed

Judgement = Literal["reproduced", "compatible", "differs", "undecided"]


@dataclass(frozen=True)
class Ours:
    """A number of this project with its interval, sample size and evidence.

    ``low`` and ``high`` are the ends of a 95% interval, if there is one. ``counts`` are the successes and trials of a
    share, ``p`` is that of a test with effect ``value``. ``able`` is False if what it is compared with did not succeed
    either, so that a difference could not have shown.
    """

    value: float
    provenance: Provenance
    low: float | None = None
    high: float | None = None
    counts: tuple[int, int] | None = None
    p: float | None = None
    able: bool = True
    model: str = ""  # the model whose number it is, if the paper's row does not say
    remark: str = ""  # what the number alone does not say

    def with_value(self, value: float | int, remark: str = "") -> Ours:
        """Another number with the same provenance, without an interval."""
        return replace(self, value=float(value), low=None, high=None, counts=None, remark=remark or self.remark)

    @property
    def ends(self) -> tuple[float, float]:
        """The interval, or the number itself twice."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


# ---- kinds of numbers


def counted(n: float | int, what: str, **more: object) -> Ours:
    """A count that is not sampled: parameters of a built model, steps of a ladder."""
    return Ours(float(n), Provenance(max(1, int(n)), None, what, "exhaustive"), **more)  # type: ignore[arg-type]


def share(
    successes: int,
    n: int,
    what: str,
    rung: Strength = "sampled",
    seed: int | None = None,
    model: str = "",
) -> Ours:
    """A proportion with its Clopper-Pearson interval, or without one if every input was tried."""
    low, high = (None, None) if rung != "sampled" else clopper_pearson(successes, n)
    provenance = Provenance(n, seed, what, rung)
    return Ours(successes / n, provenance, low, high, counts=(successes, n), model=model)


def over_seeds(values: list[float], what: str, lowest: float = -math.inf, highest: float = math.inf) -> Ours:
    """The mean over seeds, with the 95% interval in which one further seed is expected (Student's t).

    It is ``mean ± t sqrt(1 + 1/n) s``, as a paper's single run is one further seed. With fewer than three seeds it is
    unbounded, as no interval would be useful.
    """
    mean, n = float(np.mean(values)), len(values)
    half = math.inf if n < 3 else float(stdtrit(n - 1, UPPER) * np.std(values, ddof=1) * math.sqrt(1 + 1 / n))
    remark = f"seeds from {min(values):.3g} to {max(values):.3g}" if n > 1 else "one seed"
    provenance = Provenance(n, None, what)
    return Ours(mean, provenance, max(lowest, mean - half), min(highest, mean + half), remark=remark)


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


# ---- rules


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
class Digits(Rule):
    """Our number, rounded as the paper rounds, is the printed one."""

    @property
    def words(self) -> str:
        return "equal to the printed digits"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        if not stated:
            raise UserError("The paper prints no number that ours could equal.")
        return "reproduced" if stated[0].agrees(ours.value) else "differs"


@dataclass(frozen=True)
class Near(Rule):
    """Our number is within a share of the printed one, for measurements without an interval."""

    factor: float = 0.1

    @property
    def words(self) -> str:
        return f"within {self.factor:.0%} of the printed number"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        room = self.factor * abs(stated[0].value) + stated[0].half
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
class AtLeast(Rule):
    """Our number is at least a bound (by default the printed one); an interval that holds the bound leaves it open.

    It is then "compatible" if our estimate itself meets the bound and the interval has two ends, else "undecided".
    """

    bound: float | int | None = None
    of: str = ""
    side: ClassVar[str] = "at least"
    sign: ClassVar[int] = 1

    @property
    def words(self) -> str:
        bound = "the printed number, as rounded" if self.bound is None else f"{self.bound:g}"
        return f"{self.of or 'ours'} is {self.side} {bound}"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        bound = stated[0].value - self.sign * stated[0].half if self.bound is None else self.bound
        low, high = sorted(self.sign * (end - bound) for end in ours.ends)
        if low >= 0:
            return "reproduced"
        if high < 0:
            return "differs"
        bounded = math.isfinite(low) and math.isfinite(high)
        return "compatible" if bounded and self.sign * (ours.value - bound) >= 0 else "undecided"


@dataclass(frozen=True)
class AtMost(AtLeast):
    """Our number is at most a bound, otherwise as :class:`AtLeast`."""

    side: ClassVar[str] = "at most"
    sign: ClassVar[int] = -1


@dataclass(frozen=True)
class Between(Rule):
    """Our number lies between two bounds; an interval that holds one of them leaves it open.

    It is then "compatible" if our estimate lies between them, else "undecided".
    """

    low: float
    high: float
    of: str = ""

    @property
    def words(self) -> str:
        return f"{self.of or 'ours'} is from {self.low:g} to {self.high:g}"

    def judge(self, ours: Ours, stated: tuple[Printed, ...]) -> Judgement:
        low, high = ours.ends
        if high < self.low or low > self.high:
            return "differs"
        if low >= self.low and high <= self.high:
            return "reproduced"
        return "compatible" if self.low <= ours.value <= self.high else "undecided"


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

    ``p`` is corrected for all comparisons with the same seeds that were made with it (:func:`holm`). Where no seed of
    the model itself succeeded in the same steps, no difference is "undecided": the budget is too small for a failure to
    show.
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
