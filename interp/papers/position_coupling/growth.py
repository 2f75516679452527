"""How many tokens one prediction attends to as the number of operands grows: constant with the scratchpad, linear
without (section 4.4 of the Position Coupling paper).

For every number of operands m, this is the mean over problems and over the targets that add digits ("sum" targets) of

    keys        keys other than BOS that weigh more than 0.01
    effective   exp(entropy) of the weights without BOS
    union       keys that weigh more than 0.01 in at least one head: what the whole model looks at
    needed      the tokens that hold the digits to be added: 2 with the scratchpad, m without

and the least-squares slope over m, in tokens per operand, with its 95% interval from the residuals (Student, m values
minus 2 degrees of freedom). The interval is about the straight line, not about sampling, which is finer; if the points
lie exactly on the line, it has no width.

Controls: an untrained head spreads over the whole sequence, which grows with m with the scratchpad too, so its slope is
given next to each. ``needed`` is the slope that the algorithm requires. The construction itself is constant only in its
digit-sum, carry and EOS heads; its arrow head attends to every digit of one significance, on average 3/2 more per
operand.

Limits: it is a mean over targets; the running sums of large m are later in longer sequences; models may be wrong on
shapes beyond their training, so the exact match of every shape is kept with it. Weights below 0.01 can add up to much
in long sequences: compare ``keys`` with ``effective``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from scipy.special import stdtrit

from interp.core.controls import untrained_models
from interp.core.model import HookedModel
from interp.core.probe import probe, task_of
from interp.core.results import Provenance, Result
from interp.core.stats import mean_intervals
from interp.papers.position_coupling.keys import key_sets, resolve_coupled_task
from interp.probes.key_sets import CLIP, KeySets, known_mean, measure_rows, read_patterns
from models.errors import UserError
from models.evaluation import score
from models.tasks.multi_addition import MultiOperandAddition

MEASURES = ("keys", "effective")


@dataclass(frozen=True, eq=False)
class AttendedGrowth(Result):
    """Tokens attended to over numbers of operands. ``table`` is a Dataset over (operands, unit): ``keys``,
    ``effective`` with ``_low``, ``_high`` (over problems); units "L0H0", ... and "any head" (``keys`` is the union).
    ``needed`` and ``exact`` [operands]. ``slopes`` over (unit, measure): ``slope``, ``low``, ``high``, ``intercept``,
    ``untrained`` (mean slope of the control models' heads, NaN without control models).
    """

    table: xr.Dataset
    slopes: xr.Dataset
    digits: int
    provenance: Provenance

    def sentence(self, measure: str = "keys") -> str:
        operands = self.table.operands.values
        needed = np.polyfit(operands, self.table.needed.values, 1)[0]
        texts = []
        shown = [unit for unit in self.slopes.unit.values if not self.table[measure].sel(unit=unit).isnull().any()]
        if len(shown) > 9:
            shown = shown[-1:]
        for unit in shown:
            cell = self.slopes.sel(unit=unit, measure=measure)
            counts = self.table[measure].sel(unit=unit).values
            texts.append(
                f"{unit} {counts[0]:.2f} to {counts[-1]:.2f} ({_signed(cell.slope)} [{_signed(cell.low)}, "
                f"{_signed(cell.high)}] an operand)"
            )
        control = float(self.slopes.untrained.sel(measure=measure, unit=shown[0]))
        controlled = "" if np.isnan(control) else f"; an untrained head {control:+.2f}"
        return (
            f"Tokens attended to from {operands[0]} to {operands[-1]} operands: {'; '.join(texts)}; the algorithm "
            f"needs {_signed(needed)} an operand{controlled}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per number of operands and unit."""
        return self.table.to_dataframe().reset_index().assign(n=self.provenance.n)


def _signed(value: Any) -> str:
    return f"{round(float(value), 2) + 0.0:+.2f}"


def fit_slope(x: Sequence[int], y: Float[np.ndarray, "point *cell"]) -> tuple[np.ndarray, ...]:
    """(slope, low, high, intercept) [*cell] of least-squares lines with a 95% Student interval; NaN where y is."""
    at = np.asarray(x, dtype=float) - np.mean(x)
    spread, centred = float((at**2).sum()), y - y.mean(0)
    slope = np.tensordot(at, centred, 1) / spread
    residual = centred - np.multiply.outer(at, slope)
    half = float(stdtrit(len(x) - 2, 0.975)) * np.sqrt((residual**2).sum(0) / (len(x) - 2) / spread)
    return slope, slope - half, slope + half, y.mean(0) - slope * float(np.mean(x))


def count_attended(model: HookedModel, tokens: Any, keys: KeySets) -> Float[np.ndarray, "n unit measure"]:
    """Tokens attended to in each problem, mean over the targets of the first role, for every head and then any head."""
    where = keys.defined[0]
    counts = []
    for rows in read_patterns(model, tokens, keys.queries):
        measured = measure_rows(rows, keys)
        heads = np.stack([known_mean(measured[name][..., where]) for name in MEASURES], -1)
        union = (rows[..., where, :][..., ~keys.resting] > CLIP).any((1, 2)).sum(-1).mean(-1)
        whole = np.stack((union, np.full(len(rows), np.nan)), -1)
        counts.append(np.concatenate((heads.reshape(len(rows), -1, 2), whole[:, None]), 1))
    return np.concatenate(counts)


@probe("Does the number of tokens attended to grow with the operands?", needs=[task_of(MultiOperandAddition)])
def attended_growth(
    model: HookedModel,
    *,
    task: Any = None,
    operands: Sequence[int] = (2, 3, 4, 5, 6),
    digits: int | None = None,
    n: int = 64,
    seed: int = 0,
    untrained: Sequence[HookedModel] | None = None,
) -> AttendedGrowth:
    """How the number of tokens that a hooked model attends to grows with the number of operands; see the module.

    Args:
        model: any model with TransformerLens hooks, with or without scratchpad.
        task: multi-operand addition in any shape; by default ``model.task``.
        operands: at least three numbers of operands.
        digits: digits of the operands; by default the task's.
        n: problems of T_A for each, drawn with ``seed``.
        untrained: control models; by default one freshly initialised copy, none if the model has no parameters.

    Raises:
        UserError: another task, shapes beyond the model's tables, fewer than three numbers of operands.
    """
    task = resolve_coupled_task(model, task)
    length = digits or task.n_digits
    if n < 2:
        raise UserError(f"A spread over problems needs n of at least 2, not {n}.")
    if len(set(operands)) < 3:
        raise UserError(f"A slope with an interval needs at least 3 numbers of operands, not {len(set(operands))}.")
    controls = untrained_models(model, untrained, 1, seed)
    sizes = sorted(set(operands))
    counts, needed, exact, beside = [], [], [], []
    for m in sizes:
        shaped = task.at(m, length)
        keys = key_sets(shaped)
        problems = shaped.sample(n, torch.Generator().manual_seed(seed + m))
        tokens = shaped.encode(problems)
        counts.append(count_attended(model, tokens, keys))
        needed.append(float(keys.member[0].sum(-1)[keys.defined[0]].mean()))
        exact.append(score(model, problems, task=shaped).accuracy)
        beside.append([count_attended(control, tokens[:16], keys)[:, :-1].mean((0, 1)) for control in controls])
    heads = [f"L{layer}H{head}" for layer, head in np.ndindex(model.cfg.n_layers, model.cfg.n_heads)]
    intervals = mean_intervals(np.stack(counts, 1))  # [operands, unit, measure] each
    table: dict[str, Any] = {"needed": ("operands", needed), "exact": ("operands", exact)}
    for place, measure in enumerate(MEASURES):
        for suffix, values in zip(("", "_low", "_high"), intervals, strict=True):
            table[measure + suffix] = (("operands", "unit"), values[..., place])
    names = ("slope", "low", "high", "intercept")
    fits = xr.Dataset(
        {
            name: (("unit", "measure"), values)
            for name, values in zip(names, fit_slope(sizes, intervals[0]), strict=True)
        },
        coords={"unit": [*heads, "any head"], "measure": list(MEASURES)},
    )
    control = fit_slope(sizes, np.mean(beside, 1))[0] if controls else np.full(len(MEASURES), np.nan)
    fits["untrained"] = xr.DataArray(control, dims="measure").broadcast_like(fits.slope)
    return AttendedGrowth(
        xr.Dataset(table, coords={"unit": [*heads, "any head"], "operands": sizes}),
        fits,
        length,
        Provenance(n, seed, f"problems of T_A({length}, m) for each m"),
    )
