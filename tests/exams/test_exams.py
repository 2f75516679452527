"""Every public probe sits its exam."""

from __future__ import annotations

import inspect

import pytest

import interp
import tests.exams.table as table
from tests.exams.exam import EXAMS, KINDS


@pytest.mark.usefixtures("without_shape_checks")  # which the tests of each probe make
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probe", EXAMS)
def test_a_probe_reports_what_is_there_and_nothing_else(probe: str, kind: str) -> None:
    assert EXAMS[probe].passes(kind), EXAMS[probe].reported(kind)


def test_every_public_probe_has_an_exam_or_is_known_to_have_none() -> None:
    public = {name for name in interp.__all__ if inspect.isfunction(getattr(interp, name))}
    probes = {name for name in public if not name.startswith("compute_")}
    assert set(EXAMS) | table.WITHOUT_EXAM == probes
    assert not set(EXAMS) & table.WITHOUT_EXAM
