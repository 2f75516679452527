"""One number with its interval, sample size and control: what a table, a curve or a sentence says of a measure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from interp.core.results import Strength
from models.number_format import in_percent_with, number

SHARE = "share"


@dataclass(frozen=True)
class Estimate:
    """A number, what it rests on, and what it is compared with.

    Attributes:
        value: the number, in ``unit`` ("share": a part of 1).
        low, high: 95% interval, None where nothing was sampled.
        n: how many were sampled of what ``note`` or the question names.
        strength: the strength of the evidence.
        control: the same measure of what ``control_note`` names, such as an untrained copy.
        name: what the number is about, such as a head.
        parts: the numbers that this one summarises, for example those of all heads.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    strength: Strength | None = None
    control: float | None = None
    control_note: str = ""
    note: str = ""
    parts: tuple[Estimate, ...] = ()
    name: str = ""
    unit: str = ""

    def __str__(self) -> str:
        """The value with its interval, as both stand in a sentence: "99.5% [99.1%, 99.8%]", "2.3 [2.1, 2.5]"."""
        low, high = (math.nan if end is None else end for end in (self.low, self.high))
        if self.unit == SHARE:
            return in_percent_with(self.value, low, high)
        ends = f" [{number(low)}, {number(high)}]"
        wide = (
            math.isfinite(low) and math.isfinite(high) and number(low) != number(high)
        )  # one of no width says nothing
        return number(self.value) + ends * wide

    @property
    def against(self) -> str:
        """The control in words: "an untrained copy 12.1%"; empty where there is none."""
        if self.control is None or math.isnan(self.control):
            return ""
        return f"{self.control_note} {Estimate(self.control, unit=self.unit)}".strip()


def known(value: Any) -> float | None:
    """A number of a table as a field of an estimate: None for a missing one."""
    return None if value is None or math.isnan(value) else float(value)


@dataclass(frozen=True)
class DoesNotApply:
    """Why a question has no answer for a model."""

    why: str
