"""What a certifier found: proved on all inputs, refuted by one of them, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.certificates.accuracy_bounds import AccuracyBounds, bounds_from_dict
from interp.certificates.rungs import RUNGS, ArithmeticName
from interp.certificates.verdict import FORMAT, STATUSES, Status, Verdict, parse_verdict
from interp.results import Provenance
from models.checkpoint import read_bytes
from models.errors import UserError
from models.tasks.addition import DIGITS

IN_WORDS = {
    "float": "in floats (samples: no proof)",
    "interval": "in interval arithmetic",
    "float32": "in interval arithmetic incl. float32 rounding",
}
_INTEGERS = ("target", "previous", "carry", "total", "token", "answer")


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Verdict):
    """A verdict on a one-layer adder over all 10^20 pairs, with what it rests on.

    ``classes`` is a dataset over ``input_class`` (see :mod:`interp.certificates.columns`) and ``end`` (low, high):
    target, previous, carry, total, token, answer; ``reach`` the range of the attention scalar in units of 2^-44, and
    ``a``, ``b`` a problem at each end (branch and bound has no such range, and one problem with a small margin, as its
    only end); ``margin`` the right token's lead there, as the model itself computes it; ``hunted`` the smallest float64
    margin that was found; ``proved`` a lower bound of the class's margins, NaN without one.

    Attributes:
        status: certified, refuted, or undecided.
        fingerprint: SHA-256 of task, config and effective weights: what the verdict is about.
        cuts: where each class's range was cut (units of 2^-44), or which of its windows were split: with them the proof
            is checked without search.
        counts: of each class's problems, how many were certified, refuted and left open; None in older files.
        counterexample: (a, b, the model's answer) if refuted; None spells no number.
        obstacle: what stood in the way of a proof of any class, if something did.
        accuracy: on what share of all pairs the model is right, where that was bounded.
    """

    model: str
    fingerprint: str
    task: str
    method: str
    arithmetic: ArithmeticName
    status: Status
    classes: xr.Dataset
    cuts: tuple[tuple[int, ...], ...]
    seconds: float
    versions: dict[str, str]
    counterexample: tuple[int, int, int | None] | None = None
    obstacle: str | None = None
    counts: tuple[tuple[int, int, int], ...] | None = None
    accuracy: AccuracyBounds | None = None

    @property
    def provenance(self) -> Provenance:  # pyright: ignore[reportIncompatibleVariableOverride]
        if self.status == "certified":
            return Provenance(10 ** (2 * DIGITS), None, "pairs of ten-digit numbers", RUNGS[self.arithmetic])
        return Provenance(self.classes.margin.size, None, "extreme pairs of all classes, run through the model")

    @property
    def smallest_margin(self) -> float:
        """The smallest lead of a right token among all classes' extreme pairs, in the model's own logits."""
        return float(self.classes.margin.min())

    @property
    def witness(self) -> tuple[int, int]:
        """The pair that attains it."""
        row, end = np.unravel_index(int(self.classes.margin.values.argmin()), self.classes.margin.shape)
        return int(self.classes.a[row, end]), int(self.classes.b[row, end])

    @property
    def failing(self) -> int:
        """Classes with an extreme pair that the model gets wrong at the class's own token."""
        return int((~(self.classes.margin.values > 0)).any(1).sum())

    @property
    def open(self) -> int:
        """Classes that were not proved."""
        grid = self.arithmetic == "float" and "reach" in self.classes
        bound = self.classes.hunted if grid else self.classes.proved
        return int((~(bound.values > 0)).sum())

    def sentence(self) -> str:
        return self.finding() if self.status == "refuted" else f"{self.finding()}   ({self.seconds:.1f} s)"

    def finding(self) -> str:
        """The sentence without the time it took."""
        n = len(self.cuts)
        a, b = self.witness
        where = f"smallest margin {self.smallest_margin:.3f} at {a} + {b}"
        if self.status == "certified":
            bound = "" if self.arithmetic == "float" else f", every margin proved above {self.lower_bound:.2g}"
            return f"certified {IN_WORDS[self.arithmetic]}: all 10^20 pairs, {n:,} classes, {where}{bound}"
        if self.status == "refuted":
            assert self.counterexample is not None
            a, b, answer = self.counterexample
            shown = "no number" if answer is None else answer
            share = f", {self.accuracy.wrong()}" if self.accuracy else ""
            return (
                f"refuted: {a} + {b} -> {shown} (run through the model), {self.failing:,} of {n:,} classes fail{share}"
            )
        reason = f"; {self.accuracy.wrong()}" if self.accuracy else ""
        reason += f"; {self.obstacle}" if self.obstacle else ""
        share = f" ({self.share_in_words()})" if self.counts and self.arithmetic != "float" else ""
        return (
            f"undecided {IN_WORDS[self.arithmetic]}: {self.open:,} of {n:,} classes could not be proved{share}, and "
            f"none of their extreme pairs is wrong; {where}{reason}"
        )

    def shares(self) -> pd.DataFrame:
        """Of all pairs, the share certified, refuted and left open at each target. Raises UserError without counts."""
        if self.counts is None:
            raise UserError("This certificate does not say how many pairs its classes hold; make it again.")
        total: dict[int, list[int]] = {}
        for target, counts in zip(self.classes.target.values.tolist(), self.counts, strict=True):
            total[target] = [a + b for a, b in zip(total.get(target, [0, 0, 0]), counts, strict=True)]
        pairs = 10 ** (2 * DIGITS)
        frame = pd.DataFrame.from_dict(total, orient="index", columns=["certified", "refuted", "open"]).astype(object)
        return frame.map(lambda count: Fraction(count, pairs)).rename_axis("target")

    def share_in_words(self) -> str:
        """What is left of all pairs, without those not certified at some answer digit; rounded to the safe side."""
        lost = self.shares()[["refuted", "open"]].sum(axis=1).sum()
        certified = max(Fraction(0), 1 - lost)
        percent = math.floor(certified * 10**6) / 10**4
        return f"at least {percent:.4f}% of all pairs are certified at every answer digit"

    @property
    def lower_bound(self) -> float:
        """A proved lower bound of all margins; NaN where a class is not proved."""
        return float(self.classes.proved.min(skipna=False))

    def to_dataframe(self) -> pd.DataFrame:
        """A row a class: what it is, its extreme pairs, margins there, the hunted one and the proved bound."""
        data = self.classes
        frame = pd.DataFrame({name: data[name].values for name in _INTEGERS})
        for end in data.end.values.tolist():
            side = data.sel(end=end)
            frame[f"margin_{end}"] = side.margin.values
            frame[f"problem_{end}"] = [f"{a}+{b}" for a, b in zip(side.a.values, side.b.values, strict=True)]
        frame["hunted"], frame["proved"] = data.hunted.values, data.proved.values
        return frame

    def figure(self) -> Any:
        """Smallest margin by answer digit and position, with the worst problems."""
        from interp.figures.certificates import figure_margins

        return figure_margins(self)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; NaN (no bound) and infinities are null."""
        data = self.classes
        rows = {name: data[name].values.tolist() for name in (*_INTEGERS, "reach", "a", "b") if name in data}
        for name in ("margin", "hunted", "proved"):
            values = data[name].values.astype(object)
            values[~np.isfinite(data[name].values)] = None
            rows[name] = values.tolist()
        names = ("model", "fingerprint", "task", "method", "arithmetic", "status", "seconds", "versions")
        own = {name: getattr(self, name) for name in (*names, "counterexample", "obstacle", "counts")}
        domain = "all pairs of numbers from 0 to 9999999999"
        smallest = self.smallest_margin
        summary = {"smallest_margin": smallest if np.isfinite(smallest) else None, "witness": list(self.witness)}
        accuracy = None if self.accuracy is None else self.accuracy.to_dict()
        return {"format": FORMAT, "domain": domain} | own | summary | {
            "accuracy": accuracy, "classes": rows, "cuts": self.cuts
        }  # fmt: skip


def dataset(columns: dict[str, np.ndarray]) -> xr.Dataset:
    """The classes' table, with ends labelled."""
    kinds = {name: ("input_class",) if np.ndim(x) == 1 else ("input_class", "end") for name, x in columns.items()}
    ends = ["low", "high"] if columns["a"].shape[1] == 2 else ["found"]
    return xr.Dataset({name: (kinds[name], x) for name, x in columns.items()}, coords={"end": ends})


def load_certificate(path: str | Path) -> Certificate:
    """A certificate from its file. This checks the form only; :func:`check_certificate` checks the proof.

    Raises:
        UserError: no such file, or not a certificate.
    """
    return parse_certificate(read_bytes(path), path)


def parse_certificate(data: bytes, path: object) -> Certificate:
    """A certificate from a file's bytes, JSON or gzipped JSON; see :func:`load_certificate`."""
    value = parse_verdict(data, path)
    if value.get("format") != FORMAT:
        raise UserError(f"{path} is not a certificate of format {FORMAT}.")
    try:
        rows = value["classes"]
        integers = (*_INTEGERS, *(["reach"] if "reach" in rows else []), "a", "b")
        columns = {name: np.array(rows[name], dtype=np.int64) for name in integers}
        columns |= {name: np.array(rows[name], dtype=np.float64) for name in ("margin", "hunted", "proved")}
        counterexample, accuracy, counts = value["counterexample"], value.get("accuracy"), value.get("counts")
        if value["status"] not in STATUSES or value["arithmetic"] not in RUNGS:
            raise ValueError("unknown status or arithmetic")
        n = len(columns["target"])
        lengths = {len(x) for x in (*columns.values(), value["cuts"], counts or value["cuts"])}
        if lengths != {n} or not n:
            raise ValueError("columns of unequal length")
        names = ("model", "fingerprint", "task", "method", "arithmetic", "status", "versions", "obstacle")
        return Certificate(
            classes=dataset(columns),
            cuts=tuple(tuple(int(x) for x in row) for row in value["cuts"]),
            seconds=float(value["seconds"]),
            counterexample=None if counterexample is None else tuple(counterexample),
            counts=None if counts is None else tuple((int(a), int(b), int(c)) for a, b, c in counts),
            accuracy=None if accuracy is None else bounds_from_dict(accuracy),
            **{name: value[name] for name in names},
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a complete certificate ({error}).") from None
