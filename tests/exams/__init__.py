"""What every public probe must report of subjects for which the truth is known, by the probe's name."""

from __future__ import annotations

from interp.core.exam import Exam
from models.errors import UserError

EXAMS: dict[str, Exam] = {}


def register_exam(exam: Exam) -> None:
    """Raises UserError for a second exam of one probe."""
    if exam.probe in EXAMS:
        raise UserError(f"{exam.probe} has an exam already.")
    EXAMS[exam.probe] = exam
