"""A number with what it rests on, which is how a probe's finding stands in a table or on a curve."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

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

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it, without what is empty, numbers to six decimals."""
        kept = _kept(asdict(self) | {"parts": ()})
        return kept | {"parts": [_kept(asdict(part)) for part in self.parts]} if self.parts else kept

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Answer:
        parts = tuple(Part(**part) for part in value.get("parts", ()))
        return cls(**{name: item for name, item in value.items() if name != "parts"}, parts=parts)


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    rounded = {key: round(value, 6) + 0.0 if isinstance(value, float) else value for key, value in values.items()}
    return {key: value for key, value in rounded.items() if value not in (None, "", ())}


@dataclass(frozen=True)
class DoesNotApply:
    """Why a question has no answer for a model."""

    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"does not apply": self.why}


def answer_from_dict(value: dict[str, Any]) -> Answer | DoesNotApply:
    """What ``to_dict`` of either wrote."""
    return DoesNotApply(value["does not apply"]) if "does not apply" in value else Answer.from_dict(value)
