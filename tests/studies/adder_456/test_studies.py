"""The 456-parameter paper's tables, from the command that makes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from interp.probes.score import score
from studies.adder_456.studies import breakdown, case_table, comparison_table, figure_1, suite_table
from studies.runs.study import Settings, reproduce


def quiet(out: Path, **options: object) -> Settings:
    return Settings(out=out, say=lambda _: None, **options)


def test_table_4_is_counted_on_the_models(tmp_path: Path):
    page = reproduce("adder-456:table4", quiet(tmp_path))
    assert page is not None and len(page.sections) == 2
    rows = page.data["rows"]
    assert rows[-1] == {
        "component": "total", "adder-763": 763, "adder-582": 582, "adder-512": 512, "adder-491": 491, "adder-456": 456,
    }  # fmt: skip
    for name in comparison_table().columns[1:]:
        assert sum(row[name] for row in rows[:-1]) == sum(p.numel() for p in models.build(name).parameters())


def test_table_1_says_how_each_component_is_written(tmp_path: Path):
    written = breakdown("adder-456").set_index("component")["written as"]
    assert written["QKV projection"] == "A: 7x3; B_q: 3x7; B_kv: 3x7" and written["Position embedding"] == "33x3 + 3x7"
    assert reproduce("adder-456:table1", quiet(tmp_path)) is not None


def test_figure_1_is_made_of_stored_curves_and_trains_nothing_unasked(tmp_path: Path):
    result = figure_1(quiet(tmp_path))
    assert "adder-456" in result.models and not (tmp_path / "adder-456").exists()


def test_stress_tables_count_the_errors_of_every_model_and_show_one_of_each():
    result = score(models.build("adder-456"), by="suite", n=10)
    found = {"untrained": result.to_dataframe()}
    suites, cases = suite_table(found), case_table(found)
    for name in found:
        assert suites[name].iloc[-1] == suites[name].iloc[:-1].sum() == cases[name].sum() == result.wrong > 0
        assert (cases[f"{name}: a wrong one"] != "").equals(cases[name] > 0)
    assert suites.problems.iloc[-1] == cases.problems.sum() == result.provenance.n
    assert ((cases["bound if none is wrong"] == "") == (cases.strength == "exhaustive")).all()


@pytest.mark.slow
def test_the_stored_model_makes_at_most_one_error_in_100_000(tmp_path: Path):
    page = reproduce("adder-456:table3", quiet(tmp_path))
    assert page is not None
    errors = page.data["errors"]
    assert sum(errors["adder-456 (zoo)"].values()) <= 1
