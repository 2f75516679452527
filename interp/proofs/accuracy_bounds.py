"""On what share of all 10^20 pairs a one-layer adder is right, between two exact numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from interp.core.numerals import percent
from interp.core.results import Provenance, Result
from interp.proofs.counting import Counts
from interp.proofs.rungs import RUNGS, ArithmeticName
from models.checkpoint import write_json_atomic
from models.tasks.addition import DIGITS

PAIRS = 10 ** (2 * DIGITS)


@dataclass(frozen=True, eq=False)
class AccuracyBounds(Result):
    """Exact numbers of pairs that are proved right, proved wrong, and open, of all 10^20.

    A pair is right if the whole answer is: all targets teacher-forced, which is exact match under greedy decoding.

    Attributes:
        arithmetic: what the proofs are about: "interval" (real numbers) or "float32" (the model as it runs).
        method: where the verdicts come from, and how far they were refined.
        requested: the width asked for.
        chains: pairs by the length of their longest carry chain, 0 to 10.
        targets: pairs by target ("s0" ... "s10", "EOS"), each teacher-forced.
    """

    model: str
    fingerprint: str
    arithmetic: ArithmeticName
    method: str
    requested: float
    chains: Counts
    targets: dict[str, Counts]
    seconds: float

    @property
    def provenance(self) -> Provenance:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Provenance(PAIRS, None, "pairs of ten-digit numbers", RUNGS[self.arithmetic])

    @property
    def lower(self) -> Fraction:
        """At least this share of all pairs is answered rightly."""
        return Fraction(sum(self.chains.right), PAIRS)

    @property
    def upper(self) -> Fraction:
        """At most this share of all pairs is answered rightly."""
        return 1 - Fraction(sum(self.chains.wrong), PAIRS)

    @property
    def width(self) -> Fraction:
        return self.upper - self.lower

    @property
    def reached(self) -> bool:
        """Whether the bounds are as narrow as requested."""
        return self.width <= Fraction(self.requested)

    def wrong(self) -> str:
        """The share of wrong pairs in words, rounded outwards."""
        low, high = 1 - self.upper, 1 - self.lower
        if high == 0:
            return "right on all pairs"
        if low == high:
            exact = Decimal(sum(self.chains.wrong)).scaleb(-2 * DIGITS)
            if high < Fraction(1, 100):
                return f"wrong on exactly {exact.normalize():f} of all pairs"
            return f"wrong on exactly {(100 * exact).normalize():f}% of all pairs"
        # As many digits as tell the two apart.
        digits = min(2 + max(0, math.ceil(math.log10(high / (high - low)))), 2 * DIGITS)
        if low == 0:
            return f"wrong on at most {percent(high, digits, up=True)} of all pairs"
        return f"wrong on between {percent(low, digits)} and {percent(high, digits, up=True)} of all pairs"

    def sentence(self) -> str:
        return f"{self.finding()}   ({self.seconds:.1f} s)"

    def finding(self) -> str:
        """The sentence without the time it took."""
        asked = "" if self.reached else f"; the width of {self.requested:g} asked for was not reached"
        worst, counts = max(self.targets.items(), key=lambda item: item[1].wrong[0] + item[1].open[0])
        wrongs = counts.wrong[0] + counts.open[0]
        at = f", most at {worst} (at most {percent(Fraction(wrongs, PAIRS), 3, up=True)})" if wrongs else ""
        return f"{self.model} is {self.wrong()}{at}: {self.method}{asked}"

    def to_dataframe(self) -> pd.DataFrame:
        """A row for all pairs, each target and each chain length: exact numbers of pairs, and the error share."""
        parts = [("all pairs", "all", *(sum(x) for x in (self.chains.right, self.chains.open, self.chains.wrong)))]
        parts += [("target", name, c.right[0], c.open[0], c.wrong[0]) for name, c in self.targets.items()]
        lengths = zip(self.chains.right, self.chains.open, self.chains.wrong, strict=True)
        parts += [("carry chain", str(length), *numbers) for length, numbers in enumerate(lengths)]
        rows = [
            {
                "part": part, "name": name, "pairs": r + o + w, "right": r, "open": o, "wrong": w,
                "error_low": w / (r + o + w), "error_high": (w + o) / (r + o + w),
            }
            for part, name, r, o, w in parts
        ]  # fmt: skip
        return pd.DataFrame(rows)

    def encloses(self, other: AccuracyBounds) -> bool:
        """Whether these bounds follow from the other's: every count proved there is at least the one claimed here."""
        mine, theirs = ([x.chains, *x.targets.values()] for x in (self, other))
        if list(self.targets) != list(other.targets):
            return False
        return all(
            len(a.right) == len(b.right) == len(a.wrong) == len(a.open)
            and a.sizes == b.sizes
            and all(x <= y for x, y in zip((*a.right, *a.wrong), (*b.right, *b.wrong), strict=True))
            for a, b in zip(mine, theirs, strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON. Numbers of pairs are text: readers of JSON round integers of this size."""
        names = ("model", "fingerprint", "arithmetic", "method", "requested", "seconds")
        return {name: getattr(self, name) for name in names} | {
            "right_at_least": float(self.lower),
            "wrong_at_least": float(1 - self.upper),
            "chains": _texts(self.chains),
            "targets": {name: _texts(counts) for name, counts in self.targets.items()},
        }

    def save(self, path: str | Path) -> None:
        write_json_atomic(path, self.to_dict())


def bounds_from_dict(value: dict[str, Any]) -> AccuracyBounds:
    """The inverse of :meth:`AccuracyBounds.to_dict`. Raises KeyError, TypeError or ValueError for anything else."""
    names = ("model", "fingerprint", "arithmetic", "method")
    if value["arithmetic"] not in RUNGS:
        raise ValueError("unknown arithmetic")
    return AccuracyBounds(
        **{name: str(value[name]) for name in names},  # pyright: ignore[reportArgumentType]
        requested=float(value["requested"]),
        seconds=float(value["seconds"]),
        chains=_counts(value["chains"]),
        targets={str(name): _counts(counts) for name, counts in value["targets"].items()},
    )


def _texts(counts: Counts) -> dict[str, list[str]]:
    return {name: [str(x) for x in getattr(counts, name)] for name in ("right", "open", "wrong")}


def _counts(value: dict[str, list[str]]) -> Counts:
    return Counts(*(tuple(int(x) for x in value[name]) for name in ("right", "open", "wrong")))
