"""The hand-built transformer against the paper's worked example: Tables 4 to 26, entry by entry."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.parity.printed_tables import FIGURE_4, FROM_EQUALS, OFFSETS, TABLES
from tests.parity.worked_example import (
    TOLERANCE,
    activations,
    check_table,
    computed,
    entry,
    example_ids,
    example_model,
)

#: Printed entries that the printed formulas contradict: table -> {(row, column from "=" on): (printed, right)}.
#: Table 20 has PRE_EOS = 1/3 under "=" (BOS, "=" and the first "+" tie) and 1/2 under the second arrow (no "+" follows
#: a_3); Table 23 copies the row with the two exchanged, and Tables 22 and 25 carry EOS = 6 relu(1/2 - 1/3) - 1 = 0 to
#: "=" and -1 to the arrow. The predicted tokens are the same either way.
MISPRINTS = {
    22: {("EOS", 0): ("0", "-1"), ("EOS", 8): ("-1", "0")},
    23: {
        ("PRE_EOS", 0): ("1/2", "1/3"),
        ("PRE_EOS", 8): ("1/3", "1/2"),
        ("EOS", 0): ("0", "-1"),
        ("EOS", 8): ("-1", "0"),
    },
    25: {("$", 0): ("0", "-100"), ("$", 8): ("-100", "0")},
}


@pytest.mark.parametrize("number", TABLES)
def test_a_printed_table_is_what_the_model_computes_but_for_the_misprints(number: int):
    expected, found = MISPRINTS.get(number, {}), check_table(number)
    assert found.differing == {place: printed for place, (printed, _) in expected.items()}, TABLES[number].caption
    assert found.entries >= 16
    for (name, column), (_, right) in expected.items():
        ours = computed(number)[name][FROM_EQUALS + column]
        assert (ours - entry(right, name, len(ours))).abs().max() <= TOLERANCE


def test_a_changed_entry_is_found(monkeypatch):
    rows = TABLES[8].rows | {"PRE_SUM": TABLES[8].rows["PRE_SUM"].replace("15", "14")}
    monkeypatch.setitem(TABLES, 8, replace(TABLES[8], rows=rows))
    assert check_table(8).differing == {("PRE_SUM", 8): "14"}
    monkeypatch.setitem(TABLES, 8, replace(TABLES[8], rows={"PRE_SUM": rows["PRE_SUM"]}))
    with pytest.raises(AssertionError):
        check_table(8)


def test_the_misprints_change_no_predicted_token():
    """The printed Table 25 has the same largest entry in every column."""
    printed = [TABLES[25].rows[example_model().task.token_text(token)] for token in range(14)]
    columns = [[0.0] * 16 if row == "0*" else [float(entry) for entry in row.split()] for row in printed]
    assert torch.equal(torch.tensor(columns).argmax(0), activations()["logits"][FROM_EQUALS:].argmax(-1))


def test_figure_4_prints_the_ids_of_equations_1_and_2():
    task = example_model().task
    ids = task.position_ids(task.tokenise("$" + FIGURE_4["Token"]))[0, 1:]
    assert "".join(map(str, ids[:, 0].tolist())) == FIGURE_4["PosID1"]
    assert "".join(map(str, ids[:, 1].tolist())) == FIGURE_4["PosID2"]


def test_ids_are_equations_1_and_2_at_every_position():
    m, length = 3, 3
    s1, s2 = OFFSETS
    w = length + 1
    expected = [(0, 0)]
    for k in range(2, (2 * m + 1) * w + 1):  # the paper counts tokens from 1
        if k <= m * w + 1:
            i = (k - 2) // w + 1  # k = (i - 1) w + 2 ... i w + 1
            p1 = s1 + i * w + 1 - k
        if k >= m * w + 1:  # both cases hold for "=", with the same value
            i = (k - 1) // w - m + 1  # k = (m + i - 1) w + 1 ... (m + i) w
            p1 = s1 - ((m + i - 1) * w + 1) + k
        p2 = s2 + ((k - 2) // w if k <= m * w else (k - m * w - 1) // w)
        expected.append((p1, p2))
    assert [tuple(ids) for ids in example_ids()[0].tolist()] == expected
