"""The papers' numbers next to ours, and what the studies stored, as a hook of MkDocs: a page a paper, and comparisons.

Everything comes from the claims and the stored results by the functions that are imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from mkdocs.structure.files import File

from interp.site.pages import table_html
from interp.site.pages.items import commands, figure, folded, sections
from studies.claims import Headlines
from studies.claims import table as headlines
from studies.claims.headline import KINDS
from studies.papers import PAPERS
from studies.runs.stored_studies import command_of, stored_page, stored_studies

COMPARISON = "comparison"
OPEN = 4  # sections of a study that are not folded
RULES = """A verdict follows from both numbers by the rule of its line. "Reproduced" means as printed or as claimed,
beyond the stated uncertainty. "Compatible" means that the two numbers do not differ significantly but ours is too
uncertain to confirm the printed one, or that untrained models pass as well. "Differs" means that they differ
significantly. Where a bound was written after our number was known, the row says so. "At a smaller scale" means that
ours is a smaller model, shorter training or another size than the paper's."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    pages = {f"studies/{key}.md": study_page(key) for key in (*PAPERS, COMPARISON)}
    for path, text in ({"studies/README.md": overview()} | pages).items():
        files.append(File.generated(config, path, content=text))
    return files


def overview() -> str:
    """What became of the papers' numbers, in one picture and counted, with the pages of the papers."""
    found = headlines()
    parts = ["# The papers' numbers and ours", found.sentence(), figure(found.figure())]
    for kind, words in KINDS.items():
        parts += [f"## On {words}", _counted(found.of_kind(kind))]
    lines = [f"* [{paper.label}]({key}.md): {paper.words}" for key, paper in PAPERS.items()]
    lines.append(f"* [Comparisons]({COMPARISON}.md): models of several papers, asked the same questions")
    return "\n\n".join([*parts, "## Every number, and every study", "\n".join(lines), "## Verdicts", RULES]) + "\n"


def _counted(found: Headlines) -> str:
    """How many numbers of each paper have each verdict."""
    labels = found.labels()
    rows = [("paper", "numbers", *labels), ["---"] * (2 + len(labels))]
    for key in found.papers():
        counts = found.of_paper(key).counts()
        rows.append((f"[{PAPERS[key].label}]({key}.md)", sum(counts.values()), *(counts.get(x, 0) for x in labels)))
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def study_page(key: str) -> str:
    """A paper's numbers and ours, and what each of its studies stored; or the studies of several papers' models."""
    parts = ["# Models of several papers, compared"]
    if key != COMPARISON:
        paper = PAPERS[key]
        found = headlines(key)
        about = f"{paper.words} [What was found, in words](../papers/{key.replace('-', '_')}.md)."
        parts = [f"# {paper.label}: numbers and studies", about, "## The paper's numbers and ours", found.sentence()]
        for kind, words in KINDS.items():
            parts += [f"### On {words}", table_html(_rows(found.of_kind(kind)))]
    for target in stored_studies():
        if target.startswith(f"{key}:"):
            parts += _study(target)
    return "\n\n".join(parts) + "\n"


def _rows(found: Headlines) -> pd.DataFrame:
    """Every number of a paper, ours with its strength of evidence, and the verdict."""
    return pd.DataFrame(
        {
            "claim": line.claim,
            "printed": line.printed,
            "ours": f"{row.shown} ({row.ours.provenance.strength})" if row.ours else row.shown,
            "verdict": f"{row.label}: {row.remarks}" if row.remarks else row.label,
            "where": line.where,
            "command": line.command,
        }
        for row in found.rows
        if (line := row.headline)
    )


def _study(target: str) -> Sequence[str]:
    """What a study stored, after the command that makes it; sections after the first few are folded."""
    page = stored_page(target)
    more = page.sections[OPEN:]
    items = [commands([command_of(target)]), *sections(page.sections[:OPEN], page.title)]
    if more:
        words = f"{len(more)} more section{'s' * (len(more) > 1)}"
        items.append(folded(words, "".join(sections(more))))
    return [f"## {page.title}", *items]
