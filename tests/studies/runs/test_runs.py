"""What experiments share: minutes that are spent once, pages that say how they were made, rows that JSON can hold."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from interp.core.sections import Page, Section, records
from interp.site.pages import write_page
from models.errors import UserError
from models.training.named_recipes import get_recipe
from studies.runs.study import Settings
from studies.runs.training_runs import TrainingRun, train_in_time


def test_the_minutes_of_a_command_are_counted_from_its_start():
    assert Settings().minutes_left() is None
    spent = Settings(minutes=2.0, started=time.monotonic() - 90)
    left = spent.minutes_left()
    assert left is not None and 0 < left <= 0.5
    assert replace(spent, minutes=1.0).minutes_left() == 0.0


def test_without_minutes_nothing_is_trained_and_that_is_said(tmp_path: Path):
    said: list[str] = []
    run = TrainingRun("toygpt-learned-pre", get_recipe("toygpt"), tmp_path / "run")
    assert not train_in_time([(run, [1])], Settings(minutes=0.0, say=said.append))
    assert len(said) == 1 and "goes on" in said[0] and not run.folder.exists()


def test_a_finished_run_is_only_taken_for_its_own_recipe(tmp_path: Path):
    recipe = get_recipe("toygpt").replace(steps=2, warmup_steps=1, batch_size=4, validation_size=4, eval_every=2)
    run = TrainingRun("toygpt-learned-pre", recipe, tmp_path / "run")
    assert run.seconds_trained() == (0, 0.0)
    run.train_to(2)
    run.train_to(2)
    steps, seconds = run.seconds_trained()
    assert run.has(2) and steps == 2 and seconds > 0
    with pytest.raises(UserError):
        replace(run, recipe=recipe.replace(lr=0.5)).train_to(2)


def test_a_page_names_its_command_and_its_data_lie_beside_it_where_asked(tmp_path: Path):
    rows = records(pd.DataFrame({"x": [1.0, float("nan"), float("inf")], "n": [1, 2, 3]}))
    page = Page("A title", [Section("One")], {"rows": rows})
    path = write_page(tmp_path / "paper" / "what.html", page, "python -m studies reproduce paper:what")
    assert "python -m studies reproduce paper:what" in path.read_text()
    assert list(path.parent.iterdir()) == [path]
    write_page(path, page, "python -m studies reproduce paper:what", with_file=True)
    stored = json.loads(path.with_suffix(".json").read_text())["rows"]
    assert stored == [{"x": 1.0, "n": 1}, {"x": None, "n": 2}, {"x": None, "n": 3}]


def test_rows_are_rounded_where_that_is_asked_for():
    table = pd.DataFrame({"x": [0.123456789], "what": ["a"]})
    assert records(table, 3) == [{"x": 0.123, "what": "a"}]
    assert records(table) == [{"x": 0.123456789, "what": "a"}]
