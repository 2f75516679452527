"""Right answers by stratum: the result of every question about how often a model is right.

A stratum is whatever problems are sorted by: a carry-chain length, a suite of problems, a problem size, or a target of
the response. A result has one or two kinds of strata, and a ``series`` where the same strata were measured for several
things: two sets of problems, the seeds of an entry, or the levels of ids that were moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.measured import Measured, MeasuredPart
from interp.core.results import GIVEN, Provenance, Result
from interp.core.stats import clopper_pearson
from models.errors import UserError
from models.files import read_json, write_json_atomic
from models.number_format import in_percent, in_percent_with, shown
from models.rates import CONFIDENCE, Rate

FORMAT = 1
OTHER_COUNTS = ("answer", "answer_forced")  # other counts of a table that are shares of ``n``


def share_right(found: Scores) -> Measured:
    """The share of all answers that are right."""
    rate = found.rate()
    low, high = (None, None) if found.provenance.strength == "exhaustive" else rate.interval
    return Measured(rate.accuracy, low, high, note=f"{rate.n - rate.correct:,} wrong")


def worst_stratum(found: Scores) -> Measured:
    """The share right in the stratum where it is lowest, with those of all strata as parts."""
    (stratum,) = found.strata
    parts = [
        MeasuredPart(str(row[stratum]), row["accuracy"], row["low"], row["high"], int(row["n"]))
        for row in found.to_dataframe().to_dict("records")
        if row["n"] > 0
    ]
    worst = min(parts, key=lambda part: part.value)
    alike = worst.value == max(part.value for part in parts)
    name = stratum.replace("_", " ")
    note = f"all alike by {name}" if alike else f"{name} {worst.name}"
    return Measured(worst.value, worst.low, worst.high, worst.n, note=note, parts=tuple(parts))


@dataclass(frozen=True, eq=False)
class Scores(Result):
    """How often answers are right as a whole, by stratum.

    Attributes:
        model: the model's name.
        table: int arrays over the strata (and the series): ``n`` problems tried (0: beyond the model's position tables,
            -1: not asked) and ``correct``; a coordinate ``strength`` where it differs. A grid of parity also has
            ``answer``, final answers right by greedy decoding, and ``answer_forced``, given the true scratchpad. Other
            columns are the question's own.
        series: the dimension or coordinate that is not a stratum, if there is one.
        said: the sentence, where the question has its own.
        counted: the word for problems that count as ``correct``.
        errors: whether figures show error rates on a logarithmic axis, as for models that are hardly ever wrong.
        about: what else is known: for a grid of sizes ``offsets``, ``requested``, ``early_exit`` and ``trained`` (the
            training range of each size), for an entry's seeds the ``chosen`` one.
    """

    model: str
    table: xr.Dataset
    provenance: Provenance
    series: str = ""
    errors: bool = False
    counted: str = "right"
    said: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def strata(self) -> list[str]:
        return [str(axis) for axis in self.table.n.dims if axis != self.series]

    @property
    def reached(self) -> xr.DataArray:
        """Whether problems of a stratum were tried."""
        return self.table.n > 0

    @property
    def out_of_reach(self) -> xr.DataArray:
        """Whether a size was asked for but needs position ids that the model's tables do not have."""
        return self.table.n == 0

    @property
    def accuracy(self) -> xr.DataArray:
        """Share of whole answers right; NaN where no problem was tried."""
        return self.share("correct")

    def share(self, what: str = "correct") -> xr.DataArray:
        """The share of one of the counts. Raises UserError if it was not measured."""
        if what not in self.table:
            raise UserError(f"These scores have no {what!r}; evaluate with final_answer=True.")
        return (self.table[what] / self.table.n.where(self.reached)).rename(what)

    def rate(self, **strata: Any) -> Rate:
        """The rate in the named strata, pooled over others: ``grid.rate(digits=10, operands=11)``, ``scores.rate()``.

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
            beyond = bool((at.n == 0).any())
            raise UserError(f"{strata}: {'the position tables do not reach it' if beyond else 'nothing was tried'}.")
        return Rate(n, int(at.correct.sum()))

    @property
    def wrong(self) -> int:
        """Number of wrong answers in all strata."""
        return int((self.table.n.clip(min=0) - self.table.correct).sum())

    # ---- sizes

    @property
    def trained(self) -> Mapping[str, tuple[int, int]]:
        """The training range of each size, (least, most), if known."""
        return self.about.get("trained") or {}

    @property
    def in_training_range(self) -> xr.DataArray:
        inside = xr.ones_like(self.reached)
        for axis, (low, high) in self.trained.items():
            inside = inside & (self.table[axis] >= low) & (self.table[axis] <= high)
        return inside & bool(self.trained)

    # ---- words and tables

    def sentence(self) -> str:
        if self.said:
            return self.said
        frame = self._tried()
        if frame.empty:
            return f"The position tables of {self.model} reach none of these sizes."
        parts = [f"{', '.join(self._totals(frame))}", self.worst()]
        beyond = int(self.out_of_reach.sum())
        parts += [f"{beyond} of {self.table.n.size} sizes are beyond its position tables"] if beyond else []
        offsets = f" ({self.about['offsets']})" if "offsets" in self.about else ""
        return f"{self.model}: {'; '.join(parts)}{offsets}."

    def _tried(self) -> pd.DataFrame:
        frame = self.to_dataframe().query("n > 0")
        return frame[frame[self.series] == self.about["chosen"]] if "chosen" in self.about else frame

    def _totals(self, frame: pd.DataFrame) -> list[str]:
        """Mean shares in and outside the training range, if known; else the counts of each series, or of all."""
        inside = self.in_training_range & self.reached
        if bool(inside.any()):
            outside = self.reached & ~inside
            said = [f"exact match {in_percent(float(self.accuracy.where(inside).mean()))} in the training range"]
            return said + (
                [f"{in_percent(float(self.accuracy.where(outside).mean()))} outside it"] if bool(outside.any()) else []
            )
        of = frame.groupby(self.series, sort=False) if self.series in self.table.dims else [("", frame)]
        told = {name: f"{rows.correct.sum():,} of {rows.n.sum():,} {self.counted}" for name, rows in of}
        names = {name: name if isinstance(name, str) else f"{self.series} {name}" for name in told}
        return [text + (f" ({names[name]})" if name != "" else "") for name, text in told.items()]

    def worst(self) -> str:
        """The stratum with the lowest accuracy, in words; of the chosen series, if there is one."""
        frame = self._tried()
        if frame.accuracy.min() == 1:
            alike = frame[frame[self.series] == frame[self.series].iloc[0]] if self.series in self.table.dims else frame
            return self._bounded(alike[np.asarray(evidence_of(alike)) == "sampled"])
        row = next(frame.loc[[frame.accuracy.idxmin()]].itertuples())
        if len(frame) == 1:
            return in_percent_with(row.accuracy, row.low, row.high, counted=True)
        named = ", ".join(
            f"{axis.replace('_', ' ')} {frame.at[row.Index, axis]}" for axis in map(str, self.table.n.dims)
        )
        share = in_percent_with(row.accuracy, row.low, row.high, counted=True)
        return f"worst at {named}: {row.correct:,} of {row.n:,} ({share})"

    def _bounded(self, drawn: pd.DataFrame) -> str:
        """What strata without a wrong answer say of those from which problems were only ``drawn``."""
        if drawn.empty:
            return f"every problem of every stratum is {self.counted}"
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
        """One row per stratum: n, correct, accuracy, low, high (Clopper-Pearson, 95%; the share itself where all
        existing problems were tried); NaN out of reach. Strata that were not asked for have no row."""
        frame = self.table.to_dataframe().reset_index()
        frame = frame[frame.n >= 0].reset_index(drop=True)
        for what in ("correct", *OTHER_COUNTS):
            if what in frame:
                prefix = "" if what == "correct" else f"{what}_"
                frame[[f"{prefix}accuracy", f"{prefix}low", f"{prefix}high"]] = [
                    _rate(k, n, strength)
                    for k, n, strength in zip(frame[what], frame.n, evidence_of(frame), strict=True)
                ]
        return frame

    # ---- files of grids

    def to_grid(self) -> dict[str, Any]:
        """A grid of sizes as stored in its file; :meth:`from_grid` reads it. (All scores have :meth:`to_dict`.)"""
        axes = {str(axis): self.table[axis].values.tolist() for axis in self.table.dims}
        counts = {str(name): array.values.tolist() for name, array in self.table.data_vars.items()}
        trained = {axis: list(bounds) for axis, bounds in self.trained.items()} or None
        stated = {"model": self.model} | dict(self.about) | {"trained": trained, "strength": "sampled"}
        return {"kind": "exact-match-grid", "version": FORMAT, **stated, "axes": axes, "counts": counts}

    @classmethod
    def from_grid(cls, value: Mapping[str, Any]) -> Scores:
        """The grid that :meth:`to_grid` wrote. Raises UserError for anything else."""
        if value.get("kind") != "exact-match-grid" or value.get("version") != FORMAT:
            raise UserError(f"This is not an exact-match grid of format {FORMAT}.")
        try:
            axes = value["axes"]
            table = xr.Dataset({name: (list(axes), np.array(v)) for name, v in value["counts"].items()}, axes)
            fields = ("task", "format", "offsets", "requested", "seed", "early_exit", "method", "trained")
            return by_size(value["model"], table, {name: value[name] for name in fields})
        except (KeyError, ValueError, TypeError) as error:
            raise UserError(f"This exact-match grid is incomplete ({error}).") from None

    def save(self, path: str | Path) -> None:
        write_json_atomic(path, self.to_grid())

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        return cls.from_grid(read_json(path))


def policy(about: Mapping[str, Any]) -> str:
    """The problems per size, the sequential rule and the offset policy, in words."""
    early = f" ({about['early_exit']} where those were all wrong)" if about["early_exit"] else ""
    return f"{about['requested']:,} a size{early}, {about['offsets']}"


def by_size(model: str, table: xr.Dataset, about: Mapping[str, Any]) -> Scores:
    """Scores over problem sizes."""
    trained = {axis: (int(low), int(high)) for axis, (low, high) in (about["trained"] or {}).items()} or None
    provenance = Provenance(int(table.n.clip(min=0).sum()), about["seed"], f"problems, {policy(about)}")
    return Scores(model, table, provenance, about=dict(about) | {"trained": trained})


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
