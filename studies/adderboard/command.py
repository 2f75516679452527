"""``python -m studies.adderboard FOLDER --trust``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from interp.cli.commands import Program
from interp.cli.shared_options import FOLDER, PROGRAMS, Json, Page, one_thread
from interp.cli.written_files import write_reply


def board(
    folder: Annotated[Path | None, FOLDER, PROGRAMS, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = None,
    out: Page = Path("board.html"),
    checkpoints: Annotated[Path | None, FOLDER] = None,
    minutes: float | None = 3.0,
    fresh: bool = False,
    json: Json = None,
) -> None:
    """Small adders of ten-digit numbers, this project's and a folder of public ones: how many numbers they have,
    what they were trained from, score, and a verdict on all 10^20 pairs.

    Submissions are programs (*.py), of which each is run, with --trust, in a process of its own under bubblewrap (with
    --trust unconfined, with all that you may do); or published numbers (*.json). The command can be stopped and resumes
    from there.

    Args:
        folder: The folder with the submissions, in folders of its own ("trained", "hand_coded") or not.
        out: The page; what is judged already is read from it.
        checkpoints: A folder with checkpoints that submissions name and that do not lie next to them.
        minutes: How many minutes to try each proof (None: as many as it takes); then failures are searched for.
        fresh: Judge every file again.
    """
    one_thread()
    from interp.cli.own_flags import trusted
    from interp.core.replies import reply
    from interp.core.results import Provenance
    from studies.adderboard import board_page

    rows = board_page.board(folder, out, checkpoints, minutes, fresh, trusted())
    said, table = board_page.summary(rows), board_page.to_dataframe(rows)
    table = table[["name", "made", "free", "constants", "start", "score", "verdict"]]
    print(table.to_string(index=False, max_colwidth=34), said, sep="\n")
    source = "adders, public ones and this project's; what a row's verdict rests on is in its words"
    rests = Provenance(len(rows), None, source)
    write_reply(json, reply("board", said, [row.to_dict() for row in rows], provenance=rests))


PROGRAM = Program(
    "python -m studies.adderboard",
    "studies.adderboard",
    (("command:board", "board", "judge a folder of adders"),),
    "board",
)
