"""The command ``python -m studies headlines``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from interp.cli.arguments import Force, Json, Named, one_thread
from interp.cli.help import filled
from interp.cli.outputs import write_reply
from interp.core.stored_data import DATA as INTERP_DATA
from interp.core.stored_data import keep, kept
from models.errors import unknown_name
from models.files.stored_names import CONFIG, ZOO
from studies.papers import DATA, PAPERS

FILE = DATA / "headlines.json"  # `python -m studies.commands.headlines` writes it
ALL = "all"


def _check_paper(key: str) -> None:
    if key not in PAPERS:
        raise unknown_name("paper", key, PAPERS)


@dataclass(frozen=True)
class ShowHeadlines:
    """Print every fact that the five papers claim, ours, and the command that makes it. Nothing is trained."""

    paper: Annotated[str | None, Named(_check_paper)] = None
    """microadder, adder-456, position-coupling, toygpt or addlm; all of them by default."""
    markdown: bool = False
    """Print Markdown, one table per paper."""
    csv: bool = False
    """Print all columns as CSV."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        shown = kept(FILE, sources(), tables)[self.paper or ALL]
        if self.json is not None:
            from interp.core.replies import reply

            write_reply(self.json, reply("HeadlineTable", shown["sentence"], shown["rows"], shown))
        if self.markdown or self.csv:
            from studies.claims import table

            one_thread()
            found = table(self.paper)
            print(found.to_markdown() if self.markdown else found.to_dataframe().to_csv(index=False), end="")
            return
        for paper in dict.fromkeys(row["paper"] for row in shown["rows"]):
            print(f"\n{paper}")
            for row in (row for row in shown["rows"] if row["paper"] == paper):
                print("\n" + filled(f"{row['where']}: {row['claim']}", after="  "))
                said = f"printed {row['printed']}; ours {row['shown']}; {row['verdict']}"
                said += f" ({row['remarks']})" if row["remarks"] else ""
                print(filled(said, "  "))
                if row["command"]:
                    print(f"  $ {row['command']}")  # on one line, to be copied
        print(f"\n{filled(shown['sentence'])}")


def sources() -> list[Path]:
    """What the tables are made of: the entries' data, stored results, and what the rows say and how they are judged."""
    stored = [*(path for path in DATA.rglob("*.json") if path != FILE), *INTERP_DATA.glob("hand_built_*.json")]
    of_papers = [path for paper in PAPERS.values() for path in (_STUDIES / paper.folder).glob("headlines.*")]
    return [*ZOO.glob(f"*/{CONFIG}"), *stored, *of_papers, *(_STUDIES / "claims").glob("*.py")]


def tables() -> dict[str, Any]:
    """The whole table and that of every paper, as JSON."""
    from studies.claims.headline_table import table

    one_thread()
    whole = table()
    return {ALL: whole.to_dict()} | {paper: whole.of_paper(paper).to_dict() for paper in PAPERS}


_STUDIES = Path(__file__).parents[1]

if __name__ == "__main__":
    keep(FILE, sources(), tables())
    print(f"wrote {FILE.name}")
