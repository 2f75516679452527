"""Rows of claims.toml: what they become, and what is refused."""

import tomllib

import pytest

import models
from models.errors import UserError
from studies.claims import Store
from studies.claims.read import headline, rows_of, stated
from studies.claims.rules import Near, Within

TEXT = """
[texts]
small = "a smaller model"

[[row]]
where = "1"
unit = "%"
kind = "training"
rule = { is = "at least", bound = 0.5, of = "the share" }
ours = "number(2 * n + more, n, 'numbers')"
let = { n = 3, more = 0 }
scale = "@small"
each = [
    { claim = "One.", printed = "1", let = { more = 1 } },
    { claim = "Two.", printed = "2", rule = "near" },
]

[[row]]
where = "2"
claim = "Counted."
printed = "57"
rule = "digits"
ours = "number(m, 1, 'numbers')"
let = { n = 4, m = "= 2 * n" }
"""
ROW = {"where": "1", "claim": "A number.", "printed": "57", "rule": "digits", "ours": "score('microadder-57')"}


def test_rows_share_what_their_group_has_and_merge_its_tables():
    first, second, count = (headline("microadder", row) for row in rows_of(tomllib.loads(TEXT)))
    assert first.ours is not None and first.ours(Store()).value == 7
    assert second.ours is not None and second.ours(Store()).value == 6
    assert first.rule == Within(0.5, of="the share") and first.control is None
    assert first.scale == second.scale == "a smaller model" and first.unit == "%" and first.kind == "training"
    assert (count.rule, count.command, count.scale) == (Near(0.0), "python -m studies headlines --paper microadder", "")
    assert count.ours is not None and count.evaluate(Store()).verdict == "differs"


def test_a_model_gives_its_numbers_and_a_control_those_of_untrained_copies():
    more = {"ours": "w.arc_stride * 1", "model": "microadder-57", "control": 2, "rule": "near"}
    row = headline("microadder", ROW | more)
    assert row.ours is not None and row.control is not None
    ours, drawn = row.ours(Store()), row.control(Store())
    model = models.load("microadder-57")
    assert ours.value == model.weight_map.arc_stride.item() and ours.model == "microadder-57"
    assert ours.provenance.n == sum(p.numel() for p in model.parameters()) == 57
    assert [one.value for one in drawn] == [
        float(models.build("microadder-57", seed=i).weight_map.arc_stride) for i in (0, 1)
    ]


def test_what_a_stored_table_lacks_is_not_stored():
    row = headline("microadder", ROW | {"ours": "number(stored('microadder-gap')['nothing'], 1, 'x')"})
    assert row.evaluate(Store()).verdict == "not measured"


def test_a_row_without_a_number_has_no_command():
    row = headline("microadder", {"where": "1", "claim": "A number.", "printed": "57", "why": "it wants a GPU"})
    assert row.command == "" and row.evaluate(Store()).verdict == "not run"


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "digit"},
        {"rule": {"is": "near", "bound": 3}},
        {"ours": "scores('microadder-57')"},
        {"ours": "score('microadder-57'"},
        {"ours": "holm([0.1])"},  # a function that the statistics import, and none of them
        {"ours": "w.arc_stride"},  # of no model
        {"ours": "open('file')"},
        {"let": {"x": "= nothing"}},
        {"colour": "red"},
        {"quote": "fifty-seven"},
    ],
)
def test_what_a_row_may_not_say_is_refused_when_it_is_read(change):
    with pytest.raises(UserError):
        headline("microadder", ROW | change)


def test_a_text_that_is_not_there_is_refused():
    with pytest.raises(UserError):
        list(rows_of({"row": [ROW | {"scale": "@smal"}], "texts": {"small": "a smaller model"}}))


def test_printed_numbers_are_found_by_their_claim():
    assert stated("microadder", "Seeds that grok with the older fade by metric.") == (1, 10)
    assert stated("toygpt", "Rotary positions: test accuracy.") == pytest.approx((0.456,))
    with pytest.raises(UserError):
        stated("microadder", "Seeds that grok.")
