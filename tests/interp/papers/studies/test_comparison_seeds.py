"""The experiment on seeds of one architecture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import interp
from interp.compare.symmetries import microadder
from interp.core.as_json import decode
from interp.papers.studies import Settings, comparison_seeds, reproduce
from interp.papers.studies.comparison_seeds import FAMILIES, Family, Measured, barriers, distances, finding, members

STORED = Path(interp.__file__).parent / "data" / "experiments" / "comparison-seeds.json"


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(STORED.read_text())


@pytest.fixture(scope="module")
def results(stored: dict) -> list[Measured]:
    return [decode(Measured, family) for family in stored["families"].values()]


def test_the_stored_sentence_is_what_the_stored_numbers_say(stored: dict, results: list[Measured]) -> None:
    assert finding(results) == stored["finding"]
    assert {*stored["families"], *stored["left_out"]} == {family.name for family in FAMILIES}


def test_every_pair_is_in_both_tables(results: list[Measured]) -> None:
    pairs = sum(len(result.lines) for result in results)
    assert len(barriers(results)) == len(distances(results)) == pairs
    for result in results:
        assert [line.names[1] for line in result.lines] == list(result.distances.names[1:])


def test_published_weights_are_left_out_where_there_is_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(comparison_seeds.PUBLISHED, raising=False)
    family = Family("microadder-57", by_hand="microadder-57-by-hand", published="microadder_57p.pt")
    labels = [label for label, _ in members(Settings(out=tmp_path), family)]
    assert labels == ["stored", "by hand"]
    monkeypatch.setenv(comparison_seeds.PUBLISHED, str(tmp_path))
    assert len(members(Settings(out=tmp_path), family)) == 2  # the folder has no such file


def test_a_page_is_written_and_what_was_measured_is_not_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without_shape_checks: None
) -> None:
    monkeypatch.delenv(comparison_seeds.PUBLISHED, raising=False)
    monkeypatch.setattr(microadder, "STARTS", 2)
    families = (Family("microadder-57", by_hand="microadder-57-by-hand"), Family("adder-456", published="none.pt"))
    monkeypatch.setattr(comparison_seeds, "FAMILIES", families)
    said: list[str] = []
    settings = Settings(out=tmp_path, problems=16, say=said.append)
    page = reproduce("comparison:seeds", settings)
    assert page is not None
    assert [section.heading for section in page.sections if section.level == 2][1:] == ["microadder-57", "Left out"]
    assert "adder-456" in page.sections[-1].text
    assert said == ["measuring microadder-57: stored, by hand"]
    data = json.dumps(page.data)
    assert page.data["left_out"] == ["adder-456"]
    monkeypatch.setattr(comparison_seeds, "measure", lambda *_: pytest.fail("measured again"))
    again = reproduce("comparison:seeds", settings)
    assert again is not None and json.dumps(again.data) == data
