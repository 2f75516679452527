"""``interp ask``: any probe of one model."""

import json
import re
from pathlib import Path

import pytest

from interp.cli import main
from interp.core.probe import applying, probes
from models.zoo import load


def test_without_a_probe_those_that_apply_are_listed_and_those_that_can_be_asked_here_come_first(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    model = load("microadder-57")
    assert main(["ask", "microadder-57"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    listed = [line.split()[0] for line in said.splitlines() if re.match(r"\w+ ", line) and line[22:23] == " "]
    here = [each.name for each in applying(model)]
    assert listed[: len(here)] == here and set(listed) == set(probes(model).index) and "carry_units" in here
    assert all(f"interp.{name}(" in said for name in listed[len(here) :])
    assert f"$ interp ask microadder-57 {here[0]}" in said


def test_an_answer_is_said_and_written_with_its_numbers(capsys, tmp_path: Path):
    page = tmp_path / "page.html"
    numbers, unasked = tmp_path / "numbers.json", page.with_suffix(".json")
    unasked.write_text("{}")
    asked = [
        "ask",
        "microadder-57",
        "attention_by_role",
        "--problems",
        "32",
        "--out",
        str(page),
        "--json",
        str(numbers),
    ]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert "n = 32" in said and "<figure>" in page.read_text() and json.loads(numbers.read_text())["result"]["rows"]
    assert f"wrote {page}" in said and f"wrote {numbers}" in said and unasked.read_text() == "{}"


def test_a_probe_without_problems_or_a_seed_is_asked_without(capsys):
    assert main(["ask", "microadder-74", "circle_fit"]) == 0 and "arc" in capsys.readouterr().out
    assert main(["ask", "microadder-74", "circle_fit", "--problems", "9"]) == 2


@pytest.mark.parametrize(
    "asked",
    [
        ["microadder-57", "attention_by_rol"],
        ["microadder-57", "path_patching"],
        ["parity-hand-built", "accuracy_by_chain"],
        ["microadder-57", "certify", "--shape", "5"],
        ["microadder-57", "certify", "--out", "certificate.json"],
        ["position-coupling-hand-built", "certify", "--shape", "5"],
    ],
)
def test_what_cannot_be_asked_is_status_2(asked: list[str], capsys):
    assert main(["ask", *asked]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
