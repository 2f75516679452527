"""What the causal page's questions share: the model asked about, and what an answer consists of."""

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
from models.tasks.pairs import ProblemPairs

PAIRS = 256  # of a sample, unless the settings say otherwise


@dataclass(frozen=True)
class Subject:
    """A stored model, the column whose incoming carry is followed, and others whose algorithm is asked for.

    ``large`` models get smaller samples where every edge or head is tried.
    """

    model: str
    column: int
    others: tuple[str, ...] = ()
    large: bool = False

    def pairs(self, n: int, seed: int) -> dict[str, ProblemPairs]:
        """Pairs that differ in the carry into the column, by how it arises there."""
        task = models.load(self.model).task
        kinds = {"made": "made carry"} | ({"passed": "passed carry"} if self.column > 1 else {})
        return {name: problem_pairs(task, kind, column=self.column, n=n, seed=seed) for name, kind in kinds.items()}


@dataclass(frozen=True)
class Answer:
    """What a question found: sentences, each with the ``results`` of its name for pictures, tables and facts."""

    sentences: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    facts: Sequence[dict[str, Any]] = ()
    results: Mapping[str, Result] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a page shows: what is stored of the answers, and the results behind it while they are at hand."""

    data: Mapping[str, Any]
    results: Mapping[str, Result] = field(default_factory=dict)

    def named(self, start: str) -> list[str]:
        """The names of sentences that begin so."""
        return [name for name in self.data["sentences"] if name.startswith(start)]

    def table(self, name: str) -> pd.DataFrame:
        """A stored table; empty where there is none."""
        return pd.DataFrame(self.data["tables"].get(name, []))

    def section(
        self, heading: str, name: str, table: pd.DataFrame | None = None, text: str = "", **figure: Any
    ) -> Section:
        """A section of level 3: the sentence of this name, a table, and the picture of its result."""
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
    """One number of the page's head; ``value`` with its interval, or alone (an int is a count or a step).

    ``control``: what it is to be held to.
    """
    if isinstance(value, Proportion):
        found: tuple[float, ...] = (value.value, value.low, value.high)
    else:
        found = value if isinstance(value, tuple) else (value, float("nan"), float("nan"))
    ends = dict(zip(("value", "low", "high"), map(float, found), strict=True))
    row = {"question": question, "quantity": quantity, "n": int(n)} | ends
    return row | {"count": isinstance(value, int), "control": control}


def interval(value: float, low: float, high: float, decimals: int = 3) -> str:
    """A number and its interval in a cell that is not broken over lines."""
    value_, low_, high_ = (f"{number:.{decimals}f}" for number in (value, low, high))
    return f"{value_} [{low_}, {high_}]".replace(" ", "\u00a0")


def share(found: Proportion, decimals: int = 3) -> str:
    """:func:`interval` of a proportion."""
    return interval(found.value, found.low, found.high, decimals)


def unbroken(names: Iterable[Any]) -> list[str]:
    """Names with hyphens at which no line breaks."""
    return [str(name).replace("-", "\u2011") for name in names]
