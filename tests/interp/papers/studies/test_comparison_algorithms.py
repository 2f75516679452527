"""The study of programs: its controls, what it keeps, and what it says of models that are asked nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from interp.papers.studies import Settings, comparison_algorithms, reproduce
from interp.papers.studies.comparison_algorithms import PLANTED, UNABLE, VERDICTS, _planted
from interp.papers.studies.sweeps import Arm
from models.modular import CELLS, SWEPT
from models.registry import recipe_of

EXPECTED = {"clock": "clock", "pizza": "pizza", "table": "no Fourier program"}


@pytest.mark.parametrize("program", PLANTED)
def test_a_planted_program_is_named_and_right_on_all_pairs(program: str):
    row = _planted(program)
    assert row["verdict"] == EXPECTED[program]
    assert (row["right"], row["n"]) == (SWEPT**2, SWEPT**2)


@pytest.mark.slow
def test_a_cell_is_trained_judged_and_kept_and_untrained_models_get_no_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = "modular-shuffled-31-d32-l1"
    arm = Arm(name, name, recipe_of(name).replace(steps=20), f"algorithms/{name}", paper="comparison")
    monkeypatch.setattr(comparison_algorithms, "arms", lambda: [arm])
    settings = Settings(tmp_path, seeds=2, progress=False, say=lambda text: None)
    page = reproduce("comparison:algorithms", settings)
    assert page is not None
    rows = page.data["rows"]
    assert [row["seed"] for row in rows] == [0, 1]
    assert {row["verdict"] for row in rows} == {row["untrained"] for row in rows} == {UNABLE}
    assert all(0 <= row["right"] <= row["n"] == SWEPT**2 for row in rows)
    monkeypatch.setattr(comparison_algorithms, "train_arm", None)
    again = reproduce("comparison:algorithms", settings)
    assert again is not None and again.data == page.data
    cells = page.sections[1].tables[0]
    assert len(cells) == 1 and set(VERDICTS) <= set(cells.columns)


def test_the_sweep_has_more_than_three_hundred_models():
    assert len(CELLS) * comparison_algorithms.SEEDS >= 300
