"""The command ``interp headlines``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from interp.cli.arguments import Force, Json, Named, one_thread
from interp.cli.help import filled
from interp.cli.outputs import write_reply
from interp.core.stored_data import DATA, keep, kept
from models.errors import unknown_name
from models.files.stored_names import CONFIG, ZOO

FILE = DATA / "headlines.json"  # `python -m interp.cli.headlines` writes it
ALL = "all"


def _check_paper(key: str) -> None:
    from interp.papers import papers

    keys = [paper.key for paper in papers().values()]
    if key not in keys:
        raise unknown_name("paper", key, keys)


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
            from interp.papers.headlines import table

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
    stored = [path for path in DATA.rglob("*.json") if path.parent != DATA or path.name.startswith("hand_built")]
    return [*ZOO.glob(f"*/{CONFIG}"), *stored, *_PAPERS.glob("*/headlines.*"), *_PAPERS.glob("headlines/*.py")]


def tables() -> dict[str, Any]:
    """The whole table and that of every paper, as JSON."""
    from interp.papers.headlines import PAPERS
    from interp.papers.headlines.headline_table import table

    one_thread()
    whole = table()
    return {ALL: whole.to_dict()} | {paper: whole.of_paper(paper).to_dict() for paper in PAPERS}


_PAPERS = Path(__file__).parents[1] / "papers"

if __name__ == "__main__":
    keep(FILE, sources(), tables())
    print(f"wrote {FILE.name}")
