"""The command ``interp headlines``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interp.cli.training import one_thread


@dataclass(frozen=True)
class ShowHeadlines:
    """Every headline number of the five papers, ours, and the command that makes it. Nothing is trained."""

    paper: str | None = None
    """microadder, adder-456, position-coupling, toygpt or addlm; all of them by default."""
    markdown: bool = False
    """Print Markdown, one table a paper."""
    json: Path | None = None
    """Also write everything here."""

    def run(self) -> int:
        from interp.papers.headlines import table
        from models.checkpoint import write_json_atomic

        one_thread()
        found = table(self.paper)
        if self.json is not None:
            write_json_atomic(self.json, found.to_dict())
        if self.markdown:
            print(found.to_markdown())
            return 0
        from rich.console import Console
        from rich.table import Table

        console = Console()
        for paper in found.papers():
            shown = Table("where", "claim", "printed", "ours", "verdict", "command", title=paper, show_lines=True)
            for row in found.rows:
                if (line := row.headline).paper == paper:
                    verdict = f"{row.label}\n{row.remarks}" if row.remarks else row.label
                    shown.add_row(line.where, line.claim, line.printed, row.shown, verdict, line.command)
            console.print(shown)
        console.print(found.sentence())
        return 0
