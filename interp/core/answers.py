"""A number with what it rests on, which is how a probe's finding stands in a table or on a curve."""

from __future__ import annotations

from dataclasses import dataclass

from interp.core.results import Rung


@dataclass(frozen=True)
class Part:
    """One of the numbers behind an answer: of one chain length, head, unit."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    control: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """A number with what it rests on. ``low`` and ``high``: 95% interval, None where nothing was sampled; ``n``: of
    what ``note`` or the question's words say; ``control`` is what ``control_note`` gives by the same measure."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    rung: Rung | None = None
    control: float | None = None
    control_note: str = ""
    note: str = ""
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class DoesNotApply:
    """Why a question has no answer for a model."""

    why: str
