"""How the construction's MLP turns one number into a digit: what its SUM units read from the residual stream.

All units that write SUM read the same combination of the stream (weights of the first such unit, PRE_SUM's taken as 1)

    x = PRE_SUM + (PRE_CARRY - NUM) / 10

and differ only in their thresholds, so that what they write is a function of x: ``curve`` [digit, x]. With d the sum of
the column's two digits, c the carry into it and c' the carry into the column before, x = d + c - c'/10: PRE_CARRY - NUM
is what the column before lost by writing one digit, minus the carry that it got itself. The table has the x of all
predicted digits of sampled problems, ``digit`` the right digit there. ``slack`` is how far the nearest of them is from
where its digit's SUM falls below one, or another's rises above zero.

Sampled, teacher-forced; the curve is exact at its grid. Source: Position Coupling (ICLR 2025), appendix D.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int

from interp.compare.construction.needed_keys import draw_coupled, key_sets, resolve_coupled_task
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Summary, named_dimensions, probe, task_of
from interp.core.table_result import Measure, TableResult
from interp.core.views import Grid, Picture, Series
from models import ArithmeticTransformer
from models.calls.argument_kinds import Count, Seed
from models.errors import UserError
from models.tasks import MultiOperandAddition, TaskLike
from models.transformer import require_unaltered

_STEP = 0.01
_RANGE = (-1.0, 20.0)
_EXACT = 1e-3


KEYS = ("x", "digit", "carry", "carry_before")
MEASURES = (Measure("slack", "units of x", title="how far a reading can move"), Measure("digits", "predicted digits"))


@dataclass(frozen=True, eq=False, kw_only=True)
class ConstructionUnits(TableResult):
    """What the units read and what they write for it; see the module.

    ``table``: one row per distinct reading: ``x`` (rounded), the right ``digit``, the ``carry`` into its column and
    into the column before, how many ``digits`` have this reading, whether SUM is 1 at their right digit and 0 at the
    others (``one_hot``), and how far they can move with SUM still so, up to the grid's step (``slack``).
    ``curve`` [digit, x]: what is written. ``weights``: the weight of each named dimension in x.
    """

    curve: xr.DataArray
    weights: dict[str, float]


def tabulate(
    curve: xr.DataArray,
    reading: Float[np.ndarray, " reading"],
    right: Int[np.ndarray, " reading"],
    carry: Int[np.ndarray, " reading"],
    carry_before: Int[np.ndarray, " reading"],
) -> pd.DataFrame:
    """The distinct readings, from the curve and every reading with its right digit and its carries."""
    hot = curve.values > 1 - _EXACT
    good = hot & ((np.abs(curve.values) < _EXACT).sum(0) == 9)
    written = curve.sel(x=reading, method="nearest").values
    one_hot = np.abs(written - (np.arange(10)[:, None] == right)).max(0) < _EXACT
    nearest = [np.abs(curve.x.values[~good[d]] - x).min() for x, d in zip(reading, right, strict=True)]
    slack = np.where(one_hot, (np.array(nearest) - _STEP).round(4), 0.0)
    cells = reading.round(3), right, carry, carry_before
    rows = pd.DataFrame(dict(zip(KEYS, cells, strict=True)) | {"one_hot": one_hot, "slack": slack})
    by = rows.groupby([*KEYS], as_index=False)
    return by.agg(digits=("one_hot", "size"), one_hot=("one_hot", "all"), slack=("slack", "min"))


def _least_slack(found: ConstructionUnits) -> Estimate:
    return Estimate(_slack(found.table))


def _slack(table: pd.DataFrame) -> float:
    """How far every reading can move with SUM still one-hot; 0 if one is not one-hot."""
    return float(table["slack"].min()) if table["one_hot"].all() else 0.0


@probe(
    "From which number does a construction's MLP make a digit?",
    needs=[task_of(MultiOperandAddition), named_dimensions("SUM", "PRE_SUM", "PRE_CARRY", "NUM")],
    summary=Summary("how far a reading can move", "units", _least_slack, 0.01, asked_by=()),
)
def construction_units(
    model: ArithmeticTransformer, *, task: TaskLike | None = None, n: Count = 200, seed: Seed = 0
) -> ConstructionUnits:
    """Read the construction's SUM units; see the module.

    Args:
        model: the hand-built transformer of multi-operand addition.
        task: the task in the shape of the problems to draw; by default the model's own.
        n: problems, by default 200, as one has hundreds of tokens.

    Raises:
        UserError: a model without the named dimensions, with hooks or other changes, in which no unit writes SUM, or
            whose units do not share one reading of PRE_SUM.
    """
    dims: dict[str, slice] = cast(Any, model.weight_map).dims
    require_unaltered(model, "What the SUM units write")
    W_in, W_out = (w[0].detach().double() for w in (model.W_in, model.W_out))
    units = torch.nonzero(W_out[:, dims["SUM"]].abs().amax(1) > 0).flatten()
    if not len(units):
        raise UserError("No unit of this model writes SUM.")
    direction = W_in[:, units[0]]
    if (W_in[:, units] - direction[:, None]).abs().max() > 1e-6:
        raise UserError("The units that write SUM read different combinations of the stream.")
    if not direction[dims["PRE_SUM"].start]:
        raise UserError("The units that write SUM do not read PRE_SUM.")
    direction = direction / direction[dims["PRE_SUM"].start]
    task = resolve_coupled_task(model, task)
    sample, keys = draw_coupled(task, None, n, seed), key_sets(task)
    digit = np.flatnonzero((keys.column >= 0) & (keys.step >= 1))
    queries = [keys.queries[target] for target in digit]
    with torch.no_grad():
        _, cache = model.run_with_cache(sample.tokens)
    reading = (cache["resid_mid", 0][:, queries].double() @ direction).numpy()
    step, column = keys.step[digit] - 1, keys.column[digit]
    truth = {name: values.numpy()[:, step, column] for name, values in task.variables(sample.problems).items()}
    carries = task.variables(sample.problems)["carry_in"].numpy()
    before = np.where(column > 0, carries[:, step, np.maximum(column - 1, 0)], 0)
    curve = _curve(model, dims, direction)
    table = tabulate(curve, reading.ravel(), truth["s"].ravel(), truth["carry_in"].ravel(), before.ravel())
    return ConstructionUnits(
        _sentence(table), table, sample.provenance, KEYS, MEASURES,
        curve=curve,
        weights={name: float(direction[at].sum()) for name, at in dims.items() if direction[at].abs().max() > 0},
    )  # fmt: skip


def _sentence(table: pd.DataFrame) -> str:
    good, n = int(table.loc[table["one_hot"], "digits"].sum()), int(table["digits"].sum())
    said = f"SUM is one-hot at the right digit for {good:,} of {n:,} predicted digits"
    return f"{said}, and would be if each reading moved by up to {_slack(table):.2f}." if good == n else f"{said}."


def _curve(model: ArithmeticTransformer, dims: dict[str, slice], direction: torch.Tensor) -> xr.DataArray:
    """SUM as the MLP writes it, over readings: PRE_SUM moves along the grid, with all other dimensions at zero."""
    x = np.arange(_RANGE[0], _RANGE[1] + _STEP / 2, _STEP).round(4)
    stream = torch.zeros(len(x), model.config.d_model, dtype=torch.float64)
    stream[:, dims["PRE_SUM"]] = torch.from_numpy(x)[:, None] / direction[dims["PRE_SUM"].start]
    hidden = torch.relu(stream @ model.W_in[0].detach().double() + model.b_in[0].detach().double())
    written = hidden @ model.W_out[0].detach().double() + model.b_out[0].detach().double()
    return xr.DataArray(written[:, dims["SUM"]].T.numpy(), dims=("digit", "x"), coords={"digit": np.arange(10), "x": x})


@drawing(ConstructionUnits)
def sum_view(result: ConstructionUnits) -> Picture:
    """Rows are the ten dimensions of SUM, x is what the units read, and marks are sampled readings, at their digit."""
    table, marks = result.table, []
    for carry in (0, 1):
        rows = table[table.carry == carry]
        said = {"digit": rows.digit.to_numpy(), "times": rows.digits.to_numpy()}
        marks.append(
            Series(f"carry in {carry}", rows.x.to_numpy(), (rows.digit + 0.2 - 0.4 * carry).to_numpy(), said=said)
        )
    ranked = sorted(result.weights.items(), key=lambda item: (-abs(round(item[1], 6)), -item[1]))
    terms = [
        f"{'-' if w < 0 else '+'} {'' if abs(abs(w) - 1) < 1e-6 else f'{abs(w):.3g} '}{name}" for name, w in ranked
    ]
    x = f"what the units read: {' '.join(terms).removeprefix('+ ')}"
    curve = result.curve
    grid = Grid(
        x, "digit", "", curve.values, curve.digit.values, curve.x.values, "SUM[digit]", marks=marks, upwards=True
    )
    note = "Dark: SUM is 1. Marks: readings that occur; a tenth to the left where the column before got a carry itself"
    return Picture([grid], note=note)
