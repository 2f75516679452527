"""A share of problems with its exact interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.number_format import distinct_percent

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Rate:
    """``correct`` of ``n``, with the exact (Clopper-Pearson) 95% interval of the underlying probability."""

    n: int
    correct: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Two-sided 95% Clopper-Pearson interval of the accuracy."""
        return _interval(self.correct, self.n, "two-sided")

    @property
    def error_bound(self) -> float:
        """One-sided 95% upper bound of the error rate: 3.0e-4 for 10,010 of 10,010."""
        return _interval(self.n - self.correct, self.n, "less")[1]

    def __str__(self) -> str:
        return f"{self.correct:,} of {self.n:,} ({distinct_percent(self.accuracy)}, 95% interval {self.span})"

    @property
    def span(self) -> str:
        """The interval in words, in so many digits that its two ends never read as one, nor an end as 0% or 100%."""
        low, high = (100 * end for end in self.interval)
        for digits in range(2, 16):
            ends = f"{low:.{digits}f}", f"{high:.{digits}f}"
            if ends[0] != ends[1] and (low == 0 or float(ends[0])) and (high == 100 or float(ends[1]) != 100):
                break
        return f"{ends[0]}-{ends[1]}%"


def _interval(correct: int, n: int, alternative: Literal["two-sided", "less"]) -> tuple[float, float]:
    from scipy.stats import binomtest  # half of this package's own import time, for numbers that few programs ask for

    found = binomtest(correct, n, alternative=alternative).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)
