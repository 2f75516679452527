"""How many tokens one prediction attends to, as the number of operands grows: constant with the scratchpad, linear
without (section 4.4 of the Position Coupling paper).

For every number of operands m the mean over problems and over the targets that add digits ("sum" targets) of

    keys        keys apart from BOS that weigh more than 0.01
    effective   exp(entropy) of the weights apart from BOS
    union       keys that weigh more than 0.01 in at least one head: what the whole model looks at
    needed      the tokens that hold the digits to be added: 2 with the scratchpad, m without

and the least-squares slope over m, in tokens an operand, with its 95% interval from the residuals (Student, m values
minus 2 degrees of freedom). The interval is about the straight line, not about sampling, which is finer; where the
points lie on the line exactly it has no width.

Controls. An untrained head spreads over the whole sequence, which grows as m with the scratchpad too: its slope stands
beside each. ``needed`` is the slope that the algorithm asks for. The construction itself is constant only in its
digit-sum, carry and EOS heads: its arrow head attends to every digit of one significance, 3/2 more an operand on
average.

Limits. A mean over targets; the running sums of large m are later in longer sequences; models may be wrong on shapes
beyond their training, so the exact match of every shape is kept with it. Weights below 0.01 can hold much together in
long sequences: compare ``keys`` with ``effective``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from interp.core.stats import mean_interval
from interp.papers.position_coupling.keys import NEEDED, KeySets, key_sets, resolve_coupled_task
from interp.papers.position_coupling.patterns import CLIP, measure_rows, read_patterns
from models.errors import UserError
from models.evaluation import score
from models.tasks.multi_addition import MultiOperandAddition


@dataclass(frozen=True, eq=False)
class AttendedGrowth(Result):
    """Tokens attended to over numbers of operands. ``table`` is a Dataset over (operands, unit): ``keys``,
    ``effective`` with ``_low``, ``_high`` (over problems); units "L0H0", ... and "any head" (``keys`` is the union).
    ``needed`` and ``exact`` [operands]. ``slopes`` over (unit, measure): ``slope``, ``low``, ``high``, ``intercept``,
    ``untrained`` (mean slope of the control models' heads, NaN without).
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
        beside = "" if np.isnan(control) else f"; an untrained head {control:+.2f}"
        return (
            f"Tokens attended to from {operands[0]} to {operands[-1]} operands: {'; '.join(texts)}; the algorithm "
            f"needs {_signed(needed)} an operand{beside}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """A row a number of operands and unit."""
        return self.table.to_dataframe().reset_index().assign(n=self.provenance.n)


def compute_attended_growth(
    counts: Mapping[int, Mapping[str, Float[np.ndarray, "n unit"]]],
    units: Sequence[str],
    needed: Mapping[int, float],
    digits: int,
    provenance: Provenance,
    exact: Mapping[int, float] | None = None,
    untrained: Mapping[str, float] | None = None,
) -> AttendedGrowth:
    """Slopes from counts.

    Args:
        counts: operands -> {"keys", "effective"} -> tokens of each problem (mean over targets) and unit.
        units: names of the columns.
        needed: operands -> tokens that the algorithm needs.
        exact: operands -> exact match.
        untrained: measure -> slope of control heads.

    Raises:
        UserError: fewer than three numbers of operands, which no slope with an interval goes through.
    """
    operands = sorted(counts)
    if len(operands) < 3:
        raise UserError(f"A slope with an interval needs at least 3 numbers of operands, not {len(operands)}.")
    data: dict[str, Any] = {}
    slopes = {name: np.full((len(units), 2), np.nan) for name in ("slope", "low", "high", "intercept")}
    for place, measure in enumerate(("keys", "effective")):
        cells = np.array([[_interval(counts[m][measure][:, u]) for u in range(len(units))] for m in operands])
        for i, suffix in enumerate(("", "_low", "_high")):
            data[measure + suffix] = (("operands", "unit"), cells[..., i])
        for u in range(len(units)):
            for name, value in zip(slopes, fit_slope(operands, cells[:, u, 0]), strict=True):
                slopes[name][u, place] = value
    data["needed"] = ("operands", np.array([needed[m] for m in operands]))
    data["exact"] = ("operands", np.array([np.nan if exact is None else exact[m] for m in operands]))
    fits: dict[str, Any] = {name: (("unit", "measure"), value) for name, value in slopes.items()}
    control = [np.nan if untrained is None else untrained[m] for m in ("keys", "effective")]
    fits["untrained"] = (("measure",), np.array(control))
    coords: dict[str, Any] = {"unit": list(units)}
    fitted = xr.Dataset(fits, coords=coords | {"measure": ["keys", "effective"]})
    fitted["untrained"] = fitted.untrained.broadcast_like(fitted.slope)
    return AttendedGrowth(xr.Dataset(data, coords=coords | {"operands": operands}), fitted, digits, provenance)


def _signed(value: Any) -> str:
    return f"{round(float(value), 2) + 0.0:+.2f}"


def _interval(values: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    kept = values[~np.isnan(values)]
    return mean_interval(kept) if len(kept) else (np.nan, np.nan, np.nan)


def fit_slope(x: Sequence[int], y: Float[np.ndarray, " point"]) -> tuple[float, float, float, float]:
    """(slope, low, high, intercept) of the least-squares line with a 95% Student interval; NaN where y is."""
    if np.isnan(y).any():
        return np.nan, np.nan, np.nan, np.nan
    at = np.asarray(x, dtype=float) - np.mean(x)
    spread = float((at**2).sum())
    slope = float((at * (y - y.mean())).sum()) / spread
    residual = y - y.mean() - slope * at
    half = float(stdtrit(len(x) - 2, 0.975)) * float(np.sqrt((residual**2).sum() / (len(x) - 2) / spread))
    return slope, slope - half, slope + half, float(y.mean()) - slope * float(np.mean(x))


def count_attended(model: HookedModel, tokens: Any, keys: KeySets) -> dict[str, Float[np.ndarray, "n unit"]]:
    """Tokens attended to in each problem, mean over the "sum" targets: all heads in order, then any head."""
    where = keys.defined[keys.index(NEEDED[0])]
    rows_at = tuple(np.array(keys.queries)[where].tolist())
    collected: dict[str, list[np.ndarray]] = {"keys": [], "effective": []}
    for rows in read_patterns(model, tokens, rows_at):
        full = np.zeros((*rows.shape[:3], *keys.visible.shape), dtype=rows.dtype)
        full[..., where, :] = rows
        measured = measure_rows(full, keys)
        for name, parts in collected.items():
            values = measured[name][..., where]
            kept = ~np.isnan(values)
            with np.errstate(invalid="ignore"):
                mean = np.where(kept, values, 0).sum(-1) / kept.sum(-1)
            parts.append(mean.reshape(len(rows), -1))
        union = (rows[..., 1:] > CLIP).any((1, 2)).sum(-1).mean(-1)
        collected["keys"][-1] = np.column_stack((collected["keys"][-1], union))
        collected["effective"][-1] = np.column_stack((collected["effective"][-1], np.full(len(rows), np.nan)))
    return {name: np.concatenate(parts).astype(np.float64) for name, parts in collected.items()}


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
        task: multi-operand addition in any shape; ``model.task`` unless given.
        operands: numbers of operands, at least three of them.
        digits: digits of the operands; the task's unless given.
        n: problems of T_A for each, drawn with ``seed``.
        untrained: control models; one freshly initialised copy unless given, none if the model has no parameters.

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
    counts, needed, exact = {}, {}, {}
    beside: dict[int, list[dict[str, np.ndarray]]] = {}
    for m in sorted(set(operands)):
        shaped = task.at(m, length)
        keys = key_sets(shaped)
        problems = shaped.sample(n, torch.Generator().manual_seed(seed + m))
        tokens = shaped.encode(problems)
        counts[m] = count_attended(model, tokens, keys)
        needed[m] = float(keys.member[0].sum(-1)[keys.defined[0]].mean())
        exact[m] = score(model, problems, task=shaped).accuracy
        beside[m] = [count_attended(control, tokens[:16], keys) for control in controls]
    slopes = None
    if controls:
        slopes = {
            name: fit_slope(
                sorted(beside),
                np.array([np.mean([c[name][:, :-1].mean() for c in beside[m]]) for m in sorted(beside)]),
            )[0]
            for name in ("keys", "effective")
        }
    units = [f"L{layer}H{head}" for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    provenance = Provenance(n, seed, f"problems of T_A({length}, m) for each m")
    return compute_attended_growth(counts, [*units, "any head"], needed, length, provenance, exact, slopes)
