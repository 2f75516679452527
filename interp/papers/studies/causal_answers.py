"""What the questions of the causal page share: the model that they are about, and the form of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

import models
from interp.core.results import Result
from interp.core.sections import Section
from interp.core.stats import Proportion
from models.tasks.pair_kinds import problem_pairs
from models.tasks.paired_problems import ProblemPairs

PAIRS = 256  # default size of a sample


@dataclass(frozen=True)
class Subject:
    """A stored model, the column whose incoming carry is followed, and other models whose algorithm is asked for.

    ``large`` models get smaller samples where every edge or head is tried.
    """

    model: str
    column: int
    others: tuple[str, ...] = ()
    large: bool = False

    def pairs(self, n: int, seed: int) -> dict[str, ProblemPairs]:
        """Pairs that differ in the carry into the column, by how that carry arises."""
        task = models.load(self.model).task
        kinds = {"made": "made carry"} | ({"passed": "passed carry"} if self.column > 1 else {})
        return {name: problem_pairs(task, kind, column=self.column, n=n, seed=seed) for name, kind in kinds.items()}


@dataclass(frozen=True)
class Answer:
    """What a question found: sentences, with results of the same names for figures; tables; and facts."""

    sentences: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    facts: Sequence[dict[str, Any]] = ()
    results: Mapping[str, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a page shows: the stored data of the answers, and the results behind them while they are available."""

    data: Mapping[str, Any]
    results: Mapping[str, Result] = field(default_factory=dict)

    def named(self, start: str) -> list[str]:
        """The names of sentences that begin with ``start``."""
        return [name for name in self.data["sentences"] if name.startswith(start)]

    def table(self, name: str) -> pd.DataFrame:
        """A stored table; empty if there is none."""
        return pd.DataFrame(self.data["tables"].get(name, []))

    def section(
        self, heading: str, name: str, table: pd.DataFrame | None = None, text: str = "", **figure: Any
    ) -> Section:
        """A section of level 3: the sentence of this name, a table, and the figure of its result."""
        return Section(
            heading,
            "\n\n".join(part for part in (text, self.data["sentences"][name]) if part),
            () if table is None or table.empty else (table,),
            (self.results[name].figure(**figure),) if name in self.results else (),
            level=3,
        )


def told(results: Mapping[str, Result]) -> dict[str, str]:
    """Every result's sentence."""
    return {name: str(result) for name, result in results.items()}


def fact(
    question: str,
    quantity: str,
    value: Proportion | tuple[float, ...] | float | int,
    n: int,
    control: str = "",
) -> dict[str, Any]:
    """One number at the head of the page; ``value`` has its interval, or is alone (an int is a count or a step).

    ``control``: what to compare it with.
    """
    if isinstance(value, Proportion):
        found: tuple[float, ...] = (value.value, value.low, value.high)
    else:
        found = value if isinstance(value, tuple) else (value, float("nan"), float("nan"))
    ends = dict(zip(("value", "low", "high"), map(float, found), strict=True))
    row = {"question": question, "quantity": quantity, "n": int(n)} | ends
    return row | {"count": isinstance(value, int), "control": control}


def interval(value: float, low: float, high: float, decimals: int = 3) -> str:
    """A number and its interval, for a cell without line breaks."""
    value_, low_, high_ = (f"{number:.{decimals}f}" for number in (value, low, high))
    return f"{value_} [{low_}, {high_}]".replace(" ", "\u00a0")


def share(found: Proportion, decimals: int = 3) -> str:
    """:func:`interval` of a proportion."""
    return interval(found.value, found.low, found.high, decimals)


def unbroken(names: Iterable[Any]) -> list[str]:
    """Names with hyphens that do not break lines."""
    return [str(name).replace("-", "\u2011") for name in names]
