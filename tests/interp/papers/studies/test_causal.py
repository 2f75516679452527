"""What causes a model's answers: the page from the command, and what is stored of the three papers' pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import interp
import models
from interp.causal.interchange import which_algorithm
from interp.causal.patching import activation_patching
from interp.core.sections import Section
from interp.papers.studies import Settings, causal, find_study, reproduce, studies
from interp.papers.studies.causal import ADDER_456, MICROADDER, TOYGPT, show_causal
from interp.papers.studies.causal_algorithm import column_table, which_table
from interp.papers.studies.causal_answers import Answer, Found, Subject, fact
from interp.papers.studies.causal_questions import information, lesions, recovered, show_information, show_lesions

DATA = Path(interp.__file__).parent / "data" / "experiments"
SUBJECTS = {"microadder": MICROADDER, "adder-456": ADDER_456, "toygpt": TOYGPT}


def stored(paper: str) -> dict[str, Any]:
    return json.loads((DATA / f"{paper}-causal.json").read_text())


def found(paper: str, quantity: str) -> dict[str, Any]:
    """The one stored fact whose quantity begins so."""
    (row,) = (row for row in stored(paper)["facts"] if row["quantity"].startswith(quantity))
    return row


# ---- the page


def test_every_paper_of_the_issue_has_the_page():
    assert {f"{paper}:causal" for paper in SUBJECTS} <= studies().keys()
    assert find_study("microadder:causal").title != find_study("toygpt:causal").title


def test_a_page_asks_its_questions_for_every_seed_and_shows_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[tuple[str, int | None, int]] = []

    def question(subject: Subject, problems: int | None, seed: int) -> Answer:
        asked.append((subject.model, problems, seed))
        rows = pd.DataFrame({"seed": [seed]})
        facts = [fact("Q?", "a share", (0.5 + seed / 10, 0.4, 0.7), 32), fact("Q?", "edges", 3 + seed, 32)]
        return Answer({"said": f"seed {seed}"}, {"rows": rows}, facts)

    def show(found: Found) -> list[Section]:
        return [found.section("Asked", "said", found.table("rows"))]

    monkeypatch.setattr(causal, "QUESTIONS", ((question, show),))
    said: list[str] = []
    page = reproduce("microadder:causal", Settings(tmp_path, seeds=2, problems=32, say=said.append))
    assert asked == [("microadder-57", 32, 0), ("microadder-57", 32, 1)] and said == ["seed 0"]
    assert [section.text for section in page.sections[1:]] == ["seed 0"] and "57 parameters" in page.title
    data, (head,) = page.data, page.sections[0].tables
    assert [row["value"] for row in data["facts"]] == [0.5, 3.0, 0.6, 4.0]
    assert data["tables"] == {"rows": [{"seed": 0}]}
    assert [cell.startswith("0.600\N{NO-BREAK SPACE}[0.400") for cell in head["seed 1"]] == [True, False]


def test_a_stored_page_is_the_run_s_page_without_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(causal, "QUESTIONS", ((information, show_information), (lesions, show_lesions)))
    page = reproduce("microadder:causal", Settings(tmp_path, problems=24, say=lambda text: None))
    again = show_causal(json.loads(json.dumps(page.data)))
    assert sum(len(section.figures) for section in page.sections) == 9
    assert not any(section.figures for section in again)
    for drawn, stored in zip(page.sections, again, strict=True):
        assert (drawn.heading, drawn.text, drawn.level) == (stored.heading, stored.text, stored.level)
        for table, kept in zip(drawn.tables, stored.tables, strict=True):
            pd.testing.assert_frame_equal(table, kept)


def test_patching_tells_a_made_carry_from_one_that_is_passed_on():
    """Made, all of it is in the operands below; passed on, all of it is in the token before the query."""
    answer = information(MICROADDER, 24, 0)
    values = {row["quantity"]: row["value"] for row in answer.facts}
    assert values["carry made: most that one cell of v restores (layer 0, head 0, previous operands)"] > 0.99
    assert values["carry passed: most that one cell of resid_pre restores (layer 0, position s3)"] > 0.99
    assert len(answer.tables) == len(answer.sentences) == 6


def test_the_table_of_a_sweep_has_the_cells_that_recover_something_strongest_first():
    sweep = activation_patching(models.load("microadder-57"), MICROADDER.pairs(16, 0)["made"], direction="both")
    table = recovered(sweep)
    assert set(table.pos) == {"a3", "b3"} and (table.recovered.abs() >= 0.05).all()
    assert table.recovered.abs().is_monotonic_decreasing and (table.n == 16).all()


def test_only_a_model_of_few_parameters_has_them_ablated_one_by_one():
    small = lesions(MICROADDER, 64, 0)
    assert "parameters" in small.tables and "variants in" not in small.sentences["parameters"]
    assert "parameters" not in lesions(ADDER_456, 64, 0).tables


def test_algorithms_that_never_differ_share_a_row_and_columns_add_up():
    which = which_algorithm(models.load("microadder-57"), n=100)
    shown = which_table(which.to_dataframe().assign(model="m"))
    assert sorted(map(len, shown.algorithm.str.split(", "))) == [1, 1, 2, 2]
    columns = column_table(which)
    for corruption in ("plausible", "any"):
        rows = columns[columns.corruption == corruption]
        assert rows.n.sum() == which.disagree(corruption).sum()
        pooled = float((rows.chained * rows.n).sum() / rows.n.sum())
        assert pooled == pytest.approx(which.accuracy("chained", corruption).value)


# ---- what is stored


@pytest.mark.parametrize("paper", SUBJECTS)
def test_a_stored_page_is_of_the_stored_model_and_says_how_many(paper: str):
    data = stored(paper)
    assert (data["model"], data["column"]) == (SUBJECTS[paper].model, SUBJECTS[paper].column)
    assert all(row["n"] > 0 for row in data["facts"])
    assert all("n = " in sentence or "keeps no snapshots" in sentence for sentence in data["sentences"].values())


def test_stored_rankings_are_what_the_command_gives_now():
    which = which_algorithm(models.load("microadder-57"))
    assert stored("microadder")["sentences"]["algorithm: microadder-57"] == str(which)


@pytest.mark.parametrize(
    "paper, model",
    [("microadder", name) for name in (MICROADDER.model, *MICROADDER.others)] + [("adder-456", "adder-456")],
)
def test_the_chained_algorithm_wins_in_every_one_layer_adder(paper: str, model: str):
    """The issue asks for at least 80% of changed predictions; any wrong digit at all is a harder question."""
    plausible = found(paper, f"{model}: changed predictions that are the chained algorithm's, a plausible")
    assert plausible["low"] > 0.99 and plausible["n"] > 900
    rows = [row for row in stored(paper)["tables"]["algorithms"] if row["model"] == model]
    for corruption in ("plausible", "any"):
        by_name = {row["algorithm"]: row for row in rows if row["corruption"] == corruption}
        assert by_name["chained"]["low"] > by_name["ripple"]["high"] == by_name["look-ahead"]["high"]
    assert by_name["chained"]["followed"] > 0.65


@pytest.mark.parametrize("paper", ["microadder", "adder-456"])
def test_the_total_lies_on_one_direction_and_the_carry_by_itself_on_none(paper: str):
    total = found(paper, "total in blocks.0.hook_resid_mid at query, 1 direction")
    carry = found(paper, "carry_in in blocks.0.hook_resid_mid at query, 1 direction")
    assert total["low"] > 0.95 and carry["high"] < 0.65
    claims = found(paper, "share of the loss that the chained algorithm's claims recover")
    assert claims["value"] > 0.99 and claims["low"] > 0.98  # the least that so many problems can show


def test_toygpt_chains_where_a_plausible_digit_is_wrong_and_follows_no_rule_where_any_is():
    rows = stored("toygpt")["tables"]["algorithms by column"]
    (hundreds,) = (row for row in rows if row["corruption"] == "plausible")
    assert hundreds["column"] == 2 and hundreds["chained_low"] > 0.99
    others = [row for row in rows if row["corruption"] == "any"]
    assert [row["column"] for row in others] == [1, 2]
    for row in others:
        assert row["chained_low"] < row["ripple_high"] and row["ripple_low"] < row["chained_high"]


def _by_role(paper: str) -> Callable[[str], dict[str, Any]]:
    return lambda quantity: found(paper, f"carry made, by role: {quantity}")


@pytest.mark.parametrize("paper, edges", [("microadder", 4), ("adder-456", 3)])
def test_a_made_carry_needs_only_the_operands_below(paper: str, edges: int):
    circuit = _by_role(paper)
    assert circuit("edges of")["value"] == edges and "no smaller one" in circuit("edges of")["control"]
    assert circuit("answers right")["low"] > 0.95
    names = [row["edge"] for row in stored(paper)["tables"]["circuit: carry made, by role"]]
    assert "embed->L0H0.v@previous operands" in names and not any("embed->MLP" in name for name in names)
