"""The evidence on a one-layer adder or subtractor: a table of all classes of inputs, and what was proved in each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance
from interp.core.views import Grid, Picture
from interp.proofs.columns.accuracy_bounds import AccuracyBounds, bounds_from_dict
from interp.proofs.columns.column_rule import SUMS, ColumnRule, over_all_pairs
from interp.proofs.verdict.verdict import (
    ARITHMETICS,
    IN_WORDS,
    ArithmeticName,
    Evidence,
    Status,
    Targets,
    Verdict,
    margin_grid,
)
from interp.proofs.verdict.verdict_files import is_count
from models.number_format import shown

#: The fields that say what a class is, and which answer it asks for.
CLASS = ("target", "previous", "carry", "total", "token", "answer")


@dataclass(frozen=True)
class WrongToken:
    """The first wrong token of a wrong answer: its target ("s3" or "EOS"), what the model says, and what is right."""

    target: str
    predicted: str
    expected: str


@dataclass(frozen=True)
class OverTheReals:
    """What is proved of the function that the weights define over the real numbers; ``open`` classes are not proved."""

    open: int
    lower_bound: float

    def words(self) -> str:
        if self.open:
            return f"over the reals {self.open:,} could not be proved either"
        return f"over the reals all are proved, every margin above {shown(self.lower_bound)}"


@dataclass(frozen=True, eq=False)
class PairEvidence(Evidence):
    """What is known of a one-layer adder (or subtractor, as ``rule`` says) over all 10^20 pairs (or those of the rule).

    ``classes`` is a dataset over ``input_class`` (see :mod:`interp.proofs.columns.column_classes`): target, previous,
    carry, total, token, answer; ``a`` and ``b``, a problem that was hunted for a small margin; ``margin``, the right
    token's lead there, for the function that ``arithmetic`` is about: over the reals ("interval", in float64) or as the
    model itself computes it; ``hunted``, the same in float64, as the hunt found it; ``proved``, a lower bound of the
    class's margins, NaN if there is none.

    Attributes:
        targets: what was asked about: "all" tokens of the answer, or its "digits" without the EOS after them.
        cuts: which windows of each class were split. They let the proof be checked without a search.
        counts: per class, how many problems were certified, refuted and left open.
        wrong_token: where the counterexample fails.
        obstacle: what stood in the way of a proof of any class, if something did.
        reals: where rounding left classes open, what is proved without it.
        accuracy: the share of all pairs on which the model is right, where that was bounded.
        rule: what is added or subtracted.
    """

    arithmetic: ArithmeticName
    classes: xr.Dataset
    cuts: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, int, int], ...]
    obstacle: str | None = None
    accuracy: AccuracyBounds | None = None
    targets: Targets = "all"
    wrong_token: WrongToken | None = None
    reals: OverTheReals | None = None
    rule: ColumnRule = SUMS

    @property
    def smallest_margin(self) -> float:
        """The smallest lead of a right token, in logits, among the extreme pairs of all classes."""
        return float(self.classes.margin.min())

    @property
    def witness(self) -> tuple[int, int]:
        """The pair that attains the smallest margin."""
        row = int(self.classes.margin.values.argmin())
        return int(self.classes.a[row]), int(self.classes.b[row])

    @property
    def failing(self) -> int:
        """How many classes have an extreme pair that the judged function gets wrong at the class's target."""
        return int((~(self.classes.margin.values > 0)).sum())

    @property
    def open(self) -> int:
        """How many classes were not proved."""
        return int((~(self.classes.proved.values > 0)).sum())

    @property
    def digits(self) -> Status:
        """The verdict on the answer's digits alone; the EOS after them may be wrong or left open."""
        own = self.classes.target.values < self.rule.written
        if not (self.classes.margin.values[own] > 0).all():
            return "refuted"
        return "certified" if (self.classes.proved.values[own] > 0).all() else "undecided"

    def shares(self) -> pd.DataFrame:
        """The shares of all pairs certified, refuted and left open, per target."""
        total: dict[int, list[int]] = {}
        for target, counts in zip(self.classes.target.values.tolist(), self.counts, strict=True):
            total[target] = [a + b for a, b in zip(total.get(target, [0, 0, 0]), counts, strict=True)]
        frame = pd.DataFrame.from_dict(total, orient="index", columns=["certified", "refuted", "open"]).astype(object)
        return frame.map(lambda count: Fraction(count, self.rule.size)).rename_axis("target")

    def share_in_words(self) -> str:
        """The share of pairs left when those not certified at some answer digit are taken away; rounded down."""
        lost = self.shares()[["refuted", "open"]].sum(axis=1).sum()
        certified = max(Fraction(0), 1 - lost)
        percent = math.floor(certified * 10**6) / 10**4
        return f"at least {percent:.4f}% of all pairs are certified at every answer digit"

    @property
    def lower_bound(self) -> float:
        """A proved lower bound of all margins; NaN if some class is not proved."""
        return float(self.classes.proved.min(skipna=False))

    def problems_left(self) -> list[tuple[int, int]]:
        data = self.classes
        order = data.margin.values.argsort(kind="stable")
        order = order[~((data.margin.values > 0) & (data.proved.values > 0))[order]]
        return [(int(data.a[row]), int(data.b[row])) for row in order]

    def picture(self) -> Picture:
        """The smallest margin among hunted pairs, right token by position, and the problems where it is lowest."""
        grid, lowest = self.margins()
        return Picture([grid], note=f"Smallest lead of the right token among the hunted pairs. Lowest: {lowest}")

    def margins(self) -> tuple[Grid, str]:
        """The grid of margins, and its lowest ones in words."""
        data, rule = self.classes, self.rule
        targets = sorted(set(data.target.values.tolist()))
        answer, target = data.answer.values, data.target.values
        frame = pd.DataFrame({"margin": data.margin.values, "target": [rule.label(int(t)) for t in target]})
        frame["token"] = np.where(target == rule.written, "EOS", answer.astype(str))
        frame["problem"] = [rule.problem(int(a), int(b)) for a, b in zip(data.a.values, data.b.values, strict=True)]
        tokens = [*map(str, range(10)), *(["EOS"] if targets[-1] == rule.written else [])]
        labels = [rule.label(t) for t in targets]
        return margin_grid(frame, "token asked for", "right token", labels, tokens)

    def to_dataframe(self) -> pd.DataFrame:
        """One row per class: its fields, its extreme pair, the margin there, the hunted one and the proved bound."""
        data = self.classes
        frame = pd.DataFrame({name: data[name].values for name in (*CLASS, "margin")})
        frame["problem"] = [f"{a}{self.rule.operator}{b}" for a, b in zip(data.a.values, data.b.values, strict=True)]
        frame["hunted"], frame["proved"] = data.hunted.values, data.proved.values
        return frame

    def to_dict(self) -> dict[str, Any]:
        """The evidence as JSON; NaN (no bound) and infinities are null."""
        data = self.classes
        rows = {name: data[name].values.tolist() for name in (*CLASS, "a", "b")}
        for name in ("margin", "hunted", "proved"):
            values = data[name].values.astype(object)
            values[~np.isfinite(data[name].values)] = None
            rows[name] = values.tolist()
        own = super().to_dict()
        del own["rule"]
        if self.reals is not None and not math.isfinite(self.reals.lower_bound):
            own["reals"]["lower_bound"] = None
        smallest = self.smallest_margin
        summary = {"smallest_margin": smallest if np.isfinite(smallest) else None, "witness": list(self.witness)}
        accuracy = None if self.accuracy is None else self.accuracy.to_dict()
        about = {"domain": self.rule.domain} | self.rule.stored()
        return own | summary | about | {"accuracy": accuracy, "classes": rows}

    def finding(self, verdict: Verdict) -> str:
        n, words = len(self.cuts), IN_WORDS[self.arithmetic]
        where = f"smallest margin {self.smallest_margin:.3f} at {self.rule.problem(*self.witness)}"
        digits_of = f"all {self.rule.count} digits of "
        of = digits_of if self.targets == "digits" else ""
        if verdict.status in ("certified", "conditional"):
            rule = self.rule
            said = "certified" if verdict.status == "certified" else f"proved for a {rule.operator} b"
            proved = f"{of}{rule.all_pairs}, {n:,} classes, {where}, {_proved(self.lower_bound)}"
            return f"{said} {words}: {proved}{f'; {rule.caveat}' if rule.caveat else ''}"
        if verdict.status == "sampled":
            return f"no proof, {words} and on samples: {of}no extreme pair of {n:,} classes is wrong, {where}"
        accuracy = f", {self.accuracy.wrong()}" if self.accuracy and not self.accuracy.says_little else ""
        digits = ""
        if self.targets == "all" and self.digits == "certified":
            proved = self.classes.proved.values[self.classes.target.values < self.rule.written]
            said = "proved" if self.rule.caveat else "certified"
            digits = f"; {digits_of}{self.rule.all_claimed} are {said} {words}, {_proved(proved.min())}"
        if verdict.status == "refuted":
            fail = f"{self.failing:,} of {n:,} classes fail"
            if not self.failing:  # it fails in the model's own precision only
                fail = "though no extreme pair of a class is wrong over the reals"
            assert self.wrong_token is not None
            wrong = _wrong(self.rule, verdict.counterexample, self.wrong_token)
            return f"refuted: {wrong}, {fail}{accuracy}{digits}"
        rest = "".join(f"; {part}" for part in (self.obstacle, self.reals and self.reals.words()) if part)
        return (
            f"undecided {words}: {of}{self.open:,} of {n:,} classes could not be proved ({self.share_in_words()}), and "
            f"none of their extreme pairs is wrong; {where}{accuracy}{digits}{rest}"
        )

    def provenance(self, verdict: Verdict) -> Provenance:
        if verdict.status in ("certified", "conditional"):
            return over_all_pairs(self.rule, self.arithmetic)
        return Provenance(self.classes.margin.size, None, "extreme pairs of all classes, run through the model")

    @classmethod
    def read(cls, value: dict[str, Any]) -> PairEvidence:
        rows = value["classes"]
        columns = {name: _column(rows[name], np.int64) for name in (*CLASS, "a", "b")}
        columns |= {name: _column(rows[name], np.float64) for name in ("margin", "hunted", "proved")}
        accuracy, counts, reals = (value[name] for name in ("accuracy", "counts", "reals"))
        (n,) = columns["a"].shape
        for name, column in columns.items():
            if column.shape != (n,):
                raise ValueError(f"{name} has shape {list(column.shape)}")
        rule = ColumnRule.of_stored(value)
        limits = {"target": rule.written + 1, "token": 2**31, "answer": 2**31, "a": rule.limit, "b": rule.limit}
        for name, limit in limits.items():
            if not ((columns[name] >= 0) & (columns[name] < limit)).all():
                raise ValueError(f"{name} is out of range")
        if not n or {len(value["cuts"]), len(counts)} != {n}:
            raise ValueError("columns of unequal length")
        token, targets = value["wrong_token"], value["targets"]
        status, arithmetic, obstacle, wrong = (value[x] for x in ("status", "arithmetic", "obstacle", "counterexample"))
        for holds, what in (
            (arithmetic in ARITHMETICS and targets in get_args(Targets), "unknown arithmetic or question"),
            (arithmetic != "float" or status not in ("certified", "conditional"), "a proof in floats"),
            (status != ("certified" if rule.caveat else "conditional"), "another status than its rule's"),
            (obstacle is None or isinstance(obstacle, str), "an obstacle without words"),
            (accuracy is None or status in ("refuted", "undecided"), "bounds on the accuracy of what is not open"),
            (reals is None or status == "undecided", "a verdict over the reals beside another"),
            (value["domain"] == rule.domain, "another domain"),
            (wrong is None or rule.holds(*wrong[:2]), "a counterexample that is no problem"),
            ((wrong is None) == (token is None), "a counterexample and its wrong token belong together"),
        ):
            if not holds:
                raise ValueError(what)
        found = cls(
            arithmetic=arithmetic,
            obstacle=obstacle,
            targets=targets,
            classes=dataset(columns),
            cuts=tuple(tuple(_whole(x) for x in row) for row in value["cuts"]),
            counts=tuple((_whole(a), _whole(b), _whole(c)) for a, b, c in counts),
            accuracy=None if accuracy is None else bounds_from_dict(accuracy),
            wrong_token=None if token is None else WrongToken(**{k: str(token[k]) for k in WrongToken.__annotations__}),
            reals=None if reals is None else OverTheReals(_whole(reals["open"]), _number(reals["lower_bound"])),
            rule=rule,
        )
        smallest = value["smallest_margin"]
        if found.smallest_margin != (-np.inf if smallest is None else smallest) and not np.isnan(found.smallest_margin):
            raise ValueError("its smallest margin is not that of its classes")
        if list(found.witness) != value["witness"]:
            raise ValueError("its witness does not have the smallest margin")
        return found

    @classmethod
    def read_counterexample(cls, value: Any) -> tuple[int, int, int | None]:
        """(a, b, the model's answer). Raises TypeError or ValueError for anything else."""
        a, b, answer = value
        if not (is_count(a) and is_count(b) and (answer is None or is_count(answer))):
            raise ValueError("a counterexample that is no pair")
        return a, b, answer


def _proved(bound: float) -> str:
    return f"every margin proved above {shown(float(bound))}"


def _wrong(rule: ColumnRule, counterexample: tuple[int, int, int | None], token: WrongToken) -> str:
    """A counterexample in words: what the model answers, and which token of that is wrong."""
    said = f"{answered(rule, counterexample)} (run through the model"
    if token.target == "EOS":
        return f"{said}; every digit is right, and {token.predicted} follows where the answer should end)"
    return f"{said}; {token.target} is {token.expected}, not {token.predicted})"


def answered(rule: ColumnRule, counterexample: tuple[int, int, int | None]) -> str:
    """A wrong answer, such as "57 + 48 -> 104"."""
    a, b, answer = counterexample
    return f"{rule.problem(a, b)} -> {'no number' if answer is None else answer}"


def dataset(columns: dict[str, np.ndarray]) -> xr.Dataset:
    """The table of classes as a dataset."""
    return xr.Dataset({name: ("input_class", x) for name, x in columns.items()})


def _column(rows: Any, dtype: type) -> np.ndarray:
    """One column of the classes' table. Raises TypeError or ValueError for anything but numbers."""
    allowed = (int,) if dtype is np.int64 else (int, float, type(None))
    if not all(isinstance(x, allowed) and not isinstance(x, bool) for x in rows):
        raise TypeError("a column with other things than numbers")
    return np.array(rows, dtype=dtype)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
