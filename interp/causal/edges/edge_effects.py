"""The common form of results about edges: one number per metric, edge and pair, relative to the unpatched run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from torch import Tensor

from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.metrics import spoken
from interp.core.frames import as_frame
from interp.core.results import Provenance
from interp.core.stats import ROUNDING, Bounds, bootstrap_interval
from interp.core.table_result import TableResult
from interp.core.views import Grid
from models.errors import known_name

KEYS = ("metric", "edge")


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeEffects(TableResult):
    """A row for each metric and edge. ``base`` (metric, example) is the metric of the run itself, ``other`` that with
    every edge patched."""

    direction: str
    replacement: str
    base: xr.DataArray
    other: xr.DataArray

    def metric(self, name: str | None) -> str:
        """A metric's name, by default the first. Raises UserError if there is no metric of that name."""
        names = self.base.metric.values.tolist()
        return names[0] if name is None else known_name("metric", name, names)


def asked(experiment: EdgeExperiment) -> dict[str, Any]:
    """The fields of :class:`EdgeEffects` that an experiment gives."""
    return {
        "said": "",
        "keys": KEYS,
        "provenance": rests_on(experiment),
        "direction": experiment.direction,
        "replacement": experiment.kind,
        "base": labelled(experiment, experiment.full),
        "other": labelled(experiment, experiment.empty),
    }


def rests_on(experiment: EdgeExperiment) -> Provenance:
    """Where the pairs of an experiment come from."""
    pairs = experiment.pairs
    seed = experiment.seed if pairs.seed is None else pairs.seed
    return Provenance(len(pairs), seed, f"pairs of {pairs.task.name} problems")


def labelled(experiment: EdgeExperiment, values: Tensor, axis: str | None = None) -> xr.DataArray:
    """Values [metric, (edge, sender or receiver), n] with names; edges also get those of their ends and group."""
    graph = experiment.graph
    coords: dict[str, Any] = {"metric": [metric.name for metric in experiment.metrics]}
    if axis == "edge":
        coords["edge"] = list(graph.names)
        for end in ("sender", "receiver", "group"):
            coords[end] = ("edge", [getattr(edge, end) or "" for edge in graph.edges])
    elif axis is not None:
        coords[axis] = list(graph.senders if axis == "sender" else graph.receivers)
    dims = ["metric", *([axis] if axis else []), "example"]
    return xr.DataArray(values.double().cpu().numpy(), coords, dims)


def edge_matrix(values: xr.DataArray, group: str | None = None, split: bool = False) -> xr.DataArray:
    """Values over edges as a matrix (sender, receiver), NaN where there is no edge. Groups are summed; ``group`` takes
    one of them, and ``split`` gives each its own receivers."""
    if group is not None:
        known_name("group of positions", group, sorted(set(values.group.values.tolist())))
        values = values.isel(edge=values.group.values == group)
    into = zip(values.receiver.values.tolist(), values.group.values.tolist(), strict=True)
    readers = [f"{receiver}@{group}" if split and group else receiver for receiver, group in into]
    writers = values.sender.values.tolist()
    ends = list(dict.fromkeys(writers)), list(dict.fromkeys(readers))
    table = np.full((len(ends[0]), len(ends[1])), np.nan)
    for sender, receiver, value in zip(writers, readers, values.values, strict=True):
        at = ends[0].index(sender), ends[1].index(receiver)
        table[at] = np.nan_to_num(table[at]) + value
    return xr.DataArray(table, {"sender": ends[0], "receiver": ends[1]}, ["sender", "receiver"])


def effect_table(
    effects: xr.DataArray, name: str, seed: int, bounds: Sequence[Bounds | None] | None = None
) -> pd.DataFrame:
    """One row per metric and edge of ``effects`` (metric, edge, example): the mean with its bootstrap interval, as the
    measure ``name``, the spread and n.

    ``bounds`` are those of each metric's effects, where they are known. Without them, an effect that is 0 in all n
    examples (up to :data:`interp.core.stats.ROUNDING` of the metric's largest) has no interval
    (NaN): at most a share :func:`interp.core.stats.unseen` of such examples has another one, and nothing says how large
    that would be. The effects of other edges say nothing of it.
    """
    values, cell, n = effects.values, effects.isel(example=0), effects.sizes["example"]
    limits = [None] * len(values) if bounds is None else bounds
    ends = [bootstrap_interval(one, seed, bounds=limit) for one, limit in zip(values, limits, strict=True)]
    low, high = (np.stack(end) for end in zip(*ends, strict=True))
    size = np.abs(values).max(-1)
    zero = (size <= ROUNDING * size.max(-1, keepdims=True)) & np.array([limit is None for limit in limits])[:, None]
    low, high = (np.where(zero, np.nan, end) for end in (low, high))
    spread = values.std(-1, ddof=1) if n > 1 else np.full(cell.shape, np.nan)
    columns = {name: values.mean(-1), f"{name}_low": low, f"{name}_high": high, "std": spread}
    table = xr.Dataset({name: cell.copy(data=column) for name, column in columns.items()})
    return as_frame(table, (*KEYS, "sender", "receiver", "group")).assign(n=n)


def edge_grid(matrix: xr.DataArray, metric: str) -> Grid:
    """The effect of every edge: senders are rows, receivers are columns, in the model's order. No edge is grey."""
    grey = np.isnan(matrix.values)
    senders, receivers = (matrix[end].values.tolist() for end in ("sender", "receiver"))
    return Grid("receiver", "sender", "", matrix.values, senders, receivers, spoken(metric), "signed", grey=grey)
