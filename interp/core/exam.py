"""What a probe must and must not report, asked of subjects in which the truth is known.

An exam puts one probe to four subjects: the thing it looks for is there (``presence``), is not (``absence``), is there
the other way round (``inversion``), and an ``untrained`` copy or draw in which it is what chance makes it. A subject is
whatever the question is asked of: a model, two, a model with pairs, a table. ``report`` takes from the result the
little that the probe is held to. A refusal (UserError) is a report too: ``REFUSED``. Where a question has no case of a
kind, the reason stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from models.calls import shown
from models.errors import UserError

KINDS = ("presence", "absence", "inversion", "untrained")
REFUSED = "refused"
LEAST_WORDS = 3  # of a reason


@dataclass(frozen=True)
class Case:
    """A subject, and what the probe must report of it: this very value, or one of which a function says True."""

    subject: Callable[[], Any]
    expected: Any

    def holds(self, reported: Any) -> bool:
        return bool(self.expected(reported) if callable(self.expected) else reported == self.expected)


@dataclass(frozen=True)
class Exam:
    """``ask(subject)`` is the public probe; ``report`` is what counts of its result; a case for each of ``KINDS``.

    ``inversion`` and ``untrained`` may be the reason why there is no such case, in a sentence.

    Raises:
        UserError: neither a case nor a reason, no case of presence or absence, or an ``ask`` that cannot be called.
    """

    probe: str
    ask: Callable[[Any], Any]
    report: Callable[[Any], Any]
    presence: Case
    absence: Case
    inversion: Case | str
    untrained: Case | str

    def __post_init__(self) -> None:
        for name in ("ask", "report"):
            if not callable(getattr(self, name)):
                raise UserError(f"{name} of an exam is a function, not {shown(getattr(self, name))}.")
        for kind in KINDS:
            given = getattr(self, kind)
            if isinstance(given, Case):
                continue
            if kind in ("presence", "absence"):
                raise UserError(f"{kind} of an exam is a Case, not {shown(given)}: every question has one.")
            if not isinstance(given, str) or len(given.split()) < LEAST_WORDS:
                raise UserError(
                    f"{kind} of an exam is a Case, or the reason why {self.probe} has none in a sentence (such as "
                    f"'A norm has no sign.'), not {shown(given)}."
                )

    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a case."""
        return tuple(kind for kind in KINDS if isinstance(getattr(self, kind), Case))

    def found(self, kind: str) -> Any:
        """What the probe answers; ``REFUSED`` where it refuses."""
        try:
            return self.ask(getattr(self, kind).subject())
        except UserError:
            return REFUSED

    def reported(self, found: Any) -> Any:
        """What counts of an answer."""
        try:
            return REFUSED if found is REFUSED else self.report(found)
        except UserError:
            return REFUSED
