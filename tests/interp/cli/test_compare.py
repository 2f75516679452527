"""``interp compare``: one page for two models of one format, another for models of any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interp.cli import main
from interp.compare.comparison_result import Comparison
from interp.compare.model_table import ModelTable

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def test_two_models_of_one_format_are_matched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, numbers = tmp_path / "pair.html", tmp_path / "pair.json"
    arguments = ["microadder-57", "microadder-57-by-hand", "--out", str(out), "--json", str(numbers)]
    assert main(["compare", *arguments, "--problems", "32"]) == 0
    found = Comparison.from_dict(json.loads(numbers.read_text()))
    assert found.sentence() in capsys.readouterr().out
    assert list(found.names) == ["microadder-57", "microadder-57-by-hand"] and len(found.parameters) == 57
    assert "attention by role" in set(found.table.quantity)
    assert "microadder-57 next to microadder-57-by-hand" in out.read_text()


def test_json_on_the_standard_output_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", "microadder-57", "microadder-57-by-hand", "--json", "-", "--problems", "32"]) == 0
    assert json.loads(capsys.readouterr().out)["result"]["kind"] == "Comparison" and not any(tmp_path.iterdir())


@pytest.mark.slow
def test_models_of_two_formats_are_asked_the_same_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, numbers = tmp_path / "asked.html", tmp_path / "asked.json"
    arguments = ["microadder-57", "adder-456", "--out", str(out), "--json", str(numbers), "--problems", "60"]
    assert main(["compare", *arguments]) == 0
    assert "2 models on 2 tasks" in capsys.readouterr().out
    table = ModelTable.from_dict(json.loads(numbers.read_text()))
    assert table.names == ["microadder-57", "adder-456"] and table.provenance.n == 60
    assert out.read_text().count("<figure") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["microadder-57"], "at least two models"),
        (["microadder-57", "position-coupling-1l2h"], "interp train position-coupling-1l2h"),
        (["microadder-57", "adder-456", "--out", "FOLDER"], "is a folder"),
        (["microadder-57", "adder-456", "--out", "FOLDER/x.html", "--problems", "3"], "n of at least 20"),
    ],
)
def test_bad_input_writes_nothing_and_exits_with_2(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *(part.replace("FOLDER", str(tmp_path)) for part in arguments)]) == 2
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
