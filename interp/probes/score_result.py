"""Right answers by stratum: the result of every question about how often a model is right.

A stratum is whatever problems are sorted by: a carry-chain length, a suite of problems, or a target of the response. A
result has one or two kinds of strata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.results import GIVEN, Provenance
from interp.core.stats import clopper_pearson
from interp.core.table_result import Measure, TableResult, table_view
from interp.core.views import Curves, Picture, Points, Series
from models.errors import UserError
from models.number_format import in_percent_with, shown
from models.rates import CONFIDENCE, Rate


def share_right(found: Scores) -> Estimate:
    """The share of all answers that are right."""
    rate = found.rate()
    low, high = (None, None) if found.provenance.strength == "exhaustive" else rate.interval
    return Estimate(rate.accuracy, low, high, note=f"{rate.n - rate.correct:,} wrong")


def worst_stratum(found: Scores) -> Estimate:
    """The share right in the stratum where it is lowest, with those of all strata as parts."""
    (stratum,) = found.strata
    parts = found.estimates("accuracy")
    worst = min(parts, key=lambda part: part.value)
    alike = worst.value == max(part.value for part in parts)
    name = stratum.replace("_", " ")
    note = f"all alike by {name}" if alike else f"{name} {worst.name}"
    return replace(worst, name="", note=note, parts=tuple(parts))


_T = TypeVar("_T", bound="Scores")
MEASURES = (Measure("accuracy", SHARE, title="right answers"),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores(TableResult):
    """How often answers are right as a whole, by stratum.

    Attributes:
        table: int arrays over the strata, its keys: ``n`` problems tried (-1: none is there) and ``correct``; a
            coordinate ``strength`` where it differs. Other columns are the question's own.
        model: the model's name.
        series: the coordinate that has a colour of its own in the figure, if there is one.
        errors: whether figures show error rates on a logarithmic axis, as for models that are hardly ever wrong.
    """

    model: str
    series: str = ""
    errors: bool = False

    @classmethod
    def of(cls: type[_T], model: str, table: xr.Dataset, provenance: Provenance, **more: Any) -> _T:
        """The result of counts, with what they say."""
        found = cls("", table, provenance, tuple(map(str, table.n.dims)), MEASURES, model=model, **more)
        return found.saying(f"{model}: {found.total()}; {found.worst()}.") if bool((table.n > 0).any()) else found

    @property
    def strata(self) -> tuple[str, ...]:
        return self.keys

    @property
    def reached(self) -> xr.DataArray:
        """Whether problems of a stratum were tried."""
        return self.table.n > 0

    @property
    def accuracy(self) -> xr.DataArray:
        """Share of whole answers right; NaN where no problem was tried."""
        return (self.table.correct / self.table.n.where(self.reached)).rename("accuracy")

    def rate(self, **strata: Any) -> Rate:
        """The rate in the named strata, pooled over others: ``scores.rate(chain_length=10)``, ``scores.rate()``.

        Raises:
            UserError: no such stratum, or one in which nothing was tried.
        """
        wanted = {key.replace("_", " ") if key not in self.table.coords else key: x for key, x in strata.items()}
        try:
            at = self.table[["n", "correct"]].sel(wanted)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"There is no stratum {strata}; the strata are {dict(self.table.sizes)}.") from None
        n = int(at.n.clip(min=0).sum())
        if not n:
            raise UserError(f"{strata}: no problem was tried.")
        return Rate(n, int(at.correct.sum()))

    @property
    def wrong(self) -> int:
        """Number of wrong answers in all strata."""
        return int((self.table.n.clip(min=0) - self.table.correct).sum())

    # ---- words and tables

    def total(self) -> str:
        """The count of right answers in words."""
        rate = self.rate()
        return f"{rate.correct:,} of {rate.n:,} right"

    def worst(self) -> str:
        """The stratum with the lowest accuracy, in words."""
        frame = self.to_dataframe().query("n > 0")
        if frame.accuracy.min() == 1:
            return self._bounded(frame[np.asarray(evidence_of(frame)) == "sampled"])
        row = frame.loc[frame.accuracy.idxmin()]
        share = in_percent_with(row.accuracy, row.accuracy_low, row.accuracy_high, counted=True)
        if len(frame) == 1:
            return share
        named = ", ".join(f"{axis.replace('_', ' ')} {row[axis]}" for axis in self.strata)
        return f"worst at {named}: {row.correct:,} of {row.n:,} ({share})"

    def _bounded(self, drawn: pd.DataFrame) -> str:
        """What strata without a wrong answer say of those from which problems were only ``drawn``."""
        if drawn.empty:
            return "every problem of every stratum is right"
        least, strata, total = int(drawn.n.min()), len(drawn), int(drawn.n.sum())
        given = " if they are a random sample" if self.provenance.source == GIVEN else ""
        one, every, pooled = (
            f"below {shown(error_bound(n, of), up=True)}" for n, of in ((least, 1), (least, strata), (total, 1))
        )
        if strata == 1:
            return f"with {total:,} problems, the error rate is {pooled} (95%){given}"
        if least == drawn.n.max():
            return (
                f"with {least:,} problems in each of {strata} strata, the error rate of any one is {one} (95%), and "
                f"that of every one {every}{given}"
            )
        return (
            f"with {least:,} to {drawn.n.max():,} problems in each of {strata} strata, the error rate over all of them "
            f"is {pooled} (95%), and that of every one {every}{given}"
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per stratum: n, correct, accuracy with its ends (Clopper-Pearson, 95%; the share itself where all
        existing problems were tried); NaN out of reach. Strata that were not asked for have no row."""
        frame = super().to_dataframe()
        frame = frame[frame.n >= 0].reset_index(drop=True)
        frame[["accuracy", "accuracy_low", "accuracy_high"]] = [
            _rate(k, n, strength) for k, n, strength in zip(frame.correct, frame.n, evidence_of(frame), strict=True)
        ]
        return frame


def error_bound(n: int, strata: int = 1) -> float:
    """One-sided upper bound on the error rate where all of ``n`` were right. Those of so many independent ``strata``
    hold together with 95% confidence."""
    missed = 1 - CONFIDENCE ** (1 / strata)
    return float(-np.expm1(np.log(missed) / n))


def evidence_of(frame: pd.DataFrame) -> Any:
    return frame.strength if "strength" in frame else ["sampled"] * len(frame)


def _rate(correct: int, n: int, strength: str) -> tuple[float, float, float]:
    if n <= 0:
        return float("nan"), float("nan"), float("nan")
    share = correct / n
    return (share, *(clopper_pearson(correct, n) if strength == "sampled" else (share, share)))


@drawing(Scores)
def scores_view(result: Scores) -> Picture:
    """Intervals over one kind of strata, and a heat map over two."""
    return intervals_view(result) if len(result.strata) == 1 else table_view(result)


def intervals_view(result: Scores) -> Picture:
    """Shares right with their 95% intervals, one series per group; or error rates on a logarithmic axis, where an open
    mark is the 95% upper bound of a stratum without an error."""
    (stratum,) = result.strata
    frame = result.to_dataframe().query("n > 0")
    series = []
    for name, rows in frame.groupby(result.series, sort=False) if result.series else [("right", frame)]:
        evidence = np.array(evidence_of(rows))
        ends = np.stack((rows.accuracy, rows.accuracy_low, rows.accuracy_high))
        none = (ends[0] == 1) & (evidence == "sampled") & result.errors
        if result.errors:
            ends = np.where(none, [error_bound(int(n)) for n in rows.n], 1 - ends[[0, 2, 1]])
        said = {"right": rows.correct.to_numpy(), "of": rows.n.to_numpy(), "evidence": evidence}
        filled = ~none if none.any() else None
        series.append(Series(str(name), rows[stratum].to_numpy(), *ends, filled=filled, said=said))
    x, y = stratum.replace("_", " "), "error rate" if result.errors else "answers right"
    note = "Bars: 95% intervals"
    if result.errors:
        note += ". Open: nothing wrong, 95% upper bound; no mark: right on every problem that there is"
    if result.errors or frame[stratum].dtype.kind == "O":
        many = frame[stratum].nunique() > 12
        return Picture([Points(x, y, series=series, scale="log" if result.errors else "share", across=many)], note=note)
    return Picture([Curves(x, y, series=series, scale="share")], note=note)
