"""The command ``python -m studies headlines``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from interp.cli.parsing import filled
from interp.cli.shared_options import Json, Named, one_thread
from interp.cli.written_files import write_reply
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


def show_headlines(
    paper: Annotated[str | None, Named(_check_paper)] = None,
    markdown: bool = False,
    csv: bool = False,
    json: Json = None,
) -> None:
    """Print every fact that the five papers claim, ours, and the command that makes it. Nothing is trained.

    Args:
        paper: microadder, adder-456, position-coupling, toygpt or addlm; all of them by default.
        markdown: Print Markdown, one table per paper.
        csv: Print all columns as CSV.
    """
    shown = kept(FILE, sources(), tables)[paper or ALL]
    if json is not None:
        from interp.core.replies import reply

        write_reply(json, reply("HeadlineTable", shown["sentence"], shown["rows"], shown))
    if markdown or csv:
        from studies.claims import table

        one_thread()
        found = table(paper)
        print(found.to_markdown() if markdown else found.to_dataframe().to_csv(index=False), end="")
        return
    for of_paper in dict.fromkeys(row["paper"] for row in shown["rows"]):
        print(f"\n{of_paper}")
        for row in (row for row in shown["rows"] if row["paper"] == of_paper):
            print("\n" + filled(f"{row['where']}: {row['claim']}", after="  "))
            said = f"printed {row['printed']}; ours {row['shown']}; {row['verdict']}"
            said += f" ({row['remarks']})" if row["remarks"] else ""
            print(filled(said, "  "))
            if row["command"]:
                print(f"  $ {row['command']}")  # on one line, to be copied
    print(f"\n{filled(shown['sentence'])}")


def sources() -> list[Path]:
    """What the tables are made of: the entries' data, stored results, and what the rows say and how they are judged."""
    stored = [*(path for path in DATA.glob("*.json") if path != FILE), *INTERP_DATA.glob("hand_built_*.json")]
    said = [_STUDIES / paper.folder / file for paper in PAPERS.values() for file in ("claims.toml", "measures.py")]
    return [*ZOO.glob(f"*/{CONFIG}"), *stored, *said, *(_STUDIES / "claims").glob("*.py")]


def tables() -> dict[str, Any]:
    """The whole table and that of every paper, as JSON."""
    from studies.claims.headlines import table

    one_thread()
    whole = table()
    return {ALL: whole.to_dict()} | {paper: whole.of_paper(paper).to_dict() for paper in PAPERS}


_STUDIES = Path(__file__).parents[1]

if __name__ == "__main__":
    keep(FILE, sources(), tables())
    print(f"wrote {FILE.name}")
