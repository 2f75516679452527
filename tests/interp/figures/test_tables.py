"""Tables of notebooks keep every word and say what results say."""

from __future__ import annotations

import re

import pandas as pd

from interp.core.results import Provenance
from interp.core.table_result import TableResult
from interp.figures.tables import findings, table


def test_a_table_shows_its_rows_without_an_index_and_uncut():
    long = "word " * 40
    html = table([("s5", 0.25, None), (long, 2.0, 1.0)], ["target", "share", "more"], "a caption").to_html()
    heads, cells = (re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", html) for tag in ("th", "td"))
    assert heads == ["target", "share", "more"] and "<caption>a caption</caption>" in html
    assert cells == ["s5", "0.250", "", long, "2.000", "1.000"]


def test_findings_are_a_row_per_result_with_its_sentence_and_evidence():
    found = TableResult("It is so.", pd.DataFrame({"of": ["a"], "value": [1.0]}), Provenance(12, 3, "sums"))
    shown = findings({"trained": found, "untrained": found}, "model")
    assert shown.data.to_dict("list") == {
        "model": ["trained", "untrained"],
        "finding": ["It is so."] * 2,
        "evidence": ["sampled: n = 12 sums, seed 3"] * 2,
    }


def test_a_results_own_table_writes_small_and_large_numbers_without_an_exponent():
    values = [2.369e-7, 0.99631, 1_234_567.8, 0.0, 9_999.9]
    html = TableResult("x", pd.DataFrame({"value": values}), Provenance(1, None, "x"))._repr_html_()
    cells = [row.split("</td>")[0] for row in html.split("<td>")[1:]][::2]
    assert cells == ["2.369 x 10^-7", "0.9963", "1,234,568", "0", "10,000"]
