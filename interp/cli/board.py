"""The command ``interp board``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from interp.cli.arguments import FOLDER, Force, Json, Page, one_thread
from interp.cli.outputs import write_reply


@dataclass(frozen=True)
class Board:
    """Judge a folder of public AdderBoard submissions: parameters, score, and a verdict on all 10^20 pairs for each.

    Submissions are programs: with --trust each is run in a process of its own, without network and with limits on time
    and memory. The command can be stopped at any time and resumes from there.
    """

    folder: Annotated[Path, FOLDER, tyro.conf.Positional]
    """The folder with the submissions (*.py), in folders of its own or not."""
    out: Page = Path("board.html")
    """The page; what is judged already is read from it."""
    checkpoints: Annotated[Path | None, FOLDER] = None
    """A folder with checkpoints that submissions name and that do not lie next to them."""
    minutes: float | None = None
    """How many minutes to try each proof; what is not proved by then is searched for failures."""
    fresh: bool = False
    """Judge every file again."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        one_thread()
        from interp.cli.own_files import trusted
        from interp.core.replies import reply
        from interp.core.results import Provenance
        from interp.site.board_page import board, summary, to_dataframe

        rows = board(self.folder, self.out, self.checkpoints, self.minutes, self.fresh, trusted())
        table = to_dataframe(rows)[["file", "stated", "free", "score", "verdict", "seconds"]]
        print(table.to_string(index=False))
        print(summary(rows))
        rests = Provenance(len(rows), None, "submissions; what a row's verdict rests on is in its words")
        write_reply(self.json, reply("board", summary(rows), [row.to_dict() for row in rows], provenance=rests))
