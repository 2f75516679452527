"""``python -m studies.adderboard FOLDER --trust``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from interp.cli.arguments import FOLDER, Force, Json, Page, one_thread
from interp.cli.commands import Program
from interp.cli.outputs import write_reply


@dataclass(frozen=True)
class Board:
    """Small adders of ten-digit numbers, this project's and a folder of public ones: how many numbers they have,
    what they were trained from, score, and a verdict on all 10^20 pairs.

    Submissions are programs (*.py), of which each is run, with --trust, in a process of its own under bubblewrap (with
    --trust unconfined, with all that you may do); or published numbers (*.json). The command can be stopped and resumes
    from there.
    """

    own_flags: ClassVar = ("--from", "--trust")
    folder: Annotated[Path | None, FOLDER, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = None
    """The folder with the submissions, in folders of its own ("trained", "hand_coded") or not."""
    out: Page = Path("board.html")
    """The page; what is judged already is read from it."""
    checkpoints: Annotated[Path | None, FOLDER] = None
    """A folder with checkpoints that submissions name and that do not lie next to them."""
    minutes: float | None = 3.0
    """How many minutes to try each proof (None: as many as it takes); then failures are searched for."""
    fresh: bool = False
    """Judge every file again."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        one_thread()
        from interp.cli.own_files import trusted
        from interp.core.replies import reply
        from interp.core.results import Provenance
        from studies.adderboard.board_page import board, summary, to_dataframe

        rows = board(self.folder, self.out, self.checkpoints, self.minutes, self.fresh, trusted())
        table = to_dataframe(rows)[["name", "made", "free", "constants", "start", "score", "verdict"]]
        print(table.to_string(index=False, max_colwidth=34))
        print(summary(rows))
        source = "adders, public ones and this project's; what a row's verdict rests on is in its words"
        rests = Provenance(len(rows), None, source)
        write_reply(self.json, reply("board", summary(rows), [row.to_dict() for row in rows], provenance=rests))


PROGRAM = Program("python -m studies.adderboard", "studies.adderboard", {"board": "command:Board"}, only="board")
