"""Everything again, or what is missing of it: ``python -m benchmarks.circuits.whole``.

Truths, rows, neurons, dictionaries (with the extra ``sae``), fresh subjects and the page, in about two hours on one
thread; the same command resumes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from benchmarks.circuits import METHODS, page
from benchmarks.circuits.bench_runs import (
    RESULTS,
    list_of_rows,
    make_truths,
    read_rows,
    rows_of_list,
    run_rows,
    write_lines,
)
from benchmarks.circuits.fresh import fresh_subjects
from benchmarks.circuits.latent_scores import LATENTS, run_latents
from benchmarks.circuits.statistics import BLIND, BOTH
from benchmarks.circuits.subjects import SUBJECTS, stored_truths
from benchmarks.circuits.truth import CORRUPTED, ZERO
from benchmarks.circuits.unit_methods import UNITS, run_units

FRESH_SEED = 54


def main() -> None:
    torch.set_num_threads(1)
    say = lambda line: print(line, flush=True)  # noqa: E731
    if RESULTS.is_file() and {subject.name for subject in SUBJECTS} - stored_truths().keys():
        rows = read_rows(RESULTS)  # the blind prior, also in the other, comes from the truths of others
        write_lines(RESULTS, list_of_rows(rows[~rows["method"].isin([BLIND, BOTH])]))
    truths = make_truths(SUBJECTS, say=say)
    run_rows(SUBJECTS, truths, path=RESULTS, say=say)
    if not UNITS.is_file():
        write_lines(UNITS, list_of_rows(run_units(say=say)))
    if not LATENTS.is_file():
        write_lines(LATENTS, list_of_rows(run_latents(say=say)))
    run_fresh(truths, say)
    page.main()


def run_fresh(truths: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """The fresh subjects and their rows; where a method has none yet, the subjects are made again for its rows."""
    old = json.loads(page.FRESH.read_text(encoding="utf-8")) if page.FRESH.is_file() else None
    parts = [] if old is None else [rows_of_list(old["rows"])]
    wanted = [name for name in METHODS if not parts or name not in parts[0]["method"].unique()]
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as folder:
        own = fresh_subjects(FRESH_SEED, Path(folder), say)
        judged = make_truths(own, (CORRUPTED, ZERO), False, None, say) if old is None else old["truths"]
        parts.append(run_rows(own, judged, wanted, (CORRUPTED, ZERO), say=say, prior_from=truths))
    rows = pd.concat(parts, ignore_index=True)
    write_lines(page.FRESH, {"seed": FRESH_SEED, "truths": judged, "rows": list_of_rows(rows)}, 2)


if __name__ == "__main__":
    sys.exit(main())
