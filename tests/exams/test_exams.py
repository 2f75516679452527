"""Every public probe sits its exam."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from interp.core.probe import registered
from tests.exams import compare, look, papers, proofs, touch  # noqa: F401  which register them
from tests.exams.exam import EXAMS, REFUSED, Case

ASKED = [(probe, kind) for probe, exam in EXAMS.items() for kind in exam.kinds()]


@cache
def reported(probe: str, kind: str) -> Any:
    return EXAMS[probe].reported(kind)


@pytest.mark.usefixtures("without_shape_checks")  # which the tests of each probe make
@pytest.mark.parametrize(("probe", "kind"), ASKED)
def test_a_probe_reports_what_is_there_and_nothing_else(probe: str, kind: str) -> None:
    assert getattr(EXAMS[probe], kind).holds(reported(probe, kind)), reported(probe, kind)


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("probe", EXAMS)
def test_an_exam_tells_presence_from_absence(probe: str) -> None:
    assert not EXAMS[probe].absence.holds(reported(probe, "presence"))


def test_another_report_or_a_refusal_does_not_pass() -> None:
    case = Case(int, 1.0)
    assert case.holds(1.0) and not case.holds(REFUSED) and not case.holds(0.5)
    assert not Case(int, REFUSED).holds(1.0)


def test_every_registered_probe_has_an_exam() -> None:
    assert set(EXAMS) == set(registered()) | {"chained_claims", "explore"}  # which probes and people use
