"""Verdicts on small public adders, each next to the sampling that would be needed for the same statement.

With ``BOARD=FOLDER`` in the environment, the submissions and numbers of a folder are judged (programs are run);
otherwise this project's smallest adders. No file may take more than a minute of CPU time, and half of them at most five
seconds.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import time
from pathlib import Path

import torch

import models
from studies.adderboard.board_rows import BoardRow, judge, submissions, verdict_row

NAMES = (
    "arc-decoder-16",
    "arc-decoder-15",
    "microadder-10",
    "microadder-11",
    "microadder-18",
    "microadder-22",
    "microadder-57",
    "adder-456",
)
LONGEST, MEDIAN = 60.0, 5.0  # seconds of CPU time
PAIRS, YEAR = 1e20, 365.25 * 86400


def main() -> None:
    folder = os.environ.get("BOARD")
    if folder:
        rows = [row for path in submissions(Path(folder)) for row in judge(path, path.name, minutes=1.0)]
        rows = [row for row in rows if row.status != "unreadable"]
    else:
        rows = [verdict_row(models.load(name), name, minutes=1.0) for name in NAMES]
    for row in rows:
        rate = (row.n or 0) / max(row.scoring, 1e-9)
        print(f"{row.name[:28]:28s} {row.status:10s} CPU {row.seconds:5.1f} s; {sampling(row, rate)}")
    seconds = [row.seconds for row in rows]
    print(
        f"longest {max(seconds):.1f} s (at most {LONGEST:g} s), median {statistics.median(seconds):.1f} s "
        f"(at most {MEDIAN:g} s), {len(rows)} models, {torch.get_num_threads()} thread"
    )


def sampling(row: BoardRow, rate: float) -> str:
    """What running pairs at ``rate`` a second would take for the same statement."""
    everything = f"all 10^20 pairs at {rate:,.0f} a second: {PAIRS / rate / YEAR / 1e6:,.0f} million years"
    share = re.search(r"exactly ([\d.]+)(%?)", row.share)
    if row.status == "refuted" and share is not None:
        wrong = float(share[1]) / (100 if share[2] else 1)
        first = math.log(0.05) / math.log1p(-wrong)
        return f"a wrong pair in 95% of samples of {first:,.0f} ({first / rate:.1f} s), its exact share: {everything}"
    if row.proved:
        hours = 3e9 / rate / 3600
        return f"{everything}; a rate of errors below 10^-9, with 95%: {hours:.0f} hours"
    return f"no statement on all pairs is made; {everything}"


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"{time.perf_counter() - start:.0f} s in all")
