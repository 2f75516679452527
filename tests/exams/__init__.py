"""What every public probe must report of subjects for which the truth is known, by the probe's name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from interp.core.exam import Exam
from models.errors import UserError


@dataclass(frozen=True)
class Briefly:
    """What a probe needs to be asked in the tests that ask all of them, beyond a model (:mod:`tests.exams.asking`).

    Attributes:
        options: what it must be given, or what keeps it short; a function of the model where that depends on it.
        slow: whether it takes seconds even so; `make test-all` asks it then.
        slow_exam: whether its exam takes seconds, so that `make test` leaves it out.
        but: tests that do not ask it, with the reason.
    """

    options: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    slow: bool = False
    slow_exam: bool = False
    but: Mapping[str, str] = field(default_factory=dict)


EXAMS: dict[str, Exam] = {}
BRIEFLY: dict[str, Briefly] = defaultdict(Briefly)


def register_exam(exam: Exam, briefly: Briefly | None = None) -> None:
    """Raises UserError for a second exam of one probe."""
    if exam.probe in EXAMS:
        raise UserError(f"{exam.probe} has an exam already.")
    EXAMS[exam.probe] = exam
    if briefly is not None:
        BRIEFLY[exam.probe] = briefly
