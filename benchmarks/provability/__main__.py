"""Certify the ordinary models, each in a process of its own, and print how many of them get a verdict.

    python -m benchmarks.provability [NAMES ...] [--minutes 5] [--label now] [--again]

What was found is kept in ``results.json`` by label, name after name, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.circuits.result_tables import markdown
from benchmarks.provability.ordinary_models import MODELS, ORDINARY
from models.files.checkpoint import write_json_atomic

RESULTS = Path(__file__).parent / "results.json"
MEMORY = 8 << 30  # bytes of address space
GRACE = 60  # seconds that a process may take beyond the minutes of its proof: imports, sampling, the end of a step


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def judged_apart(name: str, minutes: float) -> dict[str, Any]:
    """What :func:`benchmarks.provability.judge.judged` finds, in a process with limits of time and memory."""
    command = [sys.executable, "-m", "benchmarks.provability.judge", name, str(minutes)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60 * minutes + GRACE, preexec_fn=_limited)
    except subprocess.TimeoutExpired:
        return {"status": "killed", "said": "It did not end with its time.", "minutes": minutes}
    if run.returncode:
        said = (run.stderr.strip().splitlines() or ["?"])[-1]
        return {"status": "failed", "said": said[:300], "minutes": minutes}
    return json.loads(run.stdout.strip().splitlines()[-1])


#: (title, what it is called in the results, how it is written)
SHOWN = (
    ("status", "status", "{}"),
    ("proved margin", "proved_margin", "{:.3g}"),
    ("classes proved", "share", "{:.1%}"),
    ("CPU-s", "cpu_seconds", "{:.1f}"),
)


def _number(value: Any, text: str = "{:.3g}") -> str:
    return "" if value is None or value != value else text.format(value)


def table(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """A Markdown table with a row for each model. Every label has columns for the status, the least proved margin, the
    share of classes that are proved, and the CPU-seconds."""
    rows, said = [], []
    for name in (recipe.name for recipe in ORDINARY):
        own = {label: found[name] for label, found in results.items() if name in found}
        row = {"model": name, "least margin sampled": _number(next(iter(own.values()), {}).get("margin"))}
        for label, one in own.items():
            row |= {f"{label}: {title}": _number(one.get(key), text) for title, key, text in SHOWN}
            if one["status"] != "certified":
                said.append(f"* {name} ({label}, {one['status']}): {one['said']}")
        rows += [row] if own else []
    for label, found in results.items():
        sure = sum(one["status"] in ("certified", "refuted") for one in found.values())
        said.append(f"{label}: {sure} of {len(found)} have a verdict.")
    return "\n".join([markdown(pd.DataFrame(rows).fillna("")), "", *said])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; by default all that are trained")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each model")
    parser.add_argument("--label", default="now", help="under which the results are kept")
    parser.add_argument("--again", action="store_true", help="also those that have a result under this label")
    asked = parser.parse_args()
    trained = [recipe.name for recipe in ORDINARY if (MODELS / recipe.name / "checkpoint.json").exists()]
    if unknown := set(asked.names) - set(trained):
        parser.error(f"{', '.join(sorted(unknown))} is not trained; there is {', '.join(trained)}.")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    own = results.setdefault(asked.label, {})
    for name in asked.names or trained:
        if asked.again or name not in own:
            own[name] = judged_apart(name, asked.minutes)
            print(f"{name}: {own[name]['status']}", file=sys.stderr, flush=True)
            write_json_atomic(RESULTS, results)
    print(table(results))


if __name__ == "__main__":
    main()
