"""A measured number with its interval, sample size and control: a probe's finding in a table or on a curve."""

from __future__ import annotations

from dataclasses import dataclass

from interp.core.results import Strength


@dataclass(frozen=True)
class MeasuredPart:
    """One of the numbers that an answer summarises, for example that of one chain length, head or unit."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    control: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Measured:
    """A measured number with its interval, sample size and control.

    ``low`` and ``high``: 95% interval, None where nothing was sampled; ``n``: number of what ``note`` or the question
    names; ``control``: the same measure of what ``control_note`` names.
    """

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    strength: Strength | None = None
    control: float | None = None
    control_note: str = ""
    note: str = ""
    parts: tuple[MeasuredPart, ...] = ()


@dataclass(frozen=True)
class DoesNotApply:
    """Why a question has no answer for a model."""

    why: str
