"""The table as a result: sentence, data frame, Markdown, JSON, figure, command line."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from interp.cli.commands import main
from models.errors import UserError
from studies.__main__ import PROGRAM
from studies.claims import Headline, Headlines, Row, Store, table
from studies.claims.headline import KINDS, VERDICTS, show
from studies.claims.ours import number, share
from studies.claims.rules import Near, Rule, Within
from tests.studies.headline_table import whole_table


def line(printed: str = "57", rule: Rule | None = None, **changes: Any) -> Headline:
    more: dict[str, Any] = {"ours": lambda store: number(57, 57, "parameters")} | changes
    rule = rule or Near(0.0)
    return Headline("microadder", "1", "A number.", printed, rule, "interp list", **more)


@pytest.fixture(scope="module")
def toygpt() -> Headlines:
    return table("toygpt")


@pytest.mark.slow
def test_every_row_of_every_paper_is_judged_shown_and_tabulated():
    result = whole_table()
    frame = result.to_dataframe()
    assert len(frame) == len(result.rows) == result.provenance.n == sum(result.counts().values())
    assert Counter(frame.verdict) == Counter(result.counts())
    assert {row.verdict for row in result.rows} == {*VERDICTS} - {"not measured"}  # every row has a number, or says why
    judged = frame[~frame.verdict.isin(["not testable", "not run", "not measured"])]
    assert (judged.ours != "–").all() and (judged.strength != "").all() and (judged.command != "").all()
    assert (judged.n > 0).all() and (judged.rule != "").all()
    assert frame[frame.verdict.isin(["not testable", "not run"])].remarks.str.len().min() > 0
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert len(json.loads(text)["rows"]) == len(frame)


def test_a_hundred_percent_is_never_without_its_rung(toygpt):
    for text in (toygpt.to_markdown(), table("adder-456").to_markdown()):
        for row in text.splitlines():
            if row.startswith("| ") and row.split(" | ")[4].startswith("100%"):
                assert "*" in row.split(" | ")[4]


def test_behaviour_and_training_are_counted_apart(toygpt):
    by_kind = {kind: toygpt.of_kind(kind) for kind in KINDS}
    assert all({row.headline.kind for row in found.rows} == {kind} for kind, found in by_kind.items())
    assert sum(len(found.rows) for found in by_kind.values()) == len(toygpt.rows)
    assert toygpt.to_dict()["counts_by_kind"] == {kind: found.counts() for kind, found in by_kind.items()}
    for found in by_kind.values():
        for label, n in found.counts().items():
            assert re.search(
                rf"\b{n} ((is|are|was|were) )?{re.escape(label.replace('differs', 'differ'))}", toygpt.sentence()
            )


def test_a_rule_that_untrained_models_pass_as_well_confirms_nothing():
    passes, fails = number(57, 57, "untrained"), number(3, 3, "untrained")
    assert line(control=lambda store: [fails] * 20).evaluate(Store()).verdict == "reproduced"
    assert line(control=lambda store: [fails] * 19 + [passes]).evaluate(Store()).verdict == "undecided"
    assert line("58", control=lambda store: [fails]).evaluate(Store()).verdict == "differs"


def test_a_row_says_where_its_bound_was_written_after_the_number():
    assert line("many", Within(50)).bound_after and not line("many", Within(50), fixed_before=True).bound_after
    assert not line("57", Within("printed")).bound_after  # the printed number is the bound
    assert not line("all", Within(1.0)).bound_after and not line("more", Within(0)).bound_after


def test_markdown_has_a_line_a_row_and_no_broken_cells(toygpt):
    lines = [line for line in toygpt.to_markdown().splitlines() if line.startswith("| ")]
    assert len(lines) == len(toygpt.rows) + 2
    assert all(line.replace("\\|", "").count(" | ") == 6 for line in lines)


def test_a_smaller_scale_is_part_of_the_verdict():
    for verdict in ("reproduced", "compatible", "differs", "undecided"):
        assert Row(line(scale="a smaller model"), verdict).label == f"{verdict} at a smaller scale"
        assert Row(line(), verdict).label == verdict
    for verdict in ("not testable", "not run", "not measured"):
        assert Row(line(scale="a smaller model"), verdict).label == verdict


def test_what_is_not_stored_is_not_measured_or_not_run_for_a_reason(tmp_path):
    store = Store(tmp_path, tmp_path)
    missing = line(ours=lambda store: store.score("microadder-57")).evaluate(store)
    assert (missing.verdict, missing.why) == ("not measured", "The zoo holds no microadder-57.")
    wants_gpu = line(ours=lambda store: store.score("microadder-57"), why="it wants a GPU").evaluate(store)
    assert (wants_gpu.verdict, wants_gpu.why) == ("not run", "it wants a GPU")


def test_what_no_run_could_settle_is_not_testable_and_has_no_number(tmp_path):
    never = Headline("microadder", "1", "Hours of its machine.", "12 hours", testable=False, why="it is not here")
    row = never.evaluate(Store(tmp_path, tmp_path))
    assert (row.verdict, row.why, row.shown) == ("not testable", "it is not here", "–")
    with pytest.raises(UserError):
        line(testable=False)


def test_a_headline_without_a_number_needs_a_reason():
    with pytest.raises(UserError, match="reason why it is not run"):
        Headline("microadder", "1", "A number.", "57")
    with pytest.raises(UserError, match="not in its quote"):
        line(quote="fifty-seven")


def test_numbers_are_shown_as_a_reader_wants_them():
    assert [show(x) for x in (57.0, 0.4345678, 1234.5, 63_038_464.0)] == ["57", "0.4346", "1,234", "63,038,464"]
    assert show(0.9981, "%") == "99.81%" and show(46_500.0, "steps") == "46,500 steps"
    rate = Row(line("1/16", Within("printed"), unit="%"), "differs", share(1, 16, "seeds"))
    assert rate.shown == "6.25% (1 of 16) [0.158%, 30.232%]"
    assert Row(line("1", unit="errors"), "reproduced", share(0, 100_000, "sums")).shown == "0 of 100,000"


def test_a_ratio_is_of_numbers_that_are_held_against_each_other():
    assert Row(line("50"), "differs", number(57, 57, "parameters")).ratio == pytest.approx(1.14)
    assert Row(line("2 out of 5", unit="%"), "differs", share(1, 10, "seeds")).ratio is not None
    assert Row(line("100", Within(0.9)), "reproduced", number(1, 1, "bits")).ratio is None
    assert Row(line("20-40K", Within(2e4, 4e4)), "differs", number(19_000, 19_000, "steps")).ratio is None
    assert Row(line("essentially free", Within(0.9)), "reproduced", number(1, 1, "costs")).ratio is None


def test_the_command_prints_and_writes_the_table(tmp_path, capsys):
    path = tmp_path / "table.json"
    assert main(["headlines", "--paper", "adder-456", "--markdown", "--json", str(path)], PROGRAM) == 0
    printed = capsys.readouterr().out
    assert "| behaviour | Table 2 | Errors of 512 parameters in 100,000. | 12 | 0 of 100,000" in printed
    written = json.loads(path.read_text())["result"]
    assert written["sentence"] in printed
    assert main(["headlines", "--paper", "adder-456"], PROGRAM) == 0
    assert written["sentence"].split(".")[0] in " ".join(capsys.readouterr().out.split())


def test_an_unknown_paper_is_one_sentence_with_the_closest_match(capsys):
    assert main(["headlines", "--paper", "toigpt"], PROGRAM) == 2
    assert "Did you mean 'toygpt'?" in capsys.readouterr().err


def test_scores_that_rows_show_are_those_that_their_command_prints(capsys):
    assert main(["score", "microadder-57"]) == 0
    right, n = Store().score("microadder-57").counts
    assert f"{right:,} of {n:,}" in capsys.readouterr().out
