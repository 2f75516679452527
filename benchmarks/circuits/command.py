"""``python -m benchmarks.circuits``: methods that find circuits, on models whose circuits are all known."""

from __future__ import annotations

import json as json_text
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from interp.cli.commands import Program
from interp.cli.shared_options import Json, one_thread

if TYPE_CHECKING:
    import pandas as pd


def bench(
    runs: Path = Path("runs/bench"),
    every: bool = False,
    methods: tuple[str, ...] = (),
    fresh: int | None = None,
    release: Path | None = None,
    json: Json = None,
) -> None:
    """Score methods that find circuits, on a third of the subjects; what is stored of other methods is shown beside.

    A method of your own is a file of twenty lines: ``python -m benchmarks.circuits --from my_method.py``.

    Args:
        runs: A folder for what was computed so far.
        every: All subjects and ablations: up to an hour for a new method.
        methods: Only these methods.
        fresh: Also subjects that are made from this seed, and judged on the fly: some minutes.
        release: Write all subjects as files with their truth into this folder, and stop.
    """
    from benchmarks.circuits import METHODS
    from benchmarks.circuits.bench_runs import RESULTS, RUN, make_truths, run_rows
    from benchmarks.circuits.fresh import fresh_subjects
    from benchmarks.circuits.subjects import SUBJECTS, quick, stored_truths, write_release
    from benchmarks.circuits.truth import CORRUPTED, ZERO

    one_thread()
    if release is not None:
        write_release(release)
        return
    runs.mkdir(parents=True, exist_ok=True)
    rows_file, wanted = runs / "rows.json", list(methods or METHODS)
    if not rows_file.exists() and RESULTS.exists():
        shutil.copy(RESULTS, rows_file)
    subjects, truths = list(SUBJECTS) if every else quick(), stored_truths()
    rows = run_rows(subjects, truths, wanted, RUN if every else (CORRUPTED,), rows_file, say=lambda line: None)
    names = [subject.name for subject in subjects]
    tables = {"stored subjects": table_of(rows[rows["subject"].isin(names) & rows["method"].isin(wanted)], truths)}
    if fresh is not None:
        own = fresh_subjects(fresh, runs / "models")
        judged = make_truths(own, (CORRUPTED, ZERO), False, runs / f"fresh-{fresh}-truth.json")
        found = run_rows(own, judged, wanted, (CORRUPTED, ZERO), runs / f"fresh-{fresh}.json", prior_from=truths)
        tables[f"fresh subjects of seed {fresh}"] = table_of(found, judged)
    for title, table in tables.items():
        short = table.map(lambda value: round(value, 2) if isinstance(value, float) else value)
        print(f"\n{title}\n{short.to_string(index=False)}")
    if json is not None:
        Path(json).write_text(json_text.dumps({title: table.to_dict("records") for title, table in tables.items()}))


def table_of(rows: pd.DataFrame, truths: dict) -> pd.DataFrame:
    """One row per method: AUROC with its interval, whether that is above the controls, other scores, and the cost."""
    import pandas as pd

    from benchmarks.circuits.statistics import BLIND, BOTH, compared, family_mean, scored, side, wide

    table = wide(rows, truths, "auroc")
    found = scored(table).rename(columns={"value": "auroc"})
    for control in (BLIND, BOTH):
        if control in table:
            found[f"against {control}"] = [
                "" if name == control else side(compared(table, name, control)) for name in found["method"]
            ]
    more = {score: family_mean(wide(rows, truths, score)) for score in ("precision", "regret", "cmd", "cpr")}
    planted = wide(rows, truths, "planted", "")
    if len(planted):
        more["planted"] = family_mean(planted)
    more["passes"] = (
        rows[rows["ablation"] == "corrupted"].groupby("method")[["forwards", "backwards"]].mean().sum(axis=1)
    )
    return found.merge(pd.DataFrame(more), left_on="method", right_index=True, how="left").sort_values(
        "auroc", ascending=False
    )


PROGRAM = Program(
    "python -m benchmarks.circuits",
    "benchmarks.circuits",
    (("command:bench", "bench", "score methods that find circuits"),),
    "bench",
)
