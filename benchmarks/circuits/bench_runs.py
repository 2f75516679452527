"""All methods on all subjects, subject by subject and resumable; and the table that ranks the methods.

Each subject has one file of JSON in the output folder: what is known of it, how stable that is, and one row per method
and draw. A second run adds what is missing, so that a new method alone is run.

In the table, a method's score on a model is its mean over the model's kinds of pairs and draws, and intervals (95%)
resample models. Two methods are compared on the models that both were run on, by random changes of sign of the models'
differences (two-sided), corrected for all pairs of methods and all scores (Holm). A method's *place* is one more than
the number of methods that are better than it by such a test.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.circuits.cases import KINDS, N_METHOD, N_TRUTH, TRUTH_SEED, Case, Subject, Truth, load, subjects
from benchmarks.circuits.circuit_methods import METHODS
from benchmarks.circuits.scores import BOUNDS, SCORES, score_ranking
from interp.causal.circuits import all_circuits, attribution_graph, circuit_json
from interp.core.results import Provenance, Result
from interp.core.stats import bootstrap_interval, holm
from models.errors import UserError, known_name
from models.files.checkpoint import write_json_atomic

DRAWS = 2
QUICK = ("microadder-57", "microadder-18", "adder-456")
OTHER_COLUMNS = (3, 7)
CONSTANTS = ("mean", "zero", "optimal")
#: Edges up to which the other draws and ablations are listed, for made carries and for other kinds: under zero ablation
#: the position embeddings' edges count too, and optimal ablation is a fit for each circuit.
MOST_EDGES = {"corrupted": 16, "mean": 16, "zero": 8, "optimal": 8}
MOST_EDGES_ELSE = {"corrupted": 8, "mean": 8, "zero": 8, "optimal": 0}
N_STABLE, _N_FITTED, _MOST_CONSTANT = 128, 64, 2**12
_FLIPS = 100_000  # so that the least p, corrected for a thousand comparisons, is 0.01


@dataclass(frozen=True, eq=False)
class Benchmark(Result):
    """``rows``: one per subject, method and draw, with its scores and cost. ``truths``: one per subject. ``others``:
    the minimal circuits of other draws of pairs, of other columns and under other ablations, one row each."""

    rows: pd.DataFrame
    truths: pd.DataFrame
    others: pd.DataFrame
    provenance: Provenance

    def by_model(self, score: str) -> pd.DataFrame:
        """The score of each method (columns) on each model (rows)."""
        known_name("score", score, (*SCORES, "forwards", "backwards"))
        return self.rows.pivot_table(score, "model", "method", "mean", sort=False)

    def table(self, score: str = "auroc") -> pd.DataFrame:
        """One row per method, the best first: ``value`` with ``low`` and ``high``, ``place`` and ``models``."""
        wide = self.by_model(score)
        places = self.places.get(score, {})
        rows = []
        for name in wide:
            values = wide[name].dropna().to_numpy()
            low, high = bootstrap_interval(values, 0, bounds=BOUNDS.get(score))
            rows.append((name, values.mean(), float(low), float(high), places.get(name, 1), len(values)))
        table = pd.DataFrame(rows, columns=["method", "value", "low", "high", "place", "models"])
        return table.sort_values("value", ascending=not SCORES.get(score, False), ignore_index=True)

    @cached_property
    def compared(self) -> pd.DataFrame:
        """One row per score and pair of methods: the mean difference over their models, and its corrected p-value."""
        rows = []
        for score in SCORES:
            wide = self.by_model(score) if self.rows[score].notna().any() else pd.DataFrame()
            for one, other in combinations(wide, 2):
                change = (wide[one] - wide[other]).dropna().to_numpy()
                if len(change) > 1:
                    rows.append((score, one, other, change.mean(), sign_flip_p(change), len(change)))
        table = pd.DataFrame(rows, columns=["score", "one", "other", "difference", "p", "models"])
        return table.assign(p_corrected=holm(table["p"].tolist()))

    @cached_property
    def places(self) -> dict[str, dict[str, int]]:
        """Score -> method -> 1 + the number of methods that are better by the corrected test."""
        found = {score: dict.fromkeys(self.rows["method"].unique(), 1) for score in SCORES}
        for row in self.compared.itertuples():
            if row.p_corrected < 0.05:
                better = row.one if (row.difference > 0) == SCORES[row.score] else row.other
                found[row.score][row.other if better == row.one else row.one] += 1
        return found

    def sentence(self) -> str:
        unique = self.truths["unique"].sum()
        first = self.table("auroc") if self.rows["auroc"].notna().any() else self.table("cmd")
        best, control = first.iloc[0], first[first["method"] == "random"]
        equal = first.loc[(first["value"] - best.value).abs() < 0.005, "method"].tolist()  # as printed
        said = (
            f"{self.rows['model'].nunique()} proved models, {len(self.truths)} subjects, "
            f"{self.rows['method'].nunique()} methods: {unique} subjects have exactly one minimal circuit. In telling "
            f"its edges from others, the best {'are' if len(equal) > 1 else 'is'} {', '.join(equal)} ({best.value:.2f} "
            f"[{best.low:.2f}, {best.high:.2f}])"
        )
        if len(control):
            row = control.iloc[0]
            said += f"; random scores have {row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"
        return said + "."

    def summary(self) -> pd.DataFrame:
        """One row per method: each score's mean, and the passes."""
        columns = {score: self.by_model(score).mean() for score in (*SCORES, "forwards", "backwards")}
        return pd.DataFrame(columns).sort_values("auroc", ascending=False).reset_index(names="method").round(3)

    def to_dataframe(self) -> pd.DataFrame:
        """One row per method: each score with its interval and place, and the cost."""
        frames = []
        for score in SCORES:
            if self.rows[score].notna().any():
                table = self.table(score).set_index("method")
                frames.append(table.rename(columns=lambda name, score=score: f"{score} {name}"))
        cost = self.rows.groupby("method")[["forwards", "backwards"]].mean()
        return pd.concat([*frames, cost], axis=1).reset_index(names="method")


def sign_flip_p(change: np.ndarray, seed: int = 0) -> float:
    """How often random signs give a mean at least as far from zero; all signs where there are few, else a sample."""
    n = len(change)
    if n <= 13:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
        return float((np.abs(signs @ change) >= abs(change.sum()) - 1e-12).mean())
    signs = _signs(n, seed)
    return float((1 + (np.abs(signs @ change) >= abs(change.sum()) - 1e-12).sum()) / (_FLIPS + 1))


@cache
def _signs(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice((-1.0, 1.0), size=(_FLIPS, n))


def run_benchmark(
    out: Path | str,
    *,
    only: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    draws: int = DRAWS,
    quick: bool = False,
    minutes: float | None = None,
    say: Callable[[str], None] | None = None,
) -> Benchmark | None:
    """Run what is not in ``out`` yet, and read all of it.

    Args:
        out: a folder, one file per subject.
        only: models by name or path; default all that are proved. Certify your own first (``interp certify``).
        methods: default all that are registered.
        minutes: stop after this time, with what is done kept, and give None; the same call goes on.
        say: told of each subject.
        quick: three small models and one draw, without the other draws and ablations: two minutes.

    Raises:
        UserError: an unknown method, no subject, or a folder that was made with other settings.
    """
    for name in methods or ():
        known_name("method", name, METHODS)
    if draws < 1:
        raise UserError(f"draws must be at least 1, not {draws}.")
    wanted, draws = list(methods or METHODS), 1 if quick else draws
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    asked = sorted(subjects(list(only) if only else list(QUICK) if quick else None), key=_kind)
    if not asked:
        raise UserError("None of these models has pairs that differ in a carry, a digit or the answer.")
    began = time.monotonic()
    for i, subject in enumerate(asked):
        if minutes is not None and time.monotonic() - began > 60 * minutes:
            return None
        start = time.monotonic()
        _run_subject(folder / f"{subject.name}.json", subject, wanted, draws, others=not quick and methods is None)
        if say is not None:
            spent = time.monotonic() - start
            say(f"{i + 1} of {len(asked)}: {subject.model}, {subject.kind} ({spent:.0f} s)")
    return read_benchmark([folder / f"{subject.name}.json" for subject in asked])


def _kind(subject: Subject) -> int:
    return KINDS.index(subject.kind)


def read_benchmark(files: Iterable[Path]) -> Benchmark:
    """The benchmark from the files of its subjects."""
    return from_records([json.loads(path.read_text(encoding="utf-8")) for path in files])


def from_records(records: Sequence[dict[str, Any]]) -> Benchmark:
    """The benchmark from what the files hold."""
    if not records:
        raise UserError("There is no result of a benchmark.")
    parts: dict[str, list[Any]] = {"rows": [], "others": [], "truths": []}
    for record in records:
        named = {"model": record["truth"]["model"], "kind": record["truth"]["kind"]}
        parts["truths"].append(record["truth"])
        for part in ("rows", "others"):
            parts[part] += [named | row for row in record[part]]
    frames = {name: pd.DataFrame(rows) for name, rows in parts.items()}
    frames["rows"] = frames["rows"].replace({None: np.nan})
    n = frames["truths"]["model"].nunique()
    return Benchmark(**frames, provenance=Provenance(n, TRUTH_SEED, "proved models of the zoo"))


def _run_subject(path: Path, subject: Subject, methods: Sequence[str], draws: int, others: bool) -> None:
    """Add to a subject's file what it lacks."""
    settings = {"n_truth": N_TRUTH, "n_method": N_METHOD, "seed": TRUTH_SEED}
    record: dict[str, Any] = {"settings": settings, "truth": None, "rows": [], "others": []}
    if path.is_file():
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["settings"] != settings:
            raise UserError(f"{path} was made with other settings ({record['settings']}); give another folder.")
    have = {(row["method"], row["draw"]) for row in record["rows"]}
    model = load(subject.model)
    truth = None
    if record["truth"] is None:
        truth = Truth.of(subject, model)
        record["truth"] = _known(truth)
    live = record["truth"]["live_edges"]
    for name, draw in product(methods, range(draws)):
        if (name, draw) in have or not METHODS[name].suits(live, draw, subject.kind):
            continue
        truth = truth or Truth.again(subject, model, record["truth"])
        case = Case(model, subject.pairs(model.task, N_METHOD, draw), draw)
        start = time.process_time()
        scores = METHODS[name].function(case).double().cpu().numpy()
        forwards, backwards = case.passes
        cost = {"forwards": forwards, "backwards": backwards, "seconds": time.process_time() - start}
        found = score_ranking(truth, scores, draw) | cost
        record["rows"].append({"method": name, "draw": draw} | {k: _plain(v) for k, v in found.items()})
    if others and not record["others"]:
        record["others"] = list(_others(subject, model, live))
    write_json_atomic(path, record)


def _plain(value: float) -> float | None:
    return None if not np.isfinite(value) else round(float(value), 6)


def _known(truth: Truth) -> dict[str, Any]:
    found = truth.found
    assert found is not None
    smallest = found.minimal[0] if found.minimal else ()
    return {
        "model": truth.subject.model,
        "kind": truth.subject.kind,
        "what": found.what,
        "live_edges": int(truth.live.sum()),
        "circuits": len(found.masks),
        "complete": found.complete,
        "unique": found.unique,
        "smallest": truth.smallest,
        "minimal": [list(names) for names in found.minimal[:8]],
        "n_minimal": len(found.minimal),
        "faithful": int(found.faithful().sum()),
        "faithful_by_logits": int((found.scores[0] >= found.threshold).sum()),
        "faithful_by_answers": int((found.scores[1] >= found.threshold).sum()),
        "stable_resampled": found.stable(),
        "stable_other_half": found.stable("the other half of the pairs"),
        "stable_thresholds": found.stable("other thresholds"),
        "same_function": found.same_function,
        "mib": circuit_json(truth.experiment, smallest, truth.exact),
        "attribution_graph": attribution_graph(
            truth.experiment, smallest, truth.exact, truth.subject.name, truth.subject.model
        ),
    }


def _others(subject: Subject, model: Any, live: int) -> Iterable[dict[str, Any]]:
    """The minimal circuits of two other draws, of two other columns, and under other ablations."""
    asked: list[tuple[str, str, int, int | None]] = [("draw", "corrupted", seed, None) for seed in (1, 2)]
    asked += [("column", "corrupted", 0, column) for column in OTHER_COLUMNS]
    asked += [("ablation", kind, 0, None) for kind in CONSTANTS]
    for over, kind, seed, column in asked:
        if live > (MOST_EDGES if subject.kind == KINDS[0] else MOST_EDGES_ELSE)[kind]:
            continue
        n = _N_FITTED if kind == "optimal" else N_STABLE
        try:
            pairs = subject.pairs(model.task, n, TRUTH_SEED + seed, column)
        except UserError:
            continue
        found = all_circuits(model, pairs, replacement=kind, most=_MOST_CONSTANT, bound=False)
        yield {
            "over": over,
            "replacement": kind,
            "which": str(seed if column is None else column) if over != "ablation" else kind,
            "complete": found.complete,
            "size": found.size,
            "unique": found.unique,
            "n_minimal": len(found.minimal),
            "minimal": [list(names) for names in found.minimal[:8]],
            "same_function": found.same_function,
            "stable_resampled": found.stable(),
            "stable_other_half": found.stable("the other half of the pairs"),
        }
