"""The reproduction page: every headline number of the papers in one table that can be filtered and sorted."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from interp.site.gallery.papers import PAPERS
from interp.site.gallery.render import Link, page
from interp.site.pages import figure_data, table_html
from studies import claims as headlines
from studies.claims.headline import KINDS, Row
from studies.claims.headlines_result import IN_WORDS, Headlines

REPRODUCTION = "reproduction.html"
_LABELS = {paper.key: paper.label for paper in PAPERS}


def reproduction_page(links: Sequence[Link]) -> bytes:
    """A page with every headline number of the papers, our number, the verdict and the command.

    Numbers on behaviour, numbers on training and mere counts are counted separately.
    """
    found = headlines.table()
    figure = found.figure().for_each_yaxis(
        lambda axis: axis.update(ticktext=[_LABELS[key] for key in axis.ticktext or ()])
    )
    filters = {
        "paper": {key: _LABELS[key] for key in found.papers()},
        "kind": {kind: f"{kind}: {IN_WORDS[kind]}" for kind in KINDS},
        "verdict": {label: label for label in found.labels()},
    }
    return page(
        "reproduction.html.j2", REPRODUCTION, "Reproduction", links, sentence=found.sentence(),
        figure=figure_data(figure), tables=[(IN_WORDS[kind], counted(found.of_kind(kind))) for kind in KINDS],
        filters=filters, rows=[_cells(row, found) for row in found.rows],
    )  # fmt: skip


def counted(found: Headlines) -> str:
    """How many numbers of each paper have each verdict, as a table."""
    columns = {_LABELS[paper]: found.counts(paper) for paper in found.papers()}
    frame = pd.DataFrame(
        [{"paper": name, "numbers": sum(counts.values())} | counts for name, counts in columns.items()]
    )
    return table_html(frame)


def _cells(row: Row, found: Headlines) -> dict[str, object]:
    """What the table shows in a row, and the numbers that it is sorted by."""
    line, ours = row.headline, row.ours
    return {
        "line": line,
        "paper": _LABELS[line.paper],
        "label": row.label,
        "shown": row.shown,
        "rung": ours.provenance.rung if ours else "",
        "remarks": row.remarks,
        "printed_value": line.stated[0].value if line.stated else None,
        "ours_value": ours.value if ours else None,
        "order": found.labels().index(row.label),
    }
