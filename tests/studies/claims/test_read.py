"""Rows of headlines.toml: what they become, and what is refused."""

import tomllib
from types import SimpleNamespace

import pytest

from models.errors import UserError
from studies.claims import Store
from studies.claims.read import headline, rows_of, stated
from studies.claims.rules import AtLeast, Digits, Ours, counted

TEXT = """
[texts]
small = "a smaller model"

[[row]]
where = "1"
unit = "%"
kind = "training"
rule = { is = "at least", bound = 0.5, of = "the share" }
ours = { find = "twice", n = 3 }
scale = "@small"
each = [
    { claim = "One.", printed = "1", ours = { more = 1 } },
    { claim = "Two.", printed = "2", rule = "near", control = "thrice" },
]

[[row]]
where = "2"
claim = "Counted."
printed = "57"
rule = "digits"
ours = { find = "twice", n = 4 }
"""


def twice(store: Store, n: int, more: int = 0) -> Ours:
    return counted(2 * n + more, "numbers")


def thrice(store: Store, n: int) -> list[Ours]:
    return [counted(3 * n, "numbers")]


MODULE = SimpleNamespace(twice=twice, thrice=thrice)
ROW = {"where": "1", "claim": "A number.", "printed": "57", "rule": "digits", "ours": "score/microadder-57"}


def test_rows_share_what_their_group_has_and_merge_its_tables():
    first, second, count = (headline("microadder", row, MODULE) for row in rows_of(tomllib.loads(TEXT)))
    assert first.ours is not None and first.ours(Store()).value == 7
    assert second.ours is not None and second.ours(Store()).value == 6
    assert first.rule == AtLeast(0.5, "the share") and first.control is None
    assert second.control is not None and [ours.value for ours in second.control(Store())] == [9]
    assert first.scale == second.scale == "a smaller model" and first.unit == "%" and first.kind == "training"
    assert (count.rule, count.command, count.scale) == (Digits(), "python -m studies headlines --paper microadder", "")
    assert count.ours is not None and count.evaluate(Store()).verdict == "differs"


def test_a_row_without_a_number_has_no_command():
    row = headline("microadder", {"where": "1", "claim": "A number.", "printed": "57", "why": "it wants a GPU"})
    assert row.command == "" and row.evaluate(Store()).verdict == "not run"


@pytest.mark.parametrize(
    "change",
    [
        {"rule": "digit"},
        {"rule": {"is": "near", "bound": 3}},
        {"ours": "scores/microadder-57"},
        {"ours": "score"},
        {"ours": {"find": "score", "models": "microadder-57"}},
        {"ours": "holm/microadder-57"},  # a function that the finders import, and no finder
        {"control": "untraind"},
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
