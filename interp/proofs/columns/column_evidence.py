"""The evidence on a one-layer adder or subtractor: a table of all classes of inputs, and what was proved in each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance
from interp.core.views import Grid, Picture
from interp.proofs.columns.accuracy_bounds import AccuracyBounds
from interp.proofs.columns.column_rule import SUMS, ColumnRule, over_all_pairs
from interp.proofs.verdict.verdict import (
    IN_WORDS,
    ArithmeticName,
    Evidence,
    Status,
    Targets,
    Verdict,
    margin_grid,
)
from interp.proofs.verdict.verdict_files import TableForm
from interp.proofs.verdict.wrong_answers import WrongAnswer
from models.number_format import shown

#: The fields that say what a class is, and which answer it asks for.
CLASS = ("target", "previous", "carry", "total", "token", "answer")
TABLE = TableForm((*CLASS, "a", "b"), ("margin", "hunted", "proved"), axis="input_class")


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
        obstacle: what stood in the way of a proof of any class, if something did.
        reals: where rounding left classes open, what is proved without it.
        accuracy: the share of all pairs on which the model is right, where that was bounded.
        rule: what is added or subtracted.
    """

    arithmetic: ArithmeticName
    classes: Annotated[xr.Dataset, TABLE]
    cuts: tuple[tuple[int, ...], ...]
    counts: tuple[tuple[int, int, int], ...]
    obstacle: str | None = None
    accuracy: AccuracyBounds | None = None
    targets: Targets = "all"
    reals: OverTheReals | None = None
    rule: ColumnRule = SUMS
    derived: ClassVar[tuple[str, ...]] = ("domain", "smallest_margin", "witness")
    optional: ClassVar[tuple[str, ...]] = ("rule",)

    def __post_init__(self) -> None:
        n, rule = self.classes.sizes["input_class"], self.rule
        if not n or {len(self.cuts), len(self.counts)} != {n}:
            raise ValueError("columns of unequal length")
        limits = {"target": rule.written + 1, "token": 2**31, "answer": 2**31, "a": rule.limit, "b": rule.limit}
        for name, limit in limits.items():
            if not ((self.classes[name].values >= 0) & (self.classes[name].values < limit)).all():
                raise ValueError(f"{name} is out of range")

    def allows(self, status: Status) -> bool:
        proof = "conditional" if self.rule.caveat else "certified"
        return (
            (status not in ("certified", "conditional") or (status == proof and self.arithmetic != "float"))
            and (self.accuracy is None or status in ("refuted", "undecided"))
            and (self.reals is None or status == "undecided")
        )

    @property
    def domain(self) -> str:
        return self.rule.domain

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
            assert verdict.counterexample is not None
            return f"refuted: {_wrong(verdict.counterexample)}, {fail}{accuracy}{digits}"
        rest = "".join(f"; {part}" for part in (self.obstacle, self.reals and self.reals.words()) if part)
        return (
            f"undecided {words}: {of}{self.open:,} of {n:,} classes could not be proved ({self.share_in_words()}), and "
            f"none of their extreme pairs is wrong; {where}{accuracy}{digits}{rest}"
        )

    def provenance(self, verdict: Verdict) -> Provenance:
        if verdict.status in ("certified", "conditional"):
            return over_all_pairs(self.rule, self.arithmetic)
        return Provenance(self.classes.margin.size, None, "extreme pairs of all classes, run through the model")


def _proved(bound: float) -> str:
    return f"every margin proved above {shown(float(bound))}"


def _wrong(one: WrongAnswer) -> str:
    """A counterexample in words: what the model answers, and which token of that is wrong."""
    which = "every digit is right, and the answer does not end" if one.target == "EOS" else f"{one.target} is wrong"
    return f"{one} (run through the model; {which})"


def dataset(columns: dict[str, np.ndarray]) -> xr.Dataset:
    """The table of classes as a dataset."""
    return xr.Dataset({name: ("input_class", x) for name, x in columns.items()})
