"""All methods on all subjects, resumable: one file of truths and one of rows.

A row is one subject, ablation and method, with its scores and its cost in passes over the pairs. Methods are judged
under the ablation that they were given. The blind prior of a subject comes from the minimal circuits, under the same
ablation, of all *other* families.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.circuits.cases import Case, role
from benchmarks.circuits.circuit_methods import METHODS
from benchmarks.circuits.scores import SCORES, score_ranking
from benchmarks.circuits.subjects import TRUTH, Subject, pairs_hash, weights_hash
from benchmarks.circuits.truth import ABLATIONS, CORRUPTED, MEAN, ZERO, Truth, certified, sides_of, truth_of
from models.errors import UserError, known_name
from models.files.checkpoint import write_bytes_atomic

RESULTS = TRUTH.with_name("results.json")
#: Methods are run under these. Of "optimal", whose constants are fitted to a circuit, they see means.
RUN = (CORRUPTED, MEAN, ZERO)
COLUMNS = ("subject", "ablation", "method", *SCORES, "forwards", "backwards", "edges")


def make_truths(
    subjects: Sequence[Subject],
    ablations: Sequence[str] = ABLATIONS,
    proofs: bool = True,
    path: Path | None = TRUTH,
    say: Callable[[str], None] = print,
) -> dict[str, dict[str, Any]]:
    """What is known of these subjects; what a file has already is kept."""
    found = json.loads(path.read_text(encoding="utf-8")) if path is not None and path.is_file() else {}

    def keep(subject: Subject, start: float) -> None:
        if path is not None:
            write_lines(path, found)
        say(f"{subject.name}: {time.process_time() - start:.0f} s")

    for subject in subjects:
        if subject.name not in found:
            start = time.process_time()
            found[subject.name] = truth_of(subject, tuple(ablations))
            keep(subject, start)
    for subject in subjects:
        if proofs and "certified" not in found[subject.name]:
            start = time.process_time()
            found[subject.name]["certified"] = certified(subject)
            keep(subject, start)
    return found


def require_frozen(subject: Subject, entry: Mapping[str, Any]) -> None:
    """Raises UserError if a model or its pairs are not those whose truth is stored."""
    if weights_hash(subject.model) != entry["weights"]:
        raise UserError(f"{subject.name} has other weights than those whose circuits are stored.")
    if pairs_hash(subject.pairs(64, 10_000)) != entry["pairs"]:
        raise UserError(f"{subject.name} has other pairs than those on which its circuits were judged.")


def prior_of(truths: Mapping[str, Mapping[str, Any]], family: str, ablation: str) -> dict[str, tuple[float, float]]:
    """Role -> (how often inside, how often judged) over all subjects of other families, which count the same each."""
    inside: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    of_family: dict[str, list[tuple[int, tuple[set[str], set[str]]]]] = defaultdict(list)
    for entry in truths.values():
        known = entry["ablations"].get(ablation, {})
        sides = sides_of(known, known.get("live_edges", ()))
        if entry["family"] != family and sides is not None:
            of_family[entry["family"]].append((entry["layers"], sides))
    for subjects in of_family.values():
        for layers, sides in subjects:
            for edge in set.union(*sides):
                cell = inside[role(edge, layers)]
                cell[0] += (edge in sides[0]) / len(subjects)
                cell[1] += 1 / len(subjects)
    return {name: (one, of) for name, (one, of) in inside.items()}


def run_rows(
    subjects: Sequence[Subject],
    truths: Mapping[str, Mapping[str, Any]],
    methods: Sequence[str] | None = None,
    ablations: Sequence[str] = RUN,
    path: Path | None = None,
    say: Callable[[str], None] = print,
    prior_from: Mapping[str, Mapping[str, Any]] | None = None,
) -> pd.DataFrame:
    """One row per subject, ablation and method; rows that a file has are kept."""
    wanted = list(methods or METHODS)
    for name in wanted:
        known_name("method", name, METHODS)
    rows = read_rows(path) if path is not None and path.is_file() else pd.DataFrame(columns=list(COLUMNS))
    have = {tuple(row) for row in rows[["subject", "ablation", "method"]].to_numpy()}
    priors: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for subject in subjects:
        entry, start, added = truths[subject.name], time.process_time(), []
        todo = [(a, m) for a in ablations for m in wanted if (subject.name, a, m) not in have]
        todo = [(a, m) for a, m in todo if _judged(entry, a)]
        if not todo:
            continue
        require_frozen(subject, entry)
        judges: dict[str, Truth] = {}
        for ablation, name in todo:
            if ablation not in judges:
                judges[ablation] = Truth(subject, ablation, entry)
            truth, chosen = judges[ablation], METHODS[name]
            live = int(truth.live.sum())
            if not chosen.suits(ablation, live):
                continue
            key = subject.family, ablation
            if key not in priors:
                priors[key] = prior_of(prior_from or truths, *key)
            case = Case(subject, ablation, 0, priors[key])
            scores = case.scored(chosen.function(case)).numpy()
            forwards, backwards = case.passes
            found = score_ranking(truth, scores)
            added.append((subject.name, ablation, name, *(found[score] for score in SCORES), forwards, backwards, live))
        if added:
            rows = pd.concat([rows, pd.DataFrame(added, columns=list(COLUMNS))], ignore_index=True)
        if path is not None:
            write_lines(path, list_of_rows(rows))
        say(f"{subject.name}: {time.process_time() - start:.1f} s")
    return rows


def _judged(entry: Mapping[str, Any], ablation: str) -> bool:
    """Whether a subject's circuits under an ablation are known; of corrupted ablation bounds and curves are enough."""
    known = entry["ablations"].get(ablation, {"refused": ""})
    planted = (entry["planted"] or {}).get("replacement") == ablation
    return "refused" not in known and (ablation == CORRUPTED or known["complete"] or planted)


def list_of_rows(rows: pd.DataFrame) -> list[list[Any]]:
    """The columns' names and the rows, as JSON keeps them: numbers with four decimals."""
    return [list(rows.columns), *([_plain(value) for value in row] for row in rows.to_numpy())]


def rows_of_list(table: Sequence[Sequence[Any]]) -> pd.DataFrame:
    frame = pd.DataFrame(table[1:], columns=list(table[0]))
    for name in frame.columns.difference(["subject", "ablation", "method", "dictionary"]):
        frame[name] = pd.to_numeric(frame[name])
    return frame


def read_rows(path: Path) -> pd.DataFrame:
    return rows_of_list(json.loads(path.read_text(encoding="utf-8")))


def write_lines(path: Path, value: Any, depth: int = 1) -> None:
    """JSON with a line for each of the parts at a depth, written atomically."""

    def lined(value: Any, depth: int) -> str:
        if not depth or not isinstance(value, (dict, list)):
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        if isinstance(value, dict):
            ends, parts = "{}", [f"{json.dumps(name)}: {lined(part, depth - 1)}" for name, part in value.items()]
        else:
            ends, parts = "[]", [lined(part, depth - 1) for part in value]
        return ends[0] + "\n" + ",\n".join(parts) + "\n" + ends[1]

    write_bytes_atomic(path, (lined(value, depth) + "\n").encode())


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    number = round(float(value), 4)
    return None if not np.isfinite(number) else int(number) if number.is_integer() else number
