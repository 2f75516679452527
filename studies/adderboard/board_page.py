"""The page of ``python -m studies.adderboard``: the rows of :mod:`studies.adderboard.board_rows`."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from interp.core.sections import Page, Section
from interp.proofs.verdict.verdict import versions
from interp.site.pages.html_document import page_data
from interp.site.pages.page_sections import write_page
from models.errors import UserError
from models.registry import BY_HAND, TRAINED
from studies.adderboard.board_rows import NOT_KNOWN, NOT_STATED, BoardRow, digest_of_file, judge, submissions
from studies.adderboard.own_rows import OWN, own_rows
from studies.adderboard.submissions import require_trust

FORMAT = 2
MINUTES = 3.0  # of each proof
_TEXT = """A program was run in a process of its own, confined unless its row says otherwise. The model
with its weights, in this project's transformer, has the logits of the file's own forward pass and its answers to some
dozen pairs (compared before anything else is done). Published numbers fill the architecture that is known for them.
Rows of the zoo have what is stored with this project's models.

"Stated" is the author's count, "free" the numbers that the model holds as parameters. "Constants" are those that act
like further numbers, where somebody has listed them ("?" elsewhere), and "distinct" is how many different magnitudes
other than 0 and 1 its weights have, however they are made. "Start" is what training began from: a random start, with
some numbers placed, or warm, from another model. "On test" says whether numbers were selected on the test set. The
score is on the board's 10,010 problems (for adder-456 and its family on the ten test sets of its paper), which
bounds no error rate where they selected the numbers.

A verdict is on all 10^20 pairs of ten-digit numbers. "Proved" is with float32 rounding or over the reals; "refuted" has
a pair that the model, decoding greedily, gets wrong; "open" is neither. What is proved comes first, by free numbers
plus constants ("?" counts as none). Which one is the smallest depends on what is counted, and for trained models on
what they were trained from. Seconds are of one processor, for the verdict."""
#: The order of what is known.
_ORDER = ("certified", "undecided", "refuted", "unreadable")
_KINDS = {TRAINED: "Trained", BY_HAND: "Set by hand", NOT_KNOWN: "Not known whether trained or set by hand"}


def board(
    folder: Path | None,
    out: Path,
    checkpoints: Path | None = None,
    minutes: float | None = MINUTES,
    fresh: bool = False,
    trust: bool | str = False,
) -> list[BoardRow]:
    """Judge every submission in a folder, and write the page ``out`` (HTML), with its data inside.

    Submissions are programs that are run (*.py) or published numbers (*.json). This project's own small adders stand on
    the page as well, and alone if there is no ``folder``. A row made from the same text with the same options is taken
    from the page of an earlier run. Each new row is stored at once.

    Raises:
        UserError: programs without ``trust``, or one that cannot be had here; no submissions, or a page that this
            package did not write.
    """
    files = [] if folder is None else submissions(folder)
    programs = [path for path in files if path.suffix == ".py"]
    if programs:
        count = f"{len(programs)} submissions in {folder} are programs, which have"
        count = f"A submission in {folder} is a program, which has" if len(programs) == 1 else count
        require_trust(trust, f"{count} to be run to be judged")
    if out.suffix != ".html":
        raise UserError(f"The page is an .html file, not {out}.")
    options = {"checkpoints": None if checkpoints is None else str(checkpoints), "minutes": minutes}
    command = "python -m studies.adderboard" + ("" if folder is None else f" {folder}")
    own = own_rows()
    kept = {} if fresh else _kept(out, options)
    rows = dict(kept)  # what is not reached before an interruption stays on the page
    for path in (bar := tqdm(files, unit="file", disable=not sys.stderr.isatty())):
        assert folder is not None
        name = path.relative_to(folder).as_posix()
        bar.set_description(name)
        of_file = kept.get(name)
        if of_file is None or any(row.sha256 != digest_of_file(path) for row in of_file):
            of_file = rows[name] = judge(path, name, checkpoints, minutes, trust)
            write_page(out, _page([*own, *chain(*rows.values())], options), command)
        if not sys.stderr.isatty():
            for row in of_file:
                print(f"{name}: {row.name} {row.status} ({row.seconds:.1f} s)", file=sys.stderr, flush=True)
    judged = (rows[path.relative_to(folder).as_posix()] for path in files if folder is not None)
    found = sorted([*own, *chain(*judged)], key=_place)
    write_page(out, _page(found, options), command)
    return found


def _place(row: BoardRow) -> tuple[int, float, int, str]:
    """Where a row stands: by what is known, by free numbers plus constants, and by free numbers."""
    known = 0 if row.proved else _ORDER.index(row.status)
    free = float("inf") if row.free is None else row.free
    return known, free + (row.constants or 0), row.free or 0, row.name


def _kept(path: Path, options: dict[str, object]) -> dict[str, list[BoardRow]]:
    """Rows of an earlier run with the same options and versions, by file."""
    value = page_data(path) if path.is_file() else None
    if value is None:
        return {}
    found: dict[str, list[BoardRow]] = {}
    try:
        if value["format"] != FORMAT or value["options"] != options or value["versions"] != versions():
            return {}
        for row in value["rows"]:
            if row["file"] != OWN:
                found.setdefault(row["file"], []).append(BoardRow.from_dict(row))
    except (KeyError, TypeError):
        raise UserError(f"{path} is not a page of a board; choose another --out, or remove it.") from None
    return found


def _data(rows: list[BoardRow], options: dict[str, object]) -> dict[str, object]:
    return {"format": FORMAT, "options": options, "versions": versions(), "rows": [row.to_dict() for row in rows]}


def to_dataframe(rows: list[BoardRow]) -> pd.DataFrame:
    """The rows as a table, in the order given."""
    return pd.DataFrame(
        [
            {
                "name": row.name,
                "author": row.author,
                "file": row.file,
                "family": row.family,
                "made": row.made,
                "stated": "" if row.stated is None else f"{row.stated:,}",
                "free": "" if row.free is None else f"{row.free:,}",
                "constants": "" if row.free is None else "?" if row.constants is None else f"{row.constants}",
                "distinct": "" if row.distinct is None else f"{row.distinct:,}",
                "bits": "" if row.bits is None else f"{row.bits:,}",
                "start": row.start,
                "on test": {True: "yes", False: "no", None: NOT_STATED}[row.on_test],
                "score": "" if row.n is None else f"{row.correct:,}/{row.n:,}",
                "verdict": _words(row),
                "margin": "" if row.margin is None else f"{row.margin:.3g}",
                "wrong pairs": "none" if row.wrong == "0" else row.share,
                "seconds": f"{row.seconds:.1f}" if row.seconds else "",
                "counterexample": "" if row.counterexample is None else " -> ".join(row.counterexample),
            }
            for row in rows
        ]
    )


def _words(row: BoardRow) -> str:
    if not row.proved:
        return "open" if row.status == "undecided" else row.status
    return f"proved {row.proved}" + ", open with rounding" * (row.status == "undecided")


def summary(rows: list[BoardRow]) -> str:
    """How many submissions there are per verdict and method, and the median CPU time of a verdict."""
    others = [row for row in rows if row.file != OWN]
    counts = Counter(row.status for row in others)
    certified = Counter(row.method for row in others if row.status == "certified")
    how = ", ".join(f"{n} by {method}" for method, n in certified.most_common())
    found = ", ".join(f"{counts[status]} {status}" + f" ({how})" * (status == "certified") for status in sorted(counts))
    over = sum(row.status == "undecided" and bool(row.proved) for row in others)
    found += f"; of the undecided, {over} are proved over the reals" * bool(over)
    seconds = [row.seconds for row in others if row.status != "unreadable"]
    took = f"; the median verdict took {statistics.median(seconds):.1f} CPU-seconds" if seconds else ""
    took += f", the longest {max(seconds):.1f}" if seconds else ""
    own = f"{len(rows) - len(others)} of this project" if len(others) < len(rows) else ""
    if not others:
        return own
    return f"{len(others)} public models: {found}{took}" + f"; next to {own}" * bool(own)


def _page(rows: list[BoardRow], options: dict[str, object]) -> Page:
    sections = [Section("By free numbers plus constants", f"{summary(rows)}.\n\n{_TEXT}")]
    for made, heading in _KINDS.items():
        if of_kind := sorted((row for row in rows if row.made == made), key=_place):
            sections.append(Section(heading, "", [to_dataframe(of_kind).drop(columns=["made", "family", "file"])]))
    notes = [
        {"name": row.name, "file": row.file, "family": row.family, "in words": " ".join((row.verdict, *row.remarks))}
        for row in rows
    ]
    sections.append(Section("Verdicts in words", "", [pd.DataFrame(notes)]))
    return Page("Adders of ten-digit numbers", sections, _data(rows, options))
