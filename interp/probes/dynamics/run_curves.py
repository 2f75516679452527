"""How training went, for entries that store the lines of their runs (``metrics.jsonl``) instead of tensors of curves.

The file holds the runs one after the other. A new run begins where the step starts over, and each line has one number
per seed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.core.results import Provenance, Result
from models.errors import UserError
from models.zoo import entry_file, read_entry


@dataclass(frozen=True, eq=False)
class RunCurves(Result):
    """``table``: a Dataset over (seed, step) of ``exact`` and ``token`` (shares), ``loss`` and, for text,
    ``validation_loss`` (nats); NaN where a run has no line. ``chosen``: the seed that is stored."""

    model: str
    table: xr.Dataset
    chosen: int
    provenance: Provenance

    @property
    def by_loss(self) -> bool:
        """Whether seeds are compared by their validation loss instead of exact match."""
        return "validation_loss" in self.table

    def sentence(self) -> str:
        n = self.table.sizes["seed"]
        seeds = f"{n} seeds" if n > 1 else "one seed"
        if self.by_loss:
            last = self.table.validation_loss.values[:, -1]
            span = f"{last.min():.3f}" if n == 1 else f"{last.min():.3f} to {last.max():.3f}"
            return f"{self.model}: validation loss {span} nats after {self._last:,} steps ({seeds})."
        best = self.table.exact.max("step").values
        perfect = int((best == 1).sum())
        return (
            f"{self.model}: {perfect} of {n} seeds answered every validation problem at some step; best exact match "
            f"{best.max():.3f} in {self._last:,} steps."
        )

    @property
    def _last(self) -> int:
        return int(self.table.step.values[-1])

    def to_dataframe(self) -> pd.DataFrame:
        """A row per seed and evaluation."""
        return self.table.to_dataframe().dropna().reset_index()


def run_curves(entry: str) -> RunCurves:
    """The stored lines of a zoo entry's runs.

    Raises:
        UserError: no such entry, or one without such lines of all its seeds.
    """
    config = read_entry(entry)
    if "metrics.jsonl" not in config["sha256"]:
        raise UserError(f"{entry} stores no lines of its runs.")
    lines = [json.loads(line) for line in entry_file(entry, "metrics.jsonl").decode().splitlines()]
    seeds = [row["seed"] for row in json.loads(entry_file(entry, "seeds.json"))]
    runs: list[list[dict[str, Any]]] = []
    for line in lines:
        if not runs or line["step"] <= runs[-1][-1]["step"]:
            runs.append([])
        runs[-1].append(line)
    if not all(isinstance(line["exact"], list) for line in lines) or len(seeds) != sum(
        len(run[0]["exact"]) for run in runs
    ):
        raise UserError(f"{entry} stores lines of one of its seeds alone; see its curves.")
    names = [name for name in ("exact", "token", "loss", "validation_loss") if name in lines[0]]
    per_run = [
        xr.Dataset(
            {name: (("step", "seed"), np.array([line[name] for line in run], dtype=float)) for name in names},
            {"step": [line["step"] for line in run], "seed": list(range(len(run[0]["exact"])))},
        )
        for run in runs
    ]
    table = xr.concat(per_run, "seed").assign_coords(seed=seeds).transpose("seed", "step")
    made = config["training"]
    what, size = "validation problems", made["recipe"]["validation_size"]
    if "validation_loss" in table:
        what, size = "characters, all of the text's validation part,", config["score"]["n"]
    return RunCurves(config["model"], table, made["seed"], Provenance(size, None, f"{what} an evaluation"))
