"""The claims of all papers (``claims.toml`` in each paper's folder) with our numbers, as one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from interp.core.results import Provenance, Result
from models.errors import known_name
from studies.claims.headline import KINDS, VERDICTS, Headline, Kind, Row
from studies.claims.read import read_headlines
from studies.claims.store import Store
from studies.papers import PAPERS

#: Studies that no claim names, with the reason.
BESIDE: dict[str, str] = {
    "microadder:ladder": "trains rungs to a fifth of their steps; counts and scores are here without it",
    "adder-456:table1": "counts parameters, which hold by construction",
    "adder-456:table4": "counts parameters, which hold by construction",
    "adder-456:stress": "the paper has uniform test problems alone",
    "position-coupling:window": "the paper's heads see all ids",
    "position-coupling:grid-window": "the paper's heads see all ids",
    "addlm:top-k": "the paper chose 16 keys and compares no other number",
}
_SAID = {
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
        for kind, what in KINDS.items():
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
                text = f"{n} {_SAID[verdict][n != 1]}"
                said.append(f"{text} ({smaller} at a smaller scale)" if smaller else text)
        return ", ".join(said[:-1]) + f" and {said[-1]}" if len(said) > 1 else said[0]

    def to_dataframe(self) -> pd.DataFrame:
        """One row per fact, with its kind, our number, the verdict, the rule and what the number rests on."""
        rows = []
        for row in (each.to_dict() for each in self.rows):
            ours = row["ours"] or {"model": "", "strength": "", "n": None, "source": "", "seed": None}
            found = {name: row[name] for name in ("paper", "kind", "where", "claim", "printed")}
            found |= {"ours": row["shown"], "verdict": row["verdict"], "command": row["command"]}
            found |= {"model": ours["model"], "strength": ours["strength"], "n": ours["n"], "of": ours["source"]}
            rows.append(found | {"seed": ours["seed"], "rule": row["rule"], "remarks": row["remarks"]})
        return pd.DataFrame(rows)

    def to_dict(self) -> dict[str, Any]:
        """The whole table as JSON."""
        return {
            "sentence": self.sentence(),
            "counts": self.counts(),
            "counts_by_kind": {kind: self.of_kind(kind).counts() for kind in KINDS},
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_markdown(self) -> str:
        """One table per paper, as the documentation shows it."""
        columns = ["kind", "where", "claim", "printed", "ours", "verdict", "command"]
        parts = [self.sentence()]
        for paper, rows in self.to_dataframe().groupby("paper", sort=False):
            lines = [columns, ["---"] * len(columns)]
            for row in rows.to_dict("records"):
                row["ours"] += f" *{row['strength']}*" if row["strength"] else ""
                row["verdict"] += f" ({row['remarks']})" if row["remarks"] else ""
                row["command"] = f"`{row['command']}`" if row["command"] else ""
                lines.append([" ".join(row[name].split()).replace("|", "\\|") for name in columns])
            parts.append(f"### {paper}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
        return "\n\n".join(parts) + "\n"


def registered(paper: str | None = None) -> tuple[Headline, ...]:
    """All claims, or one paper's, in the order of the papers.

    Raises:
        UserError: no such paper, with the closest match.
    """
    keys = PAPERS if paper is None else [known_name("paper", paper, PAPERS)]
    return tuple(headline for key in keys for headline in read_headlines(key))


def table(paper: str | None = None, store: Store | None = None) -> Headlines:
    """Every fact that the papers claim of behaviour and training, ours, and the command that computes it.

    There is one row per independent fact: what several sentences or tables of a paper repeat is one row, and sizes and
    constants that hold by construction have none (the zoo has them). Nothing is trained: ours are read from the zoo and
    from stored results, or measured on stored models (some seconds in all, one thread). Numbers that are not stored are
    "not measured".

    Args:
        paper: one of :data:`studies.papers.PAPERS`; all of them by default.
        store: where stored results lie; those of this package by default.

    Raises:
        UserError: no such paper, or a stored file that was changed.
    """
    rows = tuple(headline.evaluate(store or Store()) for headline in registered(paper))
    return Headlines(rows, Provenance(len(rows), None, "facts; the evidence for each is in the table"))
