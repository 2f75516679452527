"""Every measure over the snapshots of one seed, to watch grokking in all of them at once.

A measure is a probe that gives a number (``summary`` in :func:`interp.core.probe.probe`); one with parts, such as the
accuracy by chain length, gives a reading for each part. One measure more is the norm of the parameters,
``weight_norm``: the square root of the sum of their squares. The control is the first snapshot, before any step. It
shows what chance, the choice of the best unit or head, and the form of the parameters give without training.

For a measure m with the values m_0 at the first snapshot and m_T at the last, the *half-way step* is the first snapshot
from which on it has always made half of its change, ``(m_t - m_0) / (m_T - m_0) >= 1/2``. The true step lies between
that snapshot and the one before; both are given. A crossing that is undone, as by a loss that falls, rises and falls
again, does not count. A measure whose ends differ by less than its ``least`` change, or whose intervals there overlap,
has no half-way step.

Limits. This is one seed: what comes first in one need not come first in another. Snapshots are log-spaced, so late
events are dated coarsely, and what happens between two snapshots is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Probe, Summary, find_probe, probe, with_number
from interp.core.results import Provenance
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.core.views import Curves, Line, Picture, Series
from interp.core.wording import listed
from interp.probes.training_snapshots import snapshots
from models.calls import Count, Seed
from models.errors import UserError
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel

_SAID = 3  # measures that a title names for one step
CHAINS = "accuracy_by_chain"
NORM = "weight_norm"  # a measure that is no probe
Reading = Mapping[tuple[str, str], Estimate]


KEYS = ("reading", "step")
MEASURES = (Measure("value"),)


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingDynamics(TableResult):
    """``table``: Dataset over (step, reading) of ``value``, ``value_low``, ``value_high`` (NaN: no interval), with the
    coordinates ``measure`` and ``part`` ("" if the measure has one reading). ``left_out``: measures that do not apply,
    and why."""

    seed: int
    left_out: dict[str, str]

    def half_way(self) -> pd.DataFrame:
        """One row per reading: its ``first`` and ``last`` value, and the two snapshots (``after``, ``by``) between
        which it made half of its change for good (NaN without a change)."""
        rows = []
        steps = self.table.step.values
        for reading in self.table.reading.values:
            here = self.table.sel(reading=reading)
            measure, part = str(here.measure.values), str(here.part.values)
            value = here.value.values
            known = np.flatnonzero(np.isfinite(value))
            row = {"reading": str(reading), "measure": measure, "part": part}
            if len(known) < 2:
                rows.append(row | dict.fromkeys(("first", "last", "after", "by"), np.nan))
                continue
            first, last = value[known[0]], value[known[-1]]
            after, by = np.nan, np.nan
            if _differ(here.isel(step=known[0]), here.isel(step=known[-1]), number_of(measure).least):
                at = int(np.flatnonzero((value[known] - first) / (last - first) < 0.5)[-1]) + 1
                after, by = float(steps[known[at - 1]]), float(steps[known[at]])
            rows.append(row | {"first": first, "last": last, "after": after, "by": by})
        return pd.DataFrame(rows)

    def finding(self, name: str) -> str:
        """Which measures make half of their change first, and which last; those of one step stand together."""
        moved, last = self.half_way().dropna(subset=["by"]), int(self.table.step.values[-1])
        if moved.empty:
            return f"{name}, seed {self.seed}: no measure changes up to step {last:,}."
        ends = [
            f"{listed(map(_in_words, moved.reading[moved.by == by]), most=_SAID)} by step {by:,.0f}"
            for by in sorted({moved.by.min(), moved.by.max()})
        ]
        order = f"first in {ends[0]}, last in {ends[1]}" if len(ends) > 1 else f"in {ends[0]}"
        return f"{name}, seed {self.seed}: half of the change over {last:,} steps is made {order}."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per step and reading."""
        return super().to_dataframe().dropna(subset=["value"])


@drawing(TrainingDynamics)
def training_dynamics_view(result: TrainingDynamics) -> Picture:
    """One panel per measure, over a logarithmic axis of steps. A diamond shows where a reading has made half of its
    change, a line through all panels where exact match has."""
    half = result.half_way().set_index("reading")["by"]
    names = list(dict.fromkeys(result.table.measure.values.tolist()))
    exact = float(half.get("score", np.nan))
    lines = [Line(exact, axis="x")] if np.isfinite(exact) else []
    views = []
    for name in names:
        summary, series = number_of(name), []
        for reading in result.table.reading.values[result.table.measure.values == name]:
            here = result.table.sel(reading=reading)
            at = ["\u25c6" if step == half[reading] else "" for step in here.step.values]
            of = str(reading).replace("_", " ") if str(here.part.values) else summary.heading
            ends = {end: here[f"value_{end}"].values for end in ("low", "high")}
            series.append(Series(of, here.step.values, here.value.values, labels=at, said=ends))
        x = "training step (logarithmic)" if name == names[-1] else ""
        scale = "share" if summary.unit == "share" else ""
        title = f"{summary.heading} ({summary.unit})"
        views.append(Curves(x, title=title, series=series, scale=scale, lines=lines, log_x=True))
    note = "Diamonds: half of the change is made, for good. Vertical line: that step for exact match"
    return Picture(views, columns=1, note=note, shared="x")


def number_of(measure: str) -> Summary:
    """What a measure counts, in which unit, and the least change that counts as one."""
    summary = _NORM if measure == NORM else find_probe(measure).summary
    assert summary is not None
    return summary


def _differ(first: xr.Dataset, last: xr.Dataset, least: float) -> bool:
    """Whether a reading changed by at least ``least`` and its intervals, if it has them, do not overlap."""
    low, high = sorted((first, last), key=lambda ends: float(ends.value))
    overlap = bool(high.value_low <= low.value_high)  # False where they are NaN
    return float(high.value - low.value) >= least and not overlap


def compute_training_dynamics(
    readings: Sequence[tuple[int, Reading]],
    name: str,
    seed: int,
    provenance: Provenance,
    left_out: Mapping[str, str] | None = None,
) -> TrainingDynamics:
    """Trajectories from (step, readings by (measure, part)) in order of steps; a missing reading is NaN.

    Raises:
        UserError: fewer than two snapshots, steps out of order, or no reading.
    """
    steps = [step for step, _ in readings]
    if len(steps) < 2 or sorted(set(steps)) != steps:
        raise UserError(f"A trajectory needs two or more snapshots in order of steps, not {steps[:5]}.")
    keys = list(dict.fromkeys(key for _, found in readings for key in found))
    if not keys:
        raise UserError("Nothing was measured.")
    order = list(dict.fromkeys(measure for measure, _ in keys))
    keys.sort(key=lambda key: order.index(key[0]))  # the readings of a measure are adjacent
    empty = Estimate(np.nan)
    data = {
        column: (
            ("step", "reading"),
            np.array([[getattr(found.get(key, empty), what) for key in keys] for _, found in readings], dtype=float),
        )  # None, where nothing was sampled, becomes NaN
        for column, what in (("value", "value"), ("value_low", "low"), ("value_high", "high"))
    }
    coords: dict[str, Any] = {
        "step": steps,
        "reading": [f"{measure} {part}".strip() for measure, part in keys],
        "measure": ("reading", [measure for measure, _ in keys]),
        "part": ("reading", [part for _, part in keys]),
    }
    table = xr.Dataset(data, coords)
    result = TrainingDynamics("", table, provenance, KEYS, MEASURES, seed=seed, left_out=dict(left_out or {}))
    return result.saying(result.finding(name))


@probe("In what order did it all come in training?")
def training_dynamics(
    source: str | Path,
    *,
    measures: str | Iterable[str] | None = None,
    task: TaskLike | None = None,
    n: Count = 512,
    n_per_length: Count = 100,
    seed: Seed = 0,
    run_seed: Seed | None = None,
) -> TrainingDynamics:
    """Measures over the snapshots of a zoo entry ("adder-456") or a run folder.

    Args:
        measures: names of probes that give a number, and "weight_norm"; default those that take little time and apply
            to the model.
        task: for models whose task has many shapes, the task in one shape: ``models.load(name).task.at(4, 5)``.
        n, n_per_length: problems of a measure and of each chain length, drawn with ``seed``; by default 512 and 100, as
            every snapshot is run on them.
        run_seed: which seed of a run folder, default its first.

    Cost: about half a second per snapshot of a one-layer adder.

    Raises:
        UserError: no snapshots, an unknown measure, or a named one that does not apply.
    """
    found = snapshots(source, run_seed)
    last = found.models[-1][1]
    task = resolve_task(last, task)
    names = [measures] if isinstance(measures, str) else None if measures is None else list(measures)
    asked, left_out = {}, {}
    for name, ask in _measures(names, task=task, n=n, n_per_length=n_per_length, seed=seed).items():
        try:
            ask(last)
        except UserError as error:
            if names is not None:
                raise
            left_out[name] = str(error)
        else:
            asked[name] = ask
    readings = []
    for step, model in found:
        here: dict[tuple[str, str], Estimate] = {}
        for ask in asked.values():
            try:
                here |= ask(model)
            except UserError:  # for example a diverged snapshot, or embeddings that are all alike at the start
                continue
        readings.append((step, here))
    provenance = Provenance(n, seed, f"problems a measure and {n_per_length} of each chain length, at each snapshot")
    return compute_training_dynamics(readings, found.model, found.seed, provenance, left_out)


def _measures(names: Sequence[str] | None, **options: Any) -> dict[str, Callable[[HookedModel], Reading]]:
    """What gives the readings of each measure; without names, those that are asked for by default."""
    probes = None if names is None else [name for name in names if name != NORM]
    known = {} if probes == [] and names else {each.name: each for each in with_number(probes, "training_dynamics")}
    order = list(known) if names is None else list(names)
    if names is None:
        order.insert(order.index("loss") + 1, NORM)  # both are what training pushes down
    if len(set(order)) < len(order):
        raise UserError("Give no measure twice.")
    own = {NORM: lambda model: {(NORM, ""): _norm(model)}}
    return {name: own.get(name) or partial(_readings, known[name], **options) for name in order}


def _norm(model: HookedModel) -> Estimate:
    """The Euclidean norm of all free parameters together, exact up to float64."""
    with torch.no_grad():
        squares = [float(p.cpu().double().square().sum()) for p in model.parameters()]
    norm = math.sqrt(sum(squares))
    if not squares or not math.isfinite(norm):
        raise UserError("The model has no free parameters." if not squares else "Its parameters are not finite.")
    return Estimate(norm)


_NORM = Summary("parameters", "norm", _norm, 1e-3)


def _readings(each: Probe, model: HookedModel, **options: Any) -> Reading:
    """A model's number, or its parts where it has some, by (measure, part)."""
    answer = each.number(model, **options)
    if not answer.parts:
        return {(each.name, ""): answer}
    return {(each.name, part.name): part for part in answer.parts}


def _in_words(reading: str) -> str:
    """A reading's name in words: "attention by role", "carry chains of length 3"."""
    length = reading.removeprefix(f"{CHAINS} ")
    return f"carry chains of length {length}" if length != reading else reading.replace("_", " ")
