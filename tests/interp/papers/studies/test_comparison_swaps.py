"""The page of swaps: pair by pair, going on where it stopped; and what is stored of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import interp
from interp.core.sections import Page
from interp.papers.studies import Settings, comparison_swaps, reproduce
from interp.papers.studies.comparison_swaps import PAIRS, Pair, load_pair, show_swaps

STORED = Path(interp.__file__).parent / "data" / "experiments" / "comparison-swaps.json"
pytestmark = pytest.mark.usefixtures("without_shape_checks")


def run(out: Path, problems: int = 8, minutes: float | None = None) -> tuple[Page | None, list[str]]:
    said: list[str] = []
    settings = Settings(out, problems=problems, minutes=minutes, say=said.append)
    return reproduce("comparison:swaps", settings), said


@pytest.mark.slow
def test_both_directions_of_a_pair_are_on_the_page_and_a_second_run_computes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pair = Pair("microadder-57", "adder-3-by-hand", untrained=1, why="Why they are here.")
    monkeypatch.setattr(comparison_swaps, "PAIRS", (pair,))
    page, said = run(tmp_path)
    assert page is not None and len(said) == 2
    data = page.data
    assert "microadder-57 with parts of adder-3-by-hand" in [section.heading for section in page.sections]
    assert pair.why in [section.text for section in page.sections]
    assert [(each["a"], each["b"]) for each in data["pairs"]] == [(pair.a, pair.b), (pair.b, pair.a)]
    assert all(each["n"] == 8 and each["whole"]["exact"] == 1 for each in data["pairs"])
    stored = show_swaps(json.loads(json.dumps(data)))
    assert [(each.heading, each.text) for each in stored] == [(each.heading, each.text) for each in page.sections]
    assert [len(each.figures) for each in page.sections] == [0, 0, 2, 2] and not any(each.figures for each in stored)

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(comparison_swaps, "swap_components", never)
    again, said = run(tmp_path)
    assert again is not None and again.data == data and not said


def test_without_time_it_stops_before_the_next_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(comparison_swaps, "PAIRS", (Pair("microadder-57", "microadder-67"),))
    page, said = run(tmp_path, minutes=0)
    assert page is None and "goes on" in said[0]


def test_a_pair_is_brought_onto_one_task():
    trained, built = load_pair(next(pair for pair in PAIRS if pair.b == "adder-3-by-hand"))
    assert trained.task is built.task and len(trained.task.query_positions) == 11, "without EOS"
    trained, built = load_pair(next(pair for pair in PAIRS if pair.shape))
    assert trained.task is built.task and trained.task.input_length == 54


def test_what_is_stored_is_of_the_pairs_that_are_asked_for():
    data = json.loads(STORED.read_text())
    asked = [names for pair in PAIRS for names in ((pair.a, pair.b), (pair.b, pair.a))]
    assert [(each["a"], each["b"]) for each in data["pairs"]] == asked
