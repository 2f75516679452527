"""Every public probe sits its exam."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import studies.population
import tests.exams.asking  # noqa: F401  which imports all exams
from interp.cli.page_commands import page_of
from interp.core.drawings import drawings
from interp.core.exam import REFUSED, Case
from interp.core.probe import registered
from interp.core.results import Result
from interp.proofs.attacks.gradient_attack import Attack
from interp.proofs.columns.accuracy_bounds import AccuracyBounds
from interp.proofs.verdict.verdict import Verdict
from interp.site.pages import page_html
from tests.exams import BRIEFLY, EXAMS
from tests.sampling import sampled

#: Results whose files are not written by the types of their fields.
PROOFS = (Verdict, AccuracyBounds, Attack)
OTHERS = [
    pytest.param(probe, kind, marks=[pytest.mark.slow] * (kind != "absence" or BRIEFLY[probe].slow_exam))
    for probe, exam in EXAMS.items()
    for kind in exam.kinds()
    if kind != "presence"
]
PROBES = sampled(EXAMS, *(name for name in EXAMS if not BRIEFLY[name].slow_exam))
PAGES = " ".join(page.read_text() for page in sorted(Path("docs").glob("**/*.md")) if page.parent.name != "notebooks")


@cache
def found(probe: str, kind: str) -> Any:
    return EXAMS[probe].found(kind)


def reported(probe: str, kind: str) -> Any:
    return EXAMS[probe].reported(found(probe, kind))


@pytest.mark.usefixtures("without_shape_checks")  # which the tests of each probe make
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_reports_what_is_there_tells_it_from_absence_and_survives_json(probe: str) -> None:
    exam = EXAMS[probe]
    assert exam.presence.holds(reported(probe, "presence")), reported(probe, "presence")
    assert not exam.absence.holds(reported(probe, "presence"))
    answer = found(probe, "presence")
    for result in answer if isinstance(answer, tuple) else (answer,):
        if not isinstance(result, Result) or isinstance(result, PROOFS):
            continue  # their files have formats of their own, with tests of their own
        again = type(result).from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False)))
        assert again.to_dict() == result.to_dict() and again.provenance == result.provenance
        pd.testing.assert_frame_equal(again.to_dataframe(), result.to_dataframe())
        is_drawn = probe != "learning_curves"  # of whose made-up entry no seed is stored
        if probe in registered() and drawings(type(result)) and is_drawn:
            assert page_html(page_of(registered()[probe], "a model", result), "")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(("probe", "kind"), OTHERS)
def test_a_probe_reports_nothing_else(probe: str, kind: str) -> None:
    assert getattr(EXAMS[probe], kind).holds(reported(probe, kind)), reported(probe, kind)


def test_another_report_or_a_refusal_does_not_pass() -> None:
    case = Case(int, 1.0)
    assert case.holds(1.0) and not case.holds(REFUSED) and not case.holds(0.5)
    assert not Case(int, REFUSED).holds(1.0)


def test_every_registered_probe_has_an_exam() -> None:
    assert set(EXAMS) == set(registered()) | {"scrubbing_hypothesis", "explore"} | set(studies.population.__all__)


@pytest.mark.parametrize("probe", registered())
def test_a_probe_is_named_on_a_page(probe: str) -> None:
    assert re.search(rf"\b{probe}\b", PAGES)
