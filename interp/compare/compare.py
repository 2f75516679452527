"""Comparison of two models of one format: trained and hand-built, or two seeds of one architecture.

    heads        matched by where they look               :mod:`interp.compare.head_matching`
    units        matched by what they respond to          :mod:`interp.compare.neuron_matching`
    circuits     QK and OV of the matched heads, the responses of attention, MLP and logits to digit sum and carry,
                 the geometry of the embeddings           :mod:`interp.compare.weight_circuits`
    parameters   number by number, if both have the same

All distances lie between 0 and 1 and do not depend on a basis: permuting heads or units, rotating the stream (if norms
have no gains) or moving a scale from queries to keys does not change them.

Nulls. *Untrained*: fresh copies of one of the two models are compared with the other in the same way, matching
included; p is the share that is as close, with the observation counted as one. *Shuffled*, for quantities with labels:
the roles' names at each target, the problems of one model's units, or the rows of a table (the digit sums and carries,
or the tokens; rows and columns together for inner products). Neither is corrected for the number of rows. A hand-built
model has nothing to draw; the other model's copies are then the control.

Limits. Sampled, with the right answer in place. Close tables do not prove the same algorithm: interchange
(:func:`interp.which_algorithm`) tests causes. Every head of the smaller model gets a partner, however distant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.compare.comparison_result import KEYS, MEASURES, Comparison
from interp.compare.digit_planes import digit_points
from interp.compare.head_matching import head_distances
from interp.compare.matching import match, scaled_distance
from interp.compare.neuron_matching import matched_units
from interp.compare.paired_readings import ReadingFrame, Readings, common_columns, read
from interp.compare.parameter_tables import parameters_beside
from interp.compare.shuffled_comparison import (
    ModelTables,
    PairMeasurement,
    null_columns,
    pair_null,
    shuffled_distances,
)
from interp.compare.weight_circuits import NAMES, head_tables, model_tables
from interp.core.controls import copies_to_draw
from interp.core.model_checks import pair_names
from interp.core.probe import probe
from interp.core.samples import draw
from interp.core.stats import mean_intervals
from interp.core.task_checks import digit_ids, resolve_task
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.tasks import Task, TaskLike
from models.transformer import HookedModel

UNTRAINED = 39


@probe("Two models of one format: what is alike, part by part?")
def compare(
    a: HookedModel,
    b: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 128,
    seed: Seed = 0,
) -> Comparison:
    """Compare two models of one format; see the module.

    Controls are 39 freshly initialised copies of ``a``, or of ``b`` if ``a`` has nothing to draw, or none.

    Args:
        a, b: models with TransformerLens hooks on the same tokens: trained and hand-built, or two seeds.
        task: what their tokens mean, in the shape to look at; default ``a.task``.
        problems: problems to look at; by default ``n`` are drawn with ``seed`` (128, as all activations
            of 41 models are held), half of them rich in carry chains.

    Cost: 41 forward passes of the problems and as many matchings; seconds for models of one layer.

    Raises:
        UserError: models of different formats (use ``interp.compare_models``), fewer than 2 problems, or a model that
            diverged.
    """
    task = resolve_task(a, task)
    names = pair_names(a, b)
    require_one_format(task, b, names)
    resolve_task(b, task)
    sample = draw(task, problems, n, seed, carry_heavy=0.5)
    at = common_columns(task, sample.problems, sample.tokens)
    rng = np.random.default_rng(seed)
    left, right = (_tables(model, at) for model in (a, b))
    measured = _measure(left, right)
    copies, of = copies_to_draw((a, b), UNTRAINED, seed)
    of_a = of in (0, None)
    controls = [_measure(*((_tables(copy, at), right) if of_a else (left, _tables(copy, at)))) for copy in copies]

    distance = head_distances(left.reading.roles, right.reading.roles)
    names_of = ("distance", "distance_low", "distance_high")
    heads = xr.Dataset(
        {name: (("a", "b"), values) for name, values in zip(names_of, mean_intervals(distance), strict=True)},
        coords={"a": left.reading.heads, "b": right.reading.heads},
    ).clip(0, 1)
    fixed = "b" if of_a else "a"
    shuffled = shuffled_distances(left, right, rng)
    table = pd.DataFrame([row | null_columns(row, controls, fixed, shuffled) for row in measured.rows])
    on_heads = table["part"] == "heads"
    for end in names_of[1:]:
        cells = [float(heads[end].sel(a=row["a"], b=row["b"])) for _, row in table[on_heads].iterrows()]
        table.loc[on_heads, end] = cells
    order = [*KEYS, *names_of, "factor", "nothing"]
    order += ["distance_untrained", "p_untrained", "distance_shuffled", "p_shuffled"]
    found = Comparison(
        "", table.reindex(columns=order), sample.provenance, KEYS, MEASURES,
        heads=heads,
        unit_pairs=pd.DataFrame(
            [pair | pair_null(pair, controls, fixed) for pair in measured.pairs],
            columns=["a", "b", "correlation", "distance", "distance_untrained", "p_untrained"],
        ),
        units=measured.units,
        roles=(_role_means(left.reading, at), _role_means(right.reading, at)),
        unit_means=(_unit_means(left.reading, at), _unit_means(right.reading, at)),
        digits=digit_points(*(side.reading.model.W_E[digit_ids(task)] for side in (left, right))),
        parameters=parameters_beside(a, b),
        names=names,
        control=((names[0] if of_a else names[1]) if copies else "", len(copies)),
    )  # fmt: skip
    return found.saying(found.finding())


# ---- which models


def require_one_format(task: Task, b: Any, names: tuple[str, str]) -> None:
    """Raise UserError for a model whose own tokens or positions are not the task's."""
    other = getattr(b, "task", None)
    if isinstance(other, Task) and not same_format(task, other):
        raise UserError(
            f"{names[0]} and {names[1]} are of different formats ({task.name} and {other.name}), so that their tokens "
            "and positions cannot be matched; interp.compare_models([a, b]) asks both the same questions instead."
        )


def same_format(task: Task, other: Task) -> bool:
    """Whether two tasks put the same tokens at the same places, with the other in the shape of the first."""
    if type(task) is not type(other) or task.d_vocab != other.d_vocab:
        return False
    if task.has_other_sizes and other.has_other_sizes:
        if getattr(task, "format", None) != getattr(other, "format", None):
            return False
        other = other.at(*task.shape)
    labels = [[role.label for role in each.roles] for each in (task, other)]
    return labels[0] == labels[1] and list(task.query_positions) == list(other.query_positions)


# ---- one pair


def _tables(model: HookedModel, at: ReadingFrame) -> ModelTables:
    reading = read(from_transformer_lens(model, at.task), at)
    return ModelTables(reading, head_tables(reading, at), model_tables(reading, at))


def _measure(left: ModelTables, right: ModelTables) -> PairMeasurement:
    rows: list[dict[str, Any]] = []

    def add(part: str, quantity: str, a: str, b: str, found: tuple[float, float], nothing: str = "") -> None:
        if not np.isnan(found[0]):
            cells = (part, NAMES.get(quantity, quantity), a, b, *found, nothing)
            rows.append(dict(zip(_COLUMNS, cells, strict=True)))

    distance = head_distances(left.reading.roles, right.reading.roles).mean(0)
    pairs = match(distance)
    names_a, names_b = left.reading.heads, right.reading.heads
    for j, i in pairs:
        add("heads", "attention by role", names_a[i], names_b[j], (float(distance[i, j]), float("nan")))
    units, matched = matched_units(left.reading, right.reading)
    if matched:
        mean = float(np.mean([pair["distance"] for pair in matched]))
        add("units", f"{len(matched)} matched neurons", "", "", (mean, float("nan")))
    for name in _shared(left.heads, right.heads, 1):
        for j, i in pairs:
            tables = left.heads[name][i], right.heads[name][j]
            add("circuits", name, names_a[i], names_b[j], scaled_distance(*tables), _nothing(*tables))
    for name in _shared(left.whole, right.whole, 0):
        part = "responses" if name in left.reading.responses else "embeddings"
        tables = left.whole[name], right.whole[name]
        add(part, name, "", "", scaled_distance(*tables), _nothing(*tables))
    return PairMeasurement(rows, matched, units)


_COLUMNS = ("part", "quantity", "a", "b", "distance", "factor", "nothing")


def _nothing(left: np.ndarray, right: np.ndarray) -> str:
    return "a" if not left.any() else "b" if not right.any() else ""


def _shared(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray], skip: int) -> Iterable[str]:
    """Names of the tables that both have in the same shape (ignoring the head axis)."""
    return [name for name in a if name in b and a[name].shape[skip:] == b[name].shape[skip:]]


# ---- what the figure shows


def _role_means(reading: Readings, at: ReadingFrame) -> xr.DataArray:
    coords = {"head": reading.heads, "target": list(at.targets), "role": list(at.roles)}
    mean = reading.roles.mean(0)
    empty = ~at.member.any(-1)  # no key has the role
    return xr.DataArray(np.where(empty, np.nan, mean), dims=("head", "target", "role"), coords=coords)


def _unit_means(reading: Readings, at: ReadingFrame) -> xr.DataArray:
    cells = len(at.cell_values)
    has = at.cells >= 0
    index = at.cells[has]
    sums = np.zeros((cells, reading.units.shape[-1]))
    np.add.at(sums, index, reading.units[has])
    means = sums / np.maximum(np.bincount(index, minlength=cells), 1)[:, None]
    coords = {
        "unit": reading.unit_names,
        "digit_sum": ("cell", at.cell_values[:, 0]),
        "carry_in": ("cell", at.cell_values[:, 1]),
    }
    return xr.DataArray(means.T, dims=("unit", "cell"), coords=coords)
