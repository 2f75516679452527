"""Every public probe sits its exam."""

from __future__ import annotations

import inspect

import pytest

import interp
from tests.exams import compare, look, papers, proofs, touch  # noqa: F401  which register them
from tests.exams.exam import EXAMS


@pytest.mark.usefixtures("without_shape_checks")  # which the tests of each probe make
@pytest.mark.parametrize(("probe", "kind"), [(probe, kind) for probe, exam in EXAMS.items() for kind in exam.kinds()])
def test_a_probe_reports_what_is_there_and_nothing_else(probe: str, kind: str) -> None:
    assert EXAMS[probe].passes(kind), EXAMS[probe].reported(kind)


def test_every_public_probe_has_an_exam() -> None:
    public = {name for name in interp.__all__ if inspect.isfunction(getattr(interp, name))}
    assert set(EXAMS) == {name for name in public if not name.startswith("compute_")}
