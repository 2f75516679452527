"""The stored table of ratios: one row a run of the benchmarks, next to the commit and the machine; :data:`PAGE` is made
from it.

Times differ from machine to machine, and from hour to hour; ratios of two things that are timed in turn differ little.
Each is "times faster than ...", so that a smaller number is a loss. ``make bench`` adds a row, and prints what fell by
more than a fifth against the last row that has the same ratio.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
TABLE = HERE / "ratios.json"
PAGE = HERE.parent / "docs" / "speed.md"
FALL = 0.2  # the share of a ratio whose loss is printed; repeated runs differ by less

Ratios = Mapping[str, float]
Row = dict[str, Any]


def middle(ratios: Iterable[float]) -> float:
    """The geometric mean: twice as fast and half as fast are as fast."""
    values = list(ratios)
    return math.exp(sum(map(math.log, values)) / len(values))


def stored(path: Path = TABLE) -> list[Row]:
    """The rows so far, oldest first."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def place() -> Row:
    """Where, when and of what a run measures; to be asked before it, as files may change meanwhile."""
    return {
        "date": date.today().isoformat(),
        "commit": commit(),
        "machine": f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__.partition('+')[0]}",
    }


def commit() -> str:
    """The commit of the working tree, with "+" where files differ from it; "unknown" without git."""
    run = lambda *words: subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)  # noqa: E731
    try:
        found = run("rev-parse", "--short=8", "HEAD")
        changed = run("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return "unknown"
    return found.stdout.strip() + "+" * bool(changed.stdout.strip()) if found.returncode == 0 else "unknown"


def processor() -> str:
    """The processor's name, as the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def last(name: str, rows: Iterable[Row]) -> tuple[float, Row] | None:
    """The newest ratio of this name, and its row."""
    return next(((row["ratios"][name], row) for row in reversed(list(rows)) if name in row["ratios"]), None)


def fallen(ratios: Ratios, rows: Iterable[Row]) -> list[str]:
    """A sentence for each ratio that fell by more than :data:`FALL` against the last row that has it."""
    rows, found = list(rows), []
    for name, ratio in ratios.items():
        before = last(name, rows)
        if before is not None and ratio < (1 - FALL) * before[0]:
            found.append(f"{name}: {before[0]:.3g} times at {before[1]['commit']}, and {ratio:.3g} now.")
    return found


def add(ratios: Ratios, at: Row, table: Path = TABLE, page: Path = PAGE) -> list[str]:
    """Append a row that was measured at this place, write the page again, and return what :func:`fallen` says."""
    rows = stored(table)
    lost = fallen(ratios, rows)
    rows.append(at | {"ratios": {name: float(f"{ratio:.3g}") for name, ratio in ratios.items()}})
    table.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")
    page.write_text(rendered(rows), "utf-8")
    return lost


def rendered(rows: list[Row]) -> str:
    """The page: the newest value of every ratio, with the one before it, and where each row was measured."""
    names = sorted({name for row in rows for name in row["ratios"]})
    lines = [
        "# Speed",
        "",
        "`make bench` measures each pair in turn, in one process, on one CPU thread, in CPU time. It writes this page",
        "and `benchmarks/ratios.json`, and prints the ratios that fell by more than a fifth. A number says how many",
        "times faster the first is than the second; below 1 it is slower.",
        "",
        "| what | times faster | before | measured at |",
        "| --- | --- | --- | --- |",
    ]
    for name in names:
        value, row = last(name, rows) or (math.nan, {})
        before = last(name, rows[: rows.index(row)])
        lines.append(f"| {name} | {value:.3g} | {'' if before is None else f'{before[0]:.3g}'} | `{row['commit']}` |")
    lines += ["", "| commit | date | machine |", "| --- | --- | --- |"]
    lines += [f"| `{row['commit']}` | {row['date']} | {row['machine']} |" for row in rows]
    return "\n".join(lines) + "\n"
