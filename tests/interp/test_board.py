"""``interp board`` on a folder of submissions of our own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from interp.cli.commands import main
from interp.compare.board_verdicts import BoardRow, judge, near_nines
from interp.site.board_page import summary
from interp.site.pages.document import page_data
from models.tasks.addition import DIGITS
from tests.models.importers.submissions import HARD, QWEN, TIED_VALUES

pytestmark = pytest.mark.usefixtures("without_shape_checks")


def test_a_folder_is_judged_and_the_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    folder, out = tmp_path / "board", tmp_path / "page.html"
    (folder / "ours").mkdir(parents=True)
    (folder / "ours" / "hard_92p.py").write_text(HARD)
    (folder / "broken_7p.py").write_text("def (")
    assert main(["board", str(folder), "--out", str(out)]) == 2 and not out.exists()
    assert main(["board", str(folder), "--out", str(out), "--trust"]) == 0
    assert list(tmp_path.glob("*.json")) == []
    found = {row["file"]: row for row in page_data(out)["rows"]}
    hard, broken = (found[name] for name in ("ours/hard_92p.py", "broken_7p.py"))
    assert (hard["status"], hard["wrong"], hard["correct"], hard["n"]) == ("certified", "0", 10_010, 10_010)
    assert (hard["stated"], hard["free"], hard["bits"]) == (92, 92, 92 * 32)
    assert (broken["status"], broken["stated"], broken["free"]) == ("unreadable", 7, None)
    assert "hard_92p" in out.read_text()
    monkeypatch.setattr("interp.site.board_page.judge", lambda *given: pytest.fail("judged again"))
    capsys.readouterr()
    assert main(["board", str(folder), "--out", str(out), "--trust", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["result"]["rows"] == page_data(out)["rows"] and told["provenance"]["n"] == 2
    (folder / "broken_7p.py").write_text("def ((")
    with pytest.raises(pytest.fail.Exception):
        main(["board", str(folder), "--out", str(out), "--trust"])
    left = {row["file"] for row in page_data(out)["rows"]}
    assert left == {"ours/hard_92p.py", "broken_7p.py"}  # an interruption loses no row that was judged


@pytest.mark.parametrize(
    ("text", "method"),
    [(TIED_VALUES, "branch and bound over columns"), pytest.param(QWEN, "search", marks=pytest.mark.slow)],
    ids=["one layer", "two layers"],
)
def test_a_model_that_does_not_add_is_refuted_by_a_problem(text: str, method: str, tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(text)
    soft = judge(tmp_path / "soft.py", "soft.py", minutes=1e-6)  # no time for a proof of a bound
    assert (soft.status, soft.method) == ("refuted", method)
    assert soft.correct is not None and soft.correct < 10 and soft.counterexample is not None
    problem, said = soft.counterexample
    assert sum(map(int, problem.split("+"))) != int(said)


def test_a_folder_without_submissions_is_refused(tmp_path: Path) -> None:
    assert main(["board", str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    assert main(["board", str(tmp_path / "none"), "--out", str(tmp_path / "x.html")]) == 2


def test_runs_of_nines_stand_in_each_problem() -> None:
    problems = near_nines(500, 0)
    digits = problems[..., None] // 10 ** torch.arange(DIGITS) % 10
    assert ((digits.sum(1) == 9).any(1)).all() and len(problems.unique(dim=0)) > 490


def test_the_summary_counts_verdicts_by_method() -> None:
    made = [("certified", "few keys", 2.0)] * 2 + [("certified", "search", 3.0), ("refuted", "search", 9.0)]
    found = [BoardRow("a.py", "", status, "", method=how, seconds=took) for status, how, took in made]
    said = summary([*found, BoardRow("b.py", "", "unreadable", "")])
    assert re.findall(r"[\d.]+", said) == ["5", "3", "2", "1", "1", "1", "2.5"]
