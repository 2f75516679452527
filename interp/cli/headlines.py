"""The command ``interp headlines``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from interp.cli.arguments import Named, OptionalFile, one_thread
from interp.cli.help import filled
from interp.cli.known_names import check_paper


@dataclass(frozen=True)
class ShowHeadlines:
    """Print every headline number of the five papers, ours, and the command that makes it. Nothing is trained."""

    paper: Annotated[str | None, Named(check_paper)] = None
    """microadder, adder-456, position-coupling, toygpt or addlm; all of them by default."""
    markdown: bool = False
    """Print Markdown, one table per paper."""
    csv: bool = False
    """Print all columns as CSV."""
    json: OptionalFile = None
    """Also write everything here."""

    def run(self) -> None:
        from interp.papers.headlines import table
        from models.checkpoint import write_json_atomic

        one_thread()
        found = table(self.paper)
        if self.json is not None:
            write_json_atomic(self.json, found.to_dict())
        if self.markdown:
            print(found.to_markdown())
            return
        if self.csv:
            print(found.to_dataframe().to_csv(index=False), end="")
            return
        for paper in found.papers():
            print(f"\n{paper}")
            for row in (row for row in found.rows if row.headline.paper == paper):
                line = row.headline
                print("\n" + filled(f"{line.where}: {line.claim}", after="  "))
                said = f"printed {line.printed}; ours {row.shown}; {row.label}"
                said += f" ({row.remarks})" if row.remarks else ""
                print(filled(said, "  "))
                if line.command:
                    print(f"  $ {line.command}")  # on one line, to be copied
        print(f"\n{filled(found.sentence())}")
