"""Few keys: classes of inputs that are all run, and models that this does not judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interp
import models
from interp.proofs import check_certificate, load_certificate
from models.errors import UserError
from studies.adderboard import few_keys
from tests.studies.adderboard.submissions import HARD, TIED_VALUES

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def load(folder: Path, text: str) -> Any:
    path = folder / "ours.py"
    path.write_text(text)
    return models.load(path, trust="unconfined")


@pytest.mark.slow
def test_a_construction_is_certified_and_its_certificate_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(tmp_path, HARD)
    verdict = interp.certify(model)
    assert (verdict.status, verdict.wrong, verdict.wrong_classes) == ("certified", 0, 0)
    assert verdict.classes == few_keys.CLASSES == 170_300 and verdict.keys == 1
    assert 0 < verdict.smallest_margin < 0.01 and verdict.noise <= verdict.smallest_margin / 10
    (tmp_path / "certificate.json").write_text(json.dumps(verdict.to_dict()))
    again = load_certificate(tmp_path / "certificate.json")
    assert again.to_dict() == verdict.to_dict()
    monkeypatch.setattr(
        few_keys, "run_classes", lambda subject: Outcome(verdict.status, verdict.evidence)
    )  # what is run again is the same
    assert check_certificate(again, model).status == "certified"
    for change in ({"smallest_margin": 1.0}, {"wrong": 5}, {"keys": 2}):
        with pytest.raises(UserError):
            check_certificate(again.replace(**change), model)


@pytest.mark.slow
def test_a_wrong_class_refutes_and_is_counted(tmp_path: Path) -> None:
    """The threshold of the carry one lower: the sum of a column without a carry is wrong where it is nine."""
    model = load(tmp_path, HARD.replace("2 * CONST - 188.0, 2 * CONST - 189.0", "2 * CONST - 178.0, 2 * CONST - 179.0"))
    verdict = interp.certify(model)
    assert verdict.status == "refuted" and verdict.counterexample is not None
    a, b = (int(part) for part in verdict.counterexample.problem.split("+"))
    assert int(verdict.counterexample.predicted) != a + b
    drawn = np.random.default_rng(0).integers(0, 10**10, (4000, 2))
    right = models.score(model, drawn).accuracy
    assert abs(right - (1 - verdict.wrong / 10**20)) < 0.04


def test_right_pairs_are_counted_exactly() -> None:
    right = np.ones((11, 2, 100, 100), dtype=bool)
    assert few_keys.right_pairs(right) == 10**20
    right[10, :, 99] = False  # 9 + 9 in the highest column
    assert few_keys.right_pairs(right) == 10**20 - 10**18
    right[10, :, 99], right[0, 0, 0, 7] = True, False  # 0 + 7 in the units
    assert few_keys.right_pairs(right) == 10**20 - 10**18
    right[0, 0, 0, 7], right[5, 1, :, 3] = True, False  # 0 + 3 in column 5, with a carry into column 4
    below = 10**4 * (10**4 - 1) // 2  # pairs of four digits that carry
    assert few_keys.right_pairs(right) == 10**20 - below * 100 * 1 * 100**4


SOFT = ("SHARP = 1000.0, 0.01, 64.0", "SHARP = 1000.0, 0.01, 0.005")
ANOTHER_COLUMN = ("22.0, 10.0)", "21.0, 10.0)")


@pytest.mark.slow
@pytest.mark.parametrize(("was", "now"), [SOFT, ANOTHER_COLUMN])
def test_other_attention_is_not_judged(was: str, now: str, tmp_path: Path) -> None:
    """Scores that are not sharp, and a head that looks at another column."""
    assert HARD.count(was) == 1
    model = load(tmp_path, HARD.replace(was, now))
    assert few_keys.why_not(Subject(model)) is not None


@pytest.mark.slow
def test_soft_attention_has_an_obstacle_here(tmp_path: Path) -> None:
    model = load(tmp_path, TIED_VALUES)
    adder = models.load("microadder-57")
    assert few_keys.why_not(Subject(model)) is not None and few_keys.why_not(Subject(adder)) is not None
