"""The score of a model: how many problems it answers right, by chain length and by target, and where it fails."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

from models.number_format import distinct_percent, shown
from models.rates import Rate


@dataclass(frozen=True)
class Failure:
    """A problem that was answered wrongly. ``predicted`` is None if the predicted tokens do not spell a number."""

    problem: tuple[int, ...]
    predicted: int | None
    expected: int
    first_wrong_target: str


@dataclass(frozen=True)
class Score(Rate):
    """How many problems a model answers entirely right, and where it fails.

    Attributes:
        model, task, problems: which model was scored, on which task and problems.
        method: "teacher_forced" or "greedy"; the exact count is the same for both.
        by_chain_length: exact counts by the length of the problem's longest carry chain.
        per_target: counts of right tokens per target ("s0", ..., "EOS"), given the method's input to that target.
        failures: the first few wrong problems.
        strength: the strength of evidence: "exhaustive" if these were all the problems that there are.
        base_rate: of problems with two different answers, the share in which the more common one is right.
        task_mismatch: that the task may not be the model's, where it answers less than half
        (:mod:`models.task_mismatch`).
    """

    model: str
    task: str
    problems: str
    method: str
    by_chain_length: dict[int, Rate]
    per_target: dict[str, Rate]
    failures: tuple[Failure, ...]
    strength: Literal["sampled", "exhaustive"] = "sampled"
    task_mismatch: str = ""
    base_rate: float | None = None

    def to_dataframe(self) -> pd.DataFrame:
        """One row per chain length (:attr:`lengths`) and one for all: n, correct, accuracy, low, high (95%)."""
        return _table("chain_length", {**self.lengths, "all": self})

    @property
    def lengths(self) -> dict[int, Rate]:
        """``by_chain_length``, empty where all problems have one length, as those of a task without chains."""
        return self.by_chain_length if len(self.by_chain_length) > 1 else {}

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON, without derived numbers except accuracy, interval and error bound."""
        value = asdict(self) | {"accuracy": self.accuracy}
        for name in ("task_mismatch", "base_rate"):
            if not value[name]:
                del value[name]
        if self.strength == "sampled":
            value |= {"interval": list(self.interval), "error_bound": self.error_bound}
        value["by_chain_length"] = {str(length): asdict(rate) for length, rate in self.by_chain_length.items()}
        value["failures"] = [asdict(failure) | {"problem": list(failure.problem)} for failure in self.failures]
        return value

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Score:
        """The score that :meth:`to_dict` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        derived = ("accuracy", "interval", "error_bound")
        rates = lambda kept, key: {key(name): Rate(**rate) for name, rate in kept.items()}  # noqa: E731
        read = {
            "by_chain_length": rates(value["by_chain_length"], int),
            "per_target": rates(value["per_target"], str),
            "failures": tuple(
                Failure(**failure | {"problem": tuple(failure["problem"])}) for failure in value["failures"]
            ),
        }
        named = {"rung": "strength", "doubt": "task_mismatch"}  # as files of earlier versions call it
        return cls(**{named.get(name, name): item for name, item in value.items() if name not in derived} | read)

    def __str__(self) -> str:
        rate = "" if self.base_rate is None else f"; the more common answer is right in {_short(self.base_rate)}"
        return " ".join(filter(None, (self.task_mismatch, self._counts() + rate)))

    def _counts(self) -> str:
        if self.strength == "exhaustive":
            share = f"{self.correct:,} of {self.n:,} ({_short(self.accuracy)})"
            return f"{self.model} on all {self.problems}: {share}; {self.strength}, {self.method.replace('_', ' ')}"
        what = f"{self.model} on {self.problems}: {Rate.__str__(self)}"
        how = f"{self.strength}, {self.method.replace('_', ' ')}"
        if 2 * self.correct < self.n:  # a bound on the errors would say nothing
            return f"{what}; {how}"
        below = f"error rate below {shown(self.error_bound, up=True)} with 95% confidence"
        return f"{what}; {how}; {below} if the problems are a random sample"

    def _repr_html_(self) -> str:
        table = self.to_dataframe().to_html(index=False, float_format="{:.4f}".format)
        return f"<p>{html.escape(str(self))}</p>{table}"


def _short(share: float) -> str:
    """A share in four digits, or in more where it would read as all or nothing."""
    text = f"{100 * share:.4g}"
    return f"{text}%" if share in (0, 1) or float(text) not in (0, 100) else distinct_percent(share)


def _table(key: str, rates: dict[Any, Rate]) -> pd.DataFrame:
    rows = []
    for name, rate in rates.items():
        low, high = rate.interval
        row = {key: name, "n": rate.n, "correct": rate.correct, "accuracy": rate.accuracy, "low": low, "high": high}
        rows.append(row)
    return pd.DataFrame(rows)
