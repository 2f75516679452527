"""Everything again, or what is missing of it: ``python -m benchmarks.circuits.whole``.

Truths, rows, neurons, dictionaries (with the extra ``sae``), fresh subjects and the page, in about two hours on one
thread; the same command resumes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.circuits import page
from benchmarks.circuits.bench_runs import RESULTS, list_of_rows, make_truths, read_rows, run_rows, write_lines
from benchmarks.circuits.fresh import fresh_subjects
from benchmarks.circuits.latent_scores import LATENTS, run_latents
from benchmarks.circuits.statistics import BLIND
from benchmarks.circuits.subjects import SUBJECTS, stored_truths
from benchmarks.circuits.truth import CORRUPTED, ZERO
from benchmarks.circuits.unit_methods import UNITS, run_units

FRESH_SEED = 54


def main() -> None:
    torch.set_num_threads(1)
    say = lambda line: print(line, flush=True)  # noqa: E731
    if RESULTS.is_file() and {subject.name for subject in SUBJECTS} - stored_truths().keys():
        rows = read_rows(RESULTS)  # the blind prior of all subjects comes from the truths of others
        write_lines(RESULTS, list_of_rows(rows[rows["method"] != BLIND]))
    truths = make_truths(SUBJECTS, say=say)
    run_rows(SUBJECTS, truths, path=RESULTS, say=say)
    if not UNITS.is_file():
        write_lines(UNITS, list_of_rows(run_units(say=say)))
    if not LATENTS.is_file():
        write_lines(LATENTS, list_of_rows(run_latents(say=say)))
    if not page.FRESH.is_file():
        with tempfile.TemporaryDirectory() as folder:
            own = fresh_subjects(FRESH_SEED, Path(folder), say)
            judged = make_truths(own, (CORRUPTED, ZERO), False, None, say)
            rows = run_rows(own, judged, None, (CORRUPTED, ZERO), say=say, prior_from=truths)
        write_lines(page.FRESH, {"seed": FRESH_SEED, "truths": judged, "rows": list_of_rows(rows)}, 2)
    page.main()


if __name__ == "__main__":
    sys.exit(main())
