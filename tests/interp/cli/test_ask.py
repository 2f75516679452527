"""``interp ask``: any probe of one model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import interp
from interp.cli import main
from interp.core.probe import probes
from models.tasks import problem_pairs
from models.zoo import load
from tests.applying import applying


def test_without_a_probe_those_that_apply_are_listed_with_what_they_need_besides_the_model(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    model = load("microadder-57")
    assert main(["ask", "microadder-57"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert max(map(len, said)) <= 80
    width = max(map(len, probes(model).index))
    listed = [line.split()[0] for line in said if re.match(r"\w+ ", line) and line[width : width + 1] == " "]
    alone = [each.name for each in applying(model)]
    assert listed[: len(alone)] == alone and set(listed) == set(probes(model).index) and "carry_units" in alone
    paths = f"{'path_patching':<{width}} Along which edge does the difference go?"
    assert "--pairs KIND" in said[said.index(paths) + 1]
    assert any(line.strip() == "interp.causal_scrubbing(model, claims)" for line in said)
    assert f"  $ interp ask microadder-57 {alone[0]}" in said


def test_what_a_probe_needs_can_be_said_on_the_command_line(tmp_path: Path):
    """The answer is the one of a call in Python."""
    model, other, reply = load("microadder-57"), load("microadder-67"), tmp_path / "reply.json"

    def asked(*words: str) -> list[dict[str, Any]]:
        assert main(["ask", "microadder-57", *words, "--json", str(reply)]) == 0
        return json.loads(reply.read_text())["result"]["rows"]

    pairs = problem_pairs(model.task, "made carry", column=4, n=16, seed=3)
    patched = interp.activation_patching(model, pairs, site="z").to_dataframe()
    rows = asked(
        "activation_patching",
        "--pairs",
        "made carry",
        "--column",
        "4",
        "--n",
        "16",
        "--seed",
        "3",
        "--options",
        "site=z",
    )
    assert [row["mean"] for row in rows] == pytest.approx(patched["mean"].tolist(), nan_ok=True)
    beside = interp.compare(model, other, n=32).to_dataframe()
    assert len(asked("compare", "--other", "microadder-67", "--n", "32")) == len(beside)
    units = interp.carry_units(model, n=64, max_ablated=4).to_dataframe()
    assert len(asked("carry_units", "--n", "64", "--options", '{"max_ablated": 4}')) == len(units)


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
        ["microadder-57", "path_patching", "--pairs", "no such kind", "--column", "4"],
        ["microadder-57", "compare"],
        ["microadder-57", "causal_scrubbing"],
        ["microadder-57", "attention_by_role", "--pairs", "carry", "--column", "4"],
        ["microadder-57", "attention_by_role", "--other", "microadder-67"],
        ["microadder-57", "attention_by_role", "--column", "4"],
        ["microadder-57", "attention_by_role", "--options", "no_such_option=1"],
        ["microadder-57", "attention_by_role", "--options", "n=8", "--n", "9"],
        ["microadder-57", "attention_by_role", "--options", "n"],
        ["parity-hand-built", "accuracy_by_chain"],
        ["microadder-57", "certify", "--shape", "5"],
        ["microadder-57", "certify", "--out", "certificate.json"],
        ["position-coupling-hand-built", "certify", "--shape", "5"],
    ],
)
def test_what_cannot_be_asked_is_status_2(asked: list[str], capsys):
    assert main(["ask", *asked]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
