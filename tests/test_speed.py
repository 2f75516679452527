"""The table of ratios: what fell is said, a row is kept, and the page is the table's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import record


def rows(*ratios: dict[str, float]) -> list[record.Row]:
    return [{"date": "2026-01-01", "commit": f"c{i}", "machine": "m", "ratios": each} for i, each in enumerate(ratios)]


@pytest.mark.parametrize(("now", "said"), [(20.0, False), (8.1, False), (7.9, True), (1.0, True)])
def test_a_ratio_that_falls_by_more_than_a_fifth_is_named_with_the_commit_before(now: float, said: bool):
    before = rows({"sweep": 30.0}, {"sweep": 10.0}, {"other": 3.0})
    found = record.fallen({"sweep": now, "new": 1.0}, before)
    assert len(found) == said
    if said:
        assert "sweep" in found[0] and "c1" in found[0]


def test_a_run_adds_a_row_and_writes_the_page_again(tmp_path: Path):
    table, page = tmp_path / "ratios.json", tmp_path / "speed.md"
    assert record.add({"sweep": 12.345, "score": 3.0}, record.place(), table, page) == []
    assert record.add({"score": 1.0}, record.place(), table, page) != []
    kept = json.loads(table.read_text())
    assert [row["ratios"] for row in kept] == [{"sweep": 12.3, "score": 3.0}, {"score": 1.0}]
    assert all(row["commit"] and row["machine"] and row["date"] for row in kept)
    assert "| score | 1 | 3 |" in page.read_text() and "| sweep | 12.3 |  |" in page.read_text()


def test_the_page_of_speeds_is_the_stored_table():
    stored = record.stored()
    assert stored and record.PAGE.read_text("utf-8") == record.rendered(stored)


def test_the_middle_of_twice_and_half_is_once():
    assert record.middle([2.0, 0.5]) == pytest.approx(1.0)
