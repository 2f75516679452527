"""Pages on all models at once: what compares them, the reproduction table, and views to step through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from interp.papers import headlines
from interp.papers.studies.stored import stored_studies
from interp.site.explorer import static_view
from interp.site.gallery.papers import part_of
from interp.site.gallery.render import Link, Part, code, page, paragraph
from interp.site.pages import figure_data
from models.zoo import load

COMPARISON, REPRODUCTION = "compare.html", "reproduction.html"
#: Views to step through: one model, or two next to each other.
EXPLORED: Mapping[str, tuple[str, ...]] = {
    "explore/microadder-57.html": ("microadder-57", "microadder-57-by-hand"),
    "explore/microadder-11.html": ("microadder-11", "adder-3-by-hand"),
    "explore/adder-456.html": ("adder-456",),
    "explore/toygpt-learned-pre.html": ("toygpt-learned-pre",),
}


def comparisons() -> list[str]:
    """Targets of stored results that are about several papers' models."""
    return [target for target in stored_studies() if target.startswith("comparison:")]


def comparison_page(links: Sequence[Link]) -> bytes:
    """The comparison matrix, and what else was measured across models."""
    words = (
        "Models of different formats asked the same questions, seeds of one architecture aligned to each other, parts "
        "of one model put into another."
    )
    parts = [part_of(target) for target in comparisons()]
    return page(
        "paper.html.j2", COMPARISON, "Comparison", links, heading="The same algorithm?", words=words, parts=parts,
        models=[],
    )  # fmt: skip


# ---- the reproduction table


def reproduction_page(links: Sequence[Link]) -> bytes:
    """Every headline number of the papers, ours, the verdict and the command."""
    found = headlines.table()
    titles: dict[str, str] = {**headlines.PAPERS}
    parts = [Part("verdicts", "In one picture", [figure_data(found.figure())])]
    for paper in found.papers():
        rows = [row for row in found.rows if row.headline.paper == paper]
        items = [paragraph(replace(found, rows=tuple(rows)).sentence()), _headline_table(rows)]
        parts.append(Part(paper, titles[paper], items))
    rules = paragraph(
        "A verdict follows from both numbers by the rule of its line: reproduced, as printed or as claimed, beyond the "
        "stated uncertainty; compatible, not told apart but too uncertain to confirm it, or passed by untrained "
        "models as well; differs, told apart. Where a bound was written after our number was known, the row says so. "
        "At a smaller scale: ours is a smaller model, shorter training or another size than the paper's."
    )
    parts.append(Part("rules", "How verdicts are made", [rules]))
    return page(
        "paper.html.j2", REPRODUCTION, "Reproduction", links, heading="The papers' numbers and ours",
        words=found.sentence(), parts=parts, models=[],
    )  # fmt: skip


_COLUMNS = ("kind", "where", "claim", "printed", "ours", "verdict", "command")


def _headline_table(rows: Sequence[Any]) -> Markup:
    head = "".join(f"<th scope='col' role='columnheader'>{name}</th>" for name in _COLUMNS)
    cell = Markup("<td role='cell' data-label='{}'>{}</td>")
    lines = []
    for row in rows:
        line = row.headline
        ours = Markup("{}<br><small>{}</small>").format(row.shown, row.ours.provenance.rung) if row.ours else row.shown
        remarks = Markup("<br><small>{}</small>").format(row.remarks) if row.remarks else ""
        command = code(line.command) if line.command else ""
        verdict = Markup("<strong>{}</strong>{}").format(row.label, remarks)
        cells = zip(_COLUMNS, (line.kind, line.where, line.claim, line.printed, ours, verdict, command), strict=True)
        row_of = Markup("").join(cell.format(name, value) for name, value in cells)
        lines.append(Markup("<tr role='row'>{}</tr>").format(row_of))
    return Markup(
        "<div class='scroll'><table class='headlines' role='table'>"
        "<thead role='rowgroup'><tr role='row'>{}</tr></thead><tbody role='rowgroup'>{}</tbody></table></div>"
    ).format(Markup(head), Markup("\n").join(lines))


# ---- views to step through


def views(here: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The views of :data:`EXPLORED` whose models are all on the site."""
    return {path: names for path, names in EXPLORED.items() if set(names) <= set(here)}


def view_links(name: str, here: Sequence[str]) -> list[Link]:
    """The views that show a model."""
    return [Link(path, " and ".join(shown)) for path, shown in views(here).items() if name in shown]


def view_page(path: str, here: Sequence[str], links: Sequence[Link]) -> bytes:
    """A view that runs a model or two."""
    names = EXPLORED[path]
    view = static_view([load(name) for name in names])
    title = " and ".join(names)
    others = [Link(other, " and ".join(shown)) for other, shown in views(here).items()]
    return page("explore.html.j2", path, title, links, heading=title, view=view, others=others)
