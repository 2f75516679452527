"""``python -m studies.adderboard`` on a folder of submissions of our own."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from interp.cli import commands
from interp.cli.own_flags import said, taken_out, trusted
from interp.site.pages.html_document import page_data
from models.families.arc_decoder import DECODERS
from models.tasks.named.addition import DIGITS
from studies.adderboard.board_page import summary
from studies.adderboard.board_rows import BoardRow, _made, judge, near_nines
from studies.adderboard.command import PROGRAM
from tests.studies.adderboard.submissions import HARD, QWEN, TIED_VALUES


def board(words: list[str]) -> int:
    return commands.main(words, program=PROGRAM)


pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.mark.slow
def test_a_folder_is_judged_and_the_command_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    folder, out = tmp_path / "board", tmp_path / "page.html"
    monkeypatch.setattr("studies.adderboard.board_page.own_rows", list)
    (folder / "ours").mkdir(parents=True)
    (folder / "ours" / "hard_92p.py").write_text(HARD)
    (folder / "broken_7p.py").write_text("def (")
    assert board([str(folder), "--out", str(out)]) == 2 and not out.exists()
    assert board([str(folder), "--out", str(out), "--trust", "unconfined"]) == 0
    assert list(tmp_path.glob("*.json")) == []
    found = {row["file"]: row for row in page_data(out)["rows"]}
    hard, broken = (found[name] for name in ("ours/hard_92p.py", "broken_7p.py"))
    assert (hard["status"], hard["wrong"], hard["correct"], hard["n"]) == ("certified", "0", 10_010, 10_010)
    assert (hard["stated"], hard["free"], hard["bits"]) == (92, 92, 92 * 32)
    assert (broken["status"], broken["stated"], broken["free"]) == ("unreadable", 7, None)
    assert all("unconfined" in row["remarks"][-1] for row in (hard, broken))
    assert "hard_92p" in out.read_text()
    monkeypatch.setattr("studies.adderboard.board_page.judge", lambda *given: pytest.fail("judged again"))
    capsys.readouterr()
    assert board([str(folder), "--out", str(out), "--trust", "unconfined", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["result"]["rows"] == page_data(out)["rows"] and told["provenance"]["n"] == 2
    (folder / "broken_7p.py").write_text("def ((")
    with pytest.raises(pytest.fail.Exception):
        board([str(folder), "--out", str(out), "--trust", "unconfined"])
    left = {row["file"] for row in page_data(out)["rows"]}
    assert left == {"ours/hard_92p.py", "broken_7p.py"}  # an interruption loses no row that was judged


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "method"),
    [(TIED_VALUES, "branch and bound over columns"), (QWEN, "search")],
    ids=["one layer", "two layers"],
)
def test_a_model_that_does_not_add_is_refuted_by_a_problem(text: str, method: str, tmp_path: Path) -> None:
    (tmp_path / "soft.py").write_text(text)
    (soft,) = judge(tmp_path / "soft.py", "soft.py", minutes=1e-6, trust="unconfined")  # no time for a proof of a bound
    assert (soft.status, soft.method) == ("refuted", method)
    assert soft.correct is not None and soft.correct < 10 and soft.counterexample is not None
    problem, said = soft.counterexample
    assert sum(map(int, problem.split("+"))) != int(said)


@pytest.mark.parametrize(
    "error", [RecursionError("deep"), OverflowError(), MemoryError(), OSError(5, "broken"), KeyError("a")]
)
def test_whatever_a_file_leads_to_is_a_row_of_its_own(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("studies.adderboard.board_rows.load_submission", fails)
    (row,) = judge(Path("hand_coded/a_7p.py"), "a_7p.py")
    assert (row.status, row.stated, row.made) == ("unreadable", 7, "by hand") and row.verdict


@pytest.mark.parametrize(
    ("words", "trust"),
    [
        (["certify", "a.py", "--trust"], True),
        (["certify", "--trust", "a.py"], True),
        (["certify", "--trust", "unconfined", "a.py"], "unconfined"),
        (["certify", "a.py", "--trust=docker run x"], "docker run x"),
        (["certify", "a.py"], False),
    ],
)
def test_the_command_line_says_how_a_program_is_run(words: list[str], trust: bool | str) -> None:
    assert taken_out(words) == ["certify", "a.py"] and trusted() == trust
    assert taken_out(shlex.split("certify a.py" + said())) == ["certify", "a.py"] and trusted() == trust


def test_a_folder_without_submissions_is_refused(tmp_path: Path) -> None:
    assert board([str(tmp_path), "--out", str(tmp_path / "x.html")]) == 2
    assert board([str(tmp_path / "none"), "--out", str(tmp_path / "x.html")]) == 2


NUMBERS = {
    "source": "somebody, July",
    "shared": {
        "d_model": 3, "rotary_base": 3.0, "rms_eps": 1e-6,
        "constants": {
            "arc_radius": 160.0, "arc_start": 1.0, "arc_stride": "pi/48", "attention_angle": 0.5, "down_angle": 1.8,
            "qk_gain_1": -1.0, "qk_gain_2": 0.0, "qk_gain_3": 3.6,
        },
    },
    "models": {
        name: {"phi": list(of.numbers), "norm": list(of.g), "qk": of.f}
        | {key: {"position": list(p), "index": list(p.values())} for key, p in (("Q", of.Q), ("G", of.G), ("U", of.U))}
        for name, of in DECODERS.items()
    },
}  # fmt: skip


def numbers(path: Path, change: Callable[[dict[str, Any]], object] = lambda value: None) -> Path:
    value = json.loads(json.dumps(NUMBERS))
    change(value)
    path.write_text(json.dumps(value))
    return path


@pytest.mark.slow
def test_known_numbers_say_how_they_were_found_and_are_refuted_with_an_exact_share(tmp_path: Path) -> None:
    path = numbers(tmp_path / "numbers.json", lambda value: value["models"].pop("arc-decoder-16"))
    (known,) = judge(path, "numbers.json")
    assert (known.status, known.correct, known.free, known.constants) == ("refuted", 10_005, 15, 8)
    assert (known.start, known.on_test, known.stated) == ("warm", True, 15)
    assert known.share == "wrong on exactly 0.00050544421025883401 of all pairs, over the reals"


@pytest.mark.slow
def test_changed_numbers_are_judged_without_being_run_and_it_is_not_known_how_they_were_found(tmp_path: Path) -> None:
    def changed(value: dict[str, Any]) -> None:
        mine = value["models"].pop("arc-decoder-15")
        del value["models"]["arc-decoder-16"]
        mine["phi"][0] *= 1.01
        value["models"]["mine"] = mine

    (mine,) = judge(numbers(tmp_path / "mine.json", changed), "mine.json", minutes=1e-6)
    assert (mine.name, mine.start, mine.on_test, mine.made) == ("mine", "not stated", None, "trained")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda v: v.pop("models"), "in a form that is known"),
        (lambda v: v["models"]["arc-decoder-15"].pop("U"), "it has no 'U'"),
        (lambda v: v["models"]["arc-decoder-15"].update(qk=15), "15 is no index from 0 to 14"),
        (lambda v: v["models"]["arc-decoder-15"]["phi"].__setitem__(0, "1"), "'1' is no number"),
        (lambda v: v["models"]["arc-decoder-15"]["phi"].__setitem__(0, float("nan")), "nan is no number"),
        (lambda v: v["models"]["arc-decoder-15"]["Q"]["position"].pop(), "one index"),
        (lambda v: v["shared"].update(d_model=4), "its d_model is 4, not 3"),
        (lambda v: v["models"].update(more=[1.0]), "no numbers of an arc decoder"),
    ],
)  # fmt: skip
def test_numbers_that_are_incomplete_or_wrong_are_refused_with_the_place(change: Any, why: str, tmp_path: Path) -> None:
    (row,) = judge(numbers(tmp_path / "numbers.json", change), "numbers.json")
    assert row.status == "unreadable" and why in row.verdict


#: These are adders of every start and verdict, and entries that are not adders.
OWN = [
    "microadder-75", "microadder-57", "microadder-18", "microadder-11", "microadder-10", "arc-decoder-16",
    "arc-decoder-15", "adder-456", "adder-4-by-hand", "subtractor-47",
]  # fmt: skip


def test_this_project_s_adders_stand_on_the_page_with_their_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.adderboard.own_rows.models.names", lambda: OWN)
    assert board(["--out", str(tmp_path / "page.html")]) == 0
    rows = {row["name"]: row for row in page_data(tmp_path / "page.html")["rows"]}
    starts = {name: rows[name]["start"] for name in rows if name.startswith("microadder-1")}
    assert {name: starts[f"microadder-{name}"] for name in (10, 11, 18)} == {10: "random", 11: "warm", 18: "placed"}
    assert rows["microadder-57"]["start"] == "random"
    assert rows["arc-decoder-16"]["proved"] == "over the reals" and rows["arc-decoder-16"]["on_test"]
    assert rows["adder-4-by-hand"]["made"] == "by hand" and rows["adder-4-by-hand"]["proved"] == "with rounding"
    proved = [row for row in rows.values() if row["proved"]]
    assert list(rows)[: len(proved)] == [row["name"] for row in proved]  # what is proved comes first
    sizes = [row["free"] + (row["constants"] or 0) for row in proved]
    assert sizes == sorted(sizes) and not any(name.startswith("subtractor") for name in rows)


@pytest.mark.parametrize(
    ("place", "text", "made"),
    [
        ("trained/a_1p.py", "", "trained"), ("hand_coded/a_1p.py", "# trained", "by hand"),
        ("a_1p.py", '"""Hand-coded weights, nothing was trained."""', "by hand"),
        ("a_1p.py", "# weights of the trained checkpoint", "trained"), ("a_1p.py", "# untrained", "not known"),
    ],
)  # fmt: skip
def test_whether_a_file_was_trained_is_said_by_its_folder_or_its_text(place: str, text: str, made: str) -> None:
    assert _made(Path("board") / place, text) == made


def test_runs_of_nines_stand_in_each_problem() -> None:
    problems = near_nines(500, 0)
    digits = problems[..., None] // 10 ** torch.arange(DIGITS) % 10
    assert ((digits.sum(1) == 9).any(1)).all() and len(problems.unique(dim=0)) > 490


def test_the_summary_counts_verdicts_by_method() -> None:
    made = [("certified", "few keys", 2.0)] * 2 + [("certified", "search", 3.0), ("refuted", "search", 9.0)]
    found = [BoardRow("a.py", "", status, "", method=how, seconds=took) for status, how, took in made]
    said = summary([*found, BoardRow("b.py", "", "unreadable", "")])
    assert re.findall(r"[\d.]+", said) == ["5", "3", "2", "1", "1", "1", "2.5", "9.0"]
