"""The page of ``interp board``: what :mod:`interp.compare.board_verdicts` found out about each submission."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from interp.compare.board_verdicts import BoardRow, judge, submissions
from interp.core.sections import Page, Section
from interp.proofs.verdict import versions
from interp.site.pages.document import page_data
from interp.site.pages.page_file import write_page
from models.checkpoint import sha256
from models.errors import UserError

FORMAT = 1
_TEXT = """Each file was run in a process of its own, without network and with limits on its time and memory. The model
with its weights, in this project's transformer, has the logits of the file's own forward pass and its answers to some
dozen pairs (compared before anything else is done).

"Stated" is the author's count, "free" the numbers that the file's model holds as parameters. The score is on the
board's 10,010 problems, decoded greedily. A verdict is on all 10^20 pairs of ten-digit numbers: "certified" is proved,
or run in every class of inputs that there is; "refuted" has a pair that the model, decoding greedily, gets wrong;
"undecided" is neither. Seconds are of one processor, for the verdict."""


def board(
    folder: Path,
    out: Path,
    checkpoints: Path | None = None,
    minutes: float | None = None,
    fresh: bool = False,
    trust: bool = False,
) -> list[BoardRow]:
    """Judge every submission in a folder, which are programs that are run, and write the page ``out`` (HTML), with its
    data inside.

    A row made from the same text with the same options is taken from the page of an earlier run. Each new row is
    stored at once.

    Raises:
        UserError: no ``trust``, no submissions, or a page that this package did not write.
    """
    files = submissions(folder)
    if not trust:
        raise UserError(
            f"The {len(files)} submissions in {folder} are programs, which have to be run to be judged; that needs "
            "trust=True (--trust on the command line)."
        )
    if out.suffix != ".html":
        raise UserError(f"The page is an .html file, not {out}.")
    options = {"checkpoints": None if checkpoints is None else str(checkpoints), "minutes": minutes}
    kept = {} if fresh else _kept(out, options)
    rows: dict[str, BoardRow] = dict(kept)  # what is not reached before an interruption stays on the page
    for path in (bar := tqdm(files, unit="file", disable=not sys.stderr.isatty())):
        name = path.relative_to(folder).as_posix()
        bar.set_description(name)
        row = kept.get(name)
        if row is None or row.sha256 != sha256(path.read_bytes()):
            row = rows[name] = judge(path, name, checkpoints, minutes)
            write_page(out, _page(list(rows.values()), options), f"interp board {folder}")
        if not sys.stderr.isatty():
            print(f"{name}: {row.status} ({row.seconds:.1f} s)", file=sys.stderr, flush=True)
    found = [rows[path.relative_to(folder).as_posix()] for path in files]
    write_page(out, _page(found, options), f"interp board {folder}")
    return found


def _kept(path: Path, options: dict[str, object]) -> dict[str, BoardRow]:
    """Rows of an earlier run with the same options and versions, by file."""
    value = page_data(path) if path.is_file() else None
    if value is None:
        return {}
    try:
        if value["format"] != FORMAT or value["options"] != options or value["versions"] != versions():
            return {}
        return {row["file"]: BoardRow.from_dict(row) for row in value["rows"]}
    except (KeyError, TypeError):
        raise UserError(f"{path} is not a page of a board; choose another --out, or remove it.") from None


def _data(rows: list[BoardRow], options: dict[str, object]) -> dict[str, object]:
    return {"format": FORMAT, "options": options, "versions": versions(), "rows": [row.to_dict() for row in rows]}


def to_dataframe(rows: list[BoardRow]) -> pd.DataFrame:
    """The rows as a table."""
    return pd.DataFrame(
        [
            {
                "file": row.file,
                "family": row.family,
                "stated": row.stated,
                "free": row.free,
                "bits": row.bits,
                "score": "" if row.n is None else f"{row.correct:,}/{row.n:,}",
                "verdict": row.status,
                "wrong of 10^20": row.wrong or "",
                "margin": None if row.margin is None else float(f"{row.margin:.3g}"),
                "counterexample": "" if row.counterexample is None else " -> ".join(row.counterexample),
                "seconds": round(row.seconds, 1),
            }
            for row in rows
        ]
    )


def summary(rows: list[BoardRow]) -> str:
    """How many submissions there are per verdict and method, and the median CPU time of a verdict."""
    counts = Counter(row.status for row in rows)
    certified = Counter(row.method for row in rows if row.status == "certified")
    how = ", ".join(f"{n} by {method}" for method, n in certified.most_common())
    found = ", ".join(f"{counts[status]} {status}" + f" ({how})" * (status == "certified") for status in sorted(counts))
    seconds = [row.seconds for row in rows if row.status != "unreadable"]
    took = f"; the median verdict took {statistics.median(seconds):.1f} CPU-seconds" if seconds else ""
    return f"{len(rows)} submissions: {found}{took}"


def _page(rows: list[BoardRow], options: dict[str, object]) -> Page:
    sections = [Section(summary(rows), _TEXT, [to_dataframe(rows)])]
    notes = pd.DataFrame(
        [{"file": row.file, "verdict in words": " ".join((row.verdict, *row.remarks))} for row in rows]
    )
    sections.append(Section("Verdicts in words", "", [notes]))
    return Page("Public AdderBoard submissions", sections, _data(rows, options))
