"""The result that holds the table of headline numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from interp.core.results import Provenance, Result
from studies.claims.headline import KINDS, VERDICTS, Kind, Row

IN_WORDS: dict[Kind, str] = {
    "behaviour": "what models do",
    "training": "how they are trained",
}


_DOES: dict[str, tuple[str, str]] = {
    "reproduced": ("is reproduced", "are reproduced"),
    "compatible": ("is compatible", "are compatible"),
    "differs": ("differs", "differ"),
    "undecided": ("is undecided", "are undecided"),
    "not testable": ("is not testable", "are not testable"),
    "not run": ("was not run", "were not run"),
    "not measured": ("was not measured", "were not measured"),
}


@dataclass(frozen=True, eq=False)
class Headlines(Result):
    """The table; ``rows`` are in the order of the papers and of their pages."""

    rows: tuple[Row, ...]
    provenance: Provenance

    def labels(self) -> list[str]:
        """The verdicts that occur, best first; each is followed by the same at a smaller scale."""
        found = {row.label for row in self.rows}
        return [label for verdict in VERDICTS for label in (verdict, f"{verdict} at a smaller scale") if label in found]

    def counts(self, paper: str | None = None) -> dict[str, int]:
        """How many rows have each verdict."""
        found = Counter(row.label for row in self.rows if paper in (None, row.headline.paper))
        return {label: found[label] for label in self.labels()}

    def of_kind(self, kind: Kind) -> Headlines:
        """The rows of one kind: behaviour or training."""
        return self._only(row for row in self.rows if row.headline.kind == kind)

    def of_paper(self, paper: str) -> Headlines:
        """The rows of one paper."""
        return self._only(row for row in self.rows if row.headline.paper == paper)

    def _only(self, rows: Iterable[Row]) -> Headlines:
        kept = tuple(rows)
        return replace(self, rows=kept, provenance=replace(self.provenance, n=max(1, len(kept))))

    def papers(self) -> list[str]:
        return list(dict.fromkeys(row.headline.paper for row in self.rows))

    def sentence(self) -> str:
        papers = self.papers()
        of = f"{len(papers)} papers" if len(papers) != 1 else papers[0]
        parts = [f"{len(self.rows)} facts of {of}."]
        for kind, what in IN_WORDS.items():
            found = self.of_kind(kind)
            if found.rows:
                parts.append(f"Of the {len(found.rows)} on {what}, {found._counted()}.")
        return " ".join(parts)

    def _counted(self) -> str:
        """ "70 are reproduced (1 at a smaller scale), 12 were not run and 3 were not measured"."""
        counts, said = self.counts(), []
        for verdict in VERDICTS:
            smaller = counts.get(f"{verdict} at a smaller scale", 0)
            if n := counts.get(verdict, 0) + smaller:
                one, many = _DOES[verdict]
                text = f"{n} {one if n == 1 else many}"
                said.append(f"{text} ({smaller} at a smaller scale)" if smaller else text)
        return ", ".join(said[:-1]) + f" and {said[-1]}" if len(said) > 1 else said[0]

    def to_dataframe(self) -> pd.DataFrame:
        """One row per fact, with its kind, our number, the verdict, the rule and what the number rests on."""
        return pd.DataFrame(
            [
                {
                    "paper": row.headline.paper,
                    "kind": row.headline.kind,
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
        """The whole table as JSON."""
        kinds = {kind: self.of_kind(kind).counts() for kind in KINDS}
        return {
            "sentence": self.sentence(),
            "counts": self.counts(),
            "counts_by_kind": kinds,
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_markdown(self) -> str:
        """One table per paper, as the documentation shows it."""
        parts = [self.sentence()]
        for paper in self.papers():
            parts.append(f"### {paper}\n\n" + _markdown([row for row in self.rows if row.headline.paper == paper]))
        return "\n\n".join(parts) + "\n"


def _markdown(rows: list[Row]) -> str:
    header = ("kind", "where", "claim", "printed", "ours", "verdict", "command")
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join(['---'] * len(header))} |"]
    for row in rows:
        line = row.headline
        verdict = f"{row.label} ({row.remarks})" if row.remarks else row.label
        rung = f" *{row.ours.provenance.rung}*" if row.ours else ""
        command = f"`{line.command}`" if line.command else ""
        cells = (line.kind, line.where, line.claim, line.printed, row.shown + rung, verdict, command)
        lines.append("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
