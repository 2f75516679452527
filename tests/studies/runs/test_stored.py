"""What experiments found can be shown again from the numbers that are kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from interp.cli.commands import main
from models.errors import UserError
from studies.__main__ import PROGRAM
from studies.commands.reproduce import from_stored
from studies.runs.stored_studies import command_of, stored_sections, stored_studies
from studies.runs.stored_tables import show_tables
from studies.runs.study import Settings, reproduce, show_of, studies
from tests.sampling import sampled

STORED = stored_studies()
#: The first target of every function that shows data, and the others in `make test-all`.
FIRST = {show_of(target): target for target in reversed(STORED)}.values()
SHOWN = sampled(STORED, *FIRST)


@pytest.mark.parametrize("target", SHOWN)
def test_every_stored_result_becomes_tables_and_figures_without_a_trained_model(target, monkeypatch):
    import models

    monkeypatch.setattr(models, "load", None)
    monkeypatch.setattr(models, "build", None)
    sections = stored_sections(target)
    assert sections and all(section.level == 3 for section in sections)
    assert any(len(table) for section in sections for table in section.tables) or any(s.figures for s in sections)
    assert all(figure.data for section in sections for figure in section.figures)


def test_the_command_of_a_stored_result_exists():
    for target in STORED:
        checkout, _, command = command_of(target).rpartition(" && ")
        asked = command.partition(" reproduce ")[2].split()[0]
        assert (studies()[asked].run is None) == bool(checkout), target


def test_what_is_kept_of_an_earlier_version_is_stored_and_of_a_commit_of_this_repository():
    for target, study in studies().items():
        if study.kept:
            assert study.run is None and target in stored_studies() and study.title
            assert re.fullmatch("[0-9a-f]{8}", study.kept)


@pytest.mark.parametrize(
    "target",
    sampled(["adder-456:table1", "adder-456:table4", "adder-456:fig1", "microadder:ladder"], "adder-456:table1"),
)
def test_a_page_is_what_shows_its_stored_data(target, tmp_path):
    page = reproduce(target, Settings(tmp_path, minutes=1e-9, say=lambda _: None))
    assert page is not None
    again = show_of(target)(json.loads(json.dumps(page.data)))
    assert [(each.heading, each.text) for each in page.sections] == [(each.heading, each.text) for each in again]
    assert sum(len(each.figures) for each in page.sections) == sum(len(each.figures) for each in again)
    for drawn, stored in zip(page.sections, again, strict=True):
        for table, kept in zip(drawn.tables, stored.tables, strict=True):
            pd.testing.assert_frame_equal(table, kept)


NUMBER = (int, float)


def wrong_in(found: Any) -> Iterator[Any]:
    """What cannot be in stored data: an end of an interval on the wrong side, more right than tried, a share above 1,
    lists by seed of different lengths."""
    if isinstance(found, list):
        for each in found:
            yield from wrong_in(each)
    if not isinstance(found, dict):
        return
    low, value, high, correct, n = (found.get(key) for key in ("low", "value", "high", "correct", "n"))
    if isinstance(low, NUMBER) and isinstance(high, NUMBER):
        middle = value if isinstance(value, NUMBER) else low
        if not low - 1e-9 <= middle <= high + 1e-9:
            yield low, value, high
    if isinstance(correct, NUMBER) and isinstance(n, NUMBER) and not 0 <= correct <= n:
        yield correct, n
    for key in ("p", "p_rank", "accuracy", "share"):
        if isinstance(share := found.get(key), NUMBER) and not 0 <= share <= 1:
            yield key, share
    by_seed = [found[key] for key in ("seeds", "best_exact", "token", "on_test") if isinstance(found.get(key), list)]
    if len({len(each) for each in by_seed}) > 1:
        yield by_seed
    for each in found.values():
        yield from wrong_in(each)


def never(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("path", sorted(set(STORED.values())), ids=lambda path: path.stem)
def test_stored_numbers_are_finite_and_fit_each_other(path: Path):
    assert list(wrong_in(json.loads(path.read_text(), parse_constant=never))) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 0.2, "high": 0.1},
        {"value": 0.3, "low": 0.1, "high": 0.2},
        {"rows": [{"correct": 11, "n": 10}]},
        {"p": 1.2},
        {"seeds": [0, 1], "on_test": [10_010]},
    ],
)
def test_numbers_that_do_not_fit_are_found(wrong: dict[str, Any]):
    assert list(wrong_in({"a": [wrong]}))


def test_every_study_has_a_function_that_shows_its_data():
    assert [target for target, study in studies().items() if study.run and show_of(target) is show_tables] == []


def test_the_sweeps_of_the_ladder_are_drawn_with_their_finding():
    (first, *_) = stored_sections("microadder:ladder")
    (figure,) = first.figures
    grokked = sum("0 of" not in row for row in first.tables[0].grokked)
    assert f"{grokked} of {len(first.tables[0])} variants" in figure.layout.title.text


def test_an_unknown_result_is_refused_with_the_closest():
    with pytest.raises(UserError, match="Did you mean 'microadder:ladder'"):
        stored_sections("microadder:lader")


def test_what_is_stored_is_shown_and_not_made_again_unless_it_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "toygpt:fig1"], PROGRAM) == 0
    assert "--again" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "runs/reproduce/toygpt").iterdir()} == {"fig1.html"}


def test_a_figure_of_the_paper_s_size_is_not_answered_with_a_small_one(tmp_path):
    assert from_stored("position-coupling:fig1", "paper", tmp_path) is None
    assert from_stored("position-coupling:fig1", "small", tmp_path, seeds=2) is None
