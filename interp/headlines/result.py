"""The table of headline numbers as a result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pandas as pd

from interp.headlines.headline import VERDICTS, Row
from interp.results import Provenance, Result


@dataclass(frozen=True, eq=False)
class Headlines(Result):
    """``rows`` in the order of the papers and of their pages."""

    rows: tuple[Row, ...]
    provenance: Provenance

    def labels(self) -> list[str]:
        """Verdicts that occur, best first, those at a smaller scale behind their kind."""
        found = {row.label for row in self.rows}
        return [label for verdict in VERDICTS for label in (verdict, f"{verdict} at a smaller scale") if label in found]

    def counts(self, paper: str | None = None) -> dict[str, int]:
        """How many rows have each verdict."""
        found = Counter(row.label for row in self.rows if paper in (None, row.headline.paper))
        return {label: found[label] for label in self.labels()}

    def papers(self) -> list[str]:
        return list(dict.fromkeys(row.headline.paper for row in self.rows))

    def sentence(self) -> str:
        papers = self.papers()
        counts = ", ".join(f"{n} {label}" for label, n in self.counts().items())
        of = f"{len(papers)} papers" if len(papers) != 1 else papers[0]
        return f"{len(self.rows)} headline numbers of {of}: {counts}"

    def to_dataframe(self) -> pd.DataFrame:
        """One row a headline: paper, where, claim, printed, ours, verdict, command, rung, n, seed, rule, remarks."""
        return pd.DataFrame(
            [
                {
                    "paper": row.headline.paper,
                    "where": row.headline.where,
                    "claim": row.headline.claim,
                    "printed": row.headline.printed,
                    "ours": row.shown,
                    "verdict": row.label,
                    "command": row.headline.command,
                    "model": row.ours.model if row.ours else "",
                    "rung": row.ours.provenance.rung if row.ours else "",
                    "n": row.ours.provenance.n if row.ours else None,
                    "of": row.ours.provenance.source if row.ours else "",
                    "seed": row.ours.provenance.seed if row.ours else None,
                    "rule": row.headline.rule.words if row.headline.rule else "",
                    "remarks": row.remarks,
                }
                for row in self.rows
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return {"sentence": self.sentence(), "counts": self.counts(), "rows": [row.to_dict() for row in self.rows]}

    def to_markdown(self) -> str:
        """A table a paper, as the documentation shows it."""
        parts = [self.sentence() + "."]
        for paper in self.papers():
            parts.append(f"### {paper}\n\n" + _markdown([row for row in self.rows if row.headline.paper == paper]))
        return "\n\n".join(parts) + "\n"

    def figure(self) -> Any:
        """Verdicts by paper, and ours over the printed numbers."""
        from interp.figures.headlines import figure_headlines

        return figure_headlines(self)


def _markdown(rows: list[Row]) -> str:
    lines = ["| where | claim | printed | ours | verdict | command |", "| --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        line = row.headline
        verdict = f"{row.label} ({row.remarks})" if row.remarks else row.label
        rung = f" *{row.ours.provenance.rung}*" if row.ours else ""
        command = f"`{line.command}`" if line.command else ""
        cells = (line.where, line.claim, line.printed, row.shown + rung, verdict, command)
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
