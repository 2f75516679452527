"""The curves of all seeds that zoo entries and run folders store, as one table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from interp.core.results import Provenance
from models.errors import UserError
from models.files import parse_weights, read_json
from models.registry import get_spec
from models.tasks import NoDomain
from models.training import MEASURED, RunFolder
from models.zoo import entry_file, read_entry


@dataclass(frozen=True, eq=False)
class StoredCurves:
    """One model's curves: a Dataset over (model, seed, step), the measure in which its seeds are compared, and what a
    value rests on; by model the seed that is stored, which seeds answer the whole test set, and the model near which
    all began, where that is known."""

    table: xr.Dataset
    what: str
    provenance: Provenance
    chosen: Mapping[str, int] = field(default_factory=dict)
    on_test: Mapping[str, Mapping[int, bool]] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)


def _size_of(name: str) -> int | None:
    """How many problems the task of a registered model has; None if it does not say."""
    spec = get_spec(name)
    try:
        return spec.task(**spec.options).domain.size
    except NoDomain:
        return None


def read_curves(source: str | Path) -> StoredCurves:
    """Read learning curves from an entry's tensors (``curves.safetensors``), from the lines of an entry's runs
    (``metrics.jsonl``, where a new run begins when the step starts over), or from those of a run folder.

    Raises:
        UserError: no such entry or run, or one without curves of all its seeds.
    """
    folder = Path(source)
    run = read_json(folder / "config.json") if os.path.exists(folder / "config.json") else {}
    if "first_seed" in run:
        lines = RunFolder(folder).metrics()
        table = _of_lines(run.get("model", folder.name), lines, None, run["first_seed"], source)
        size = run.get("recipe", {}).get("validation_size", 0)
        return StoredCurves(table, "exact", Provenance(size, None, "validation problems an evaluation"))
    config = read_entry(source)
    name, made, stored = config["model"], config["training"], config["sha256"]
    if "seeds.json" not in stored or not {"curves.safetensors", "metrics.jsonl"} & set(stored):
        raise UserError(f"{source} stores no learning curves.")
    seeds, size = json.loads(entry_file(source, "seeds.json")), made["recipe"]["validation_size"]
    if "curves.safetensors" in stored:
        table = _of_tensors(name, entry_file(source, "curves.safetensors"), source)
    else:  # entries that were published before all had tensors
        lines = [json.loads(line) for line in entry_file(source, "metrics.jsonl").decode().splitlines()]
        table = _of_lines(name, lines, [row["seed"] for row in seeds], 0, source)
    what, words = "exact", "validation problems an evaluation"
    provenance = Provenance(size, None, words)
    if "by_chain_length" in config["score"]:  # an adder's or a subtractor's
        provenance = Provenance(size, 0, f"{words}, half uniform and half carry-rich")
    if _size_of(name) == size + config["score"]["n"]:
        provenance = Provenance(size, None, "problems, all outside the test set, an evaluation")
    if "validation_loss" in table:
        what, words = "validation_loss", "characters, all of the text's validation part, an evaluation"
        provenance = Provenance(config["score"]["n"], None, words)
    on_test = {row["seed"]: row["exact_on_test"] == config["score"]["n"] for row in seeds if "exact_on_test" in row}
    near = (made.get("start") or {}).get("origin")
    return StoredCurves(
        table, what, provenance, {name: made["seed"]}, {name: on_test} if on_test else {}, {name: near} if near else {}
    )


def curve_table(model: str, values: Mapping[str, Any], seeds: Sequence[int], steps: Sequence[int]) -> xr.Dataset:
    """Arrays [seed, step] as the table of one model."""
    columns = {name: (("model", "seed", "step"), np.asarray(each)[None]) for name, each in values.items()}
    return xr.Dataset(columns, {"model": [model], "seed": list(seeds), "step": list(steps)})


def _of_tensors(model: str, content: bytes, source: object) -> xr.Dataset:
    tensors, _ = parse_weights(content, f"the curves of {source}")
    values = {name: tensors[name].numpy().astype(np.float32) for name in MEASURED if name in tensors}
    return curve_table(model, values, tensors["seed"].tolist(), tensors["step"].tolist())


def _of_lines(
    model: str, lines: Sequence[Mapping[str, Any]], seeds: Sequence[int] | None, first: int, source: object
) -> xr.Dataset:
    """From lines, one per evaluation with one number per seed; seeds are ``seeds``, or counted from ``first``."""
    runs: list[list[Mapping[str, Any]]] = []
    for line in lines:
        if not runs or line["step"] <= runs[-1][-1]["step"]:
            runs.append([])
        runs[-1].append(line)
    names = [name for name in MEASURED if lines and name in lines[0]]
    if not names or not all(isinstance(line[name], list) for line in lines for name in names):
        raise UserError(f"{source} holds no curves of all its seeds.")
    widths = [len(run[0][names[0]]) for run in runs]
    seeds = range(first, first + sum(widths)) if seeds is None else seeds
    if len(seeds) != sum(widths):
        raise UserError(f"{source} stores lines of some of its seeds alone.")
    tables: list[xr.Dataset] = []
    start = 0
    for run, width in zip(runs, widths, strict=True):
        values = {name: np.array([line[name] for line in run], dtype=float).T for name in names}
        tables.append(curve_table(model, values, seeds[start : start + width], [line["step"] for line in run]))
        start += width
    return xr.concat(tables, "seed", join="outer")
