"""The result of :func:`interp.compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.compare.digit_planes import DigitPoints
from interp.core.controls import NO_CONTROL
from interp.core.drawings import drawing
from interp.core.table_result import Measure, TableResult
from interp.core.thresholds import SIGNIFICANT
from interp.core.views import Curves, Grid, Picture, Points, Series, Table, View
from models.errors import UserError, known_name
from models.number_format import counted, in_percent, number, p_value

KEYS = ("part", "quantity", "a", "b")
MEASURES = (Measure("distance", controls=("untrained", "shuffled")),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison(TableResult):
    """Comparison of two models; ``names`` are a's and b's.

    ``table`` has one row per measured quantity: ``part`` ("heads", "units", "circuits", "responses", "embeddings"),
    ``quantity``, ``a`` and ``b`` (the matched heads; "" for the whole model), ``distance`` (with an interval over
    problems only for heads), ``factor`` (by which a's table is multiplied to be closest to b's), ``nothing`` ("a" or
    "b" if that model's table is all zeros, at distance 1 from any; if both are, there is no row),
    ``distance_untrained`` (mean of the copies) and ``p_untrained``, ``distance_shuffled`` and ``p_shuffled``.

    ``heads``: Dataset over (a, b) of ``distance``, ``distance_low``, ``distance_high``. ``unit_pairs``: matched neurons
    with their correlation. ``units`` (a, b): all correlations between units that vary. ``roles``: both models' mean
    weight [head, target, role]. ``unit_means``: both models' mean activation [unit, cell], cells with ``digit_sum`` and
    ``carry_in``. ``digits``: both models' digit embeddings in a plane. ``parameters``: both models' numbers next to
    each other, or None. ``control``: whose copies, and how many.
    """

    heads: xr.Dataset
    unit_pairs: pd.DataFrame
    units: xr.DataArray
    roles: tuple[xr.DataArray, xr.DataArray]
    unit_means: tuple[xr.DataArray, xr.DataArray]
    digits: tuple[DigitPoints, DigitPoints]
    parameters: pd.DataFrame | None
    names: tuple[str, str]
    control: tuple[str, int]

    @property
    def _head_pairs(self) -> list[tuple[str, str]]:
        """The matching: (a's head, b's head)."""
        rows = self._rows("attention by role")
        return list(zip(rows["a"].tolist(), rows["b"].tolist(), strict=True))

    def distance(self, quantity: str) -> float:
        """Distance in one quantity, averaged over matched pairs. Raises UserError if the table does not have it."""
        rows = self._rows(known_name("quantity", quantity, self.table["quantity"].unique()))
        return float(rows["distance"].mean())

    def _rows(self, quantity: str) -> pd.DataFrame:
        return self.table[self.table["quantity"] == quantity]

    def finding(self) -> str:
        """How far apart the matched heads look, and which quantity differs most."""
        heads = self._rows("attention by role")
        row = heads.loc[heads["distance"].idxmax()].to_dict()
        apart, far = MEASURES[0].estimate(row), self.table.loc[self.table["distance"].idxmax()]
        control, note = NO_CONTROL if not self.control[1] else "no untrained copy has such a pair of heads", ""
        if not math.isnan(p := row["p_untrained"]):
            control = f"an untrained copy {number(row['distance_untrained'])}, {p_value(p)}"
            note = "" if p <= SIGNIFICANT else ", not significantly closer than untrained copies"
        largest = f"of {counted(len(self.table), 'distance')} the largest is {number(far['distance'])}"
        largest += f" ({far['quantity']})" * bool(far["distance"] > 0)
        return (
            f"{' and '.join(self.names)}: where matched heads look differs by at most {apart}{note} (0: alike, "
            f"1: nothing in common; {control}); {largest}."
        )


# ---- what it shows

_MOST_PAIRS, _MOST_UNITS = 6, 3  # pairs of heads and of neurons that are shown; the closest are kept


@drawing(Comparison)
def comparison_view(result: Comparison) -> Picture:
    """Matched heads side by side, matched neurons and digits superimposed, and all distances with their nulls."""
    near = sorted(result._head_pairs, key=lambda pair: float(result.heads.distance.sel(a=pair[0], b=pair[1])))
    pairs = [pair for pair in result._head_pairs if pair in near[:_MOST_PAIRS]]
    views: list[View] = []
    for pair in pairs:
        for head, name, means in zip(pair, result.names, result.roles, strict=True):
            weight = means.sel(head=head).transpose("target", "role")
            y = "" if len(views) % 2 else "answer token predicted"
            views.append(Grid("looks at", y, f"{head} of {name}", values=weight))
    units = [_units(result)] if len(result.unit_pairs) and result.unit_means[0].sizes["cell"] else []
    views += [_distances(result), _digits(result), *units]
    note = f"a is {result.names[0]}, b is {result.names[1]}"
    if len(pairs) < len(result._head_pairs):
        note += f"; the {len(pairs)} closest of {len(result._head_pairs)} pairs of heads"
    if result.control[1]:
        note += f"; untrained: {result.control[1]} copies of {result.control[0]} with fresh parameters"
    return Picture(views, columns=2, note=note)


def _distances(result: Comparison) -> Points:
    """One row per quantity, one mark per matched pair (or one for the whole model)."""
    rows = result.table[result.table["nothing"] == ""]
    which = [f"{a} - {b}" if a else "whole model" for a, b in zip(rows["a"], rows["b"], strict=True)]
    series = []
    for column, name in (
        ("distance", "distance"),
        ("distance_untrained", "untrained copies (mean)"),
        ("distance_shuffled", "labels shuffled (mean)"),
    ):
        said: dict[str, Any] = {"of": which}
        p = column.replace("distance", "p")
        said |= {"p": rows[p].to_numpy()} if p in rows else {}
        each = rows["quantity"].to_numpy(), rows[column].to_numpy()
        series.append(Series(name, *each, said=said, control=column != "distance"))
    heading = "0% the same, 100% nothing in common"
    return Points("", heading, "distances", series=series, scale="share", across=True)


def _digits(result: Comparison) -> Points:
    """Both models' digits in one plane."""
    on_circles = all(each.circle is not None for each in result.digits)
    series = []
    for name, digits in zip(result.names, result.digits, strict=True):
        said = f"{name}: {in_percent(digits.share, 0)} of the variance"
        if digits.circle is not None:
            degrees = abs(math.degrees(digits.circle.stride))
            said = f"{name}: radius {digits.circle.radius:.2f}, {degrees:.2f} degrees a digit"
        series.append(Series(said, *digits.points.T, labels=[str(digit) for digit in range(len(digits.points))]))
    where = "on their fitted circles" if on_circles else "in the plane of most variance"
    unit = "radii" if on_circles else "root mean square 1"
    return Points(
        f"plane axis 0 ({unit})", "plane axis 1", f"digits' embeddings, {where}", series=series, square=True,
        circle=(0.0, 0.0, 1.0) if on_circles else None,
    )  # fmt: skip


def _units(result: Comparison) -> Curves:
    """Mean activation by the column's total, from the smallest to the largest of each neuron, without a carry in and
    with one. A neuron whose partner falls where it rises is turned around."""
    best = result.unit_pairs.sort_values("distance", kind="stable").head(_MOST_UNITS)
    series = []
    for pair in best.itertuples():
        for of, name, means in zip("ab", (str(pair.a), str(pair.b)), result.unit_means, strict=True):
            values = means.sel(unit=name)
            level = values.values - values.values.min()
            level = level / level.max() if level.max() > 0 else level
            level = 1 - level if of == "b" and float(pair.correlation) < 0 else level
            total, carry = values.digit_sum.values + values.carry_in.values, values.carry_in.values
            x, y = (np.concatenate((at[carry == 0], [np.nan], at[carry == 1])) for at in (total.astype(float), level))
            series.append(Series(f"{of}'s {name}, r = {float(pair.correlation):.3f}", x, y))
    shown = f"{len(best)} of {len(result.unit_pairs)}" if len(best) < len(result.unit_pairs) else str(len(best))
    y_title = "mean activation, smallest 0, largest 1"
    return Curves("digits and carry in of the column", y_title, f"{shown} matched MLP neurons", series=series)


@drawing(Comparison, "parameters")
def parameters_view(result: Comparison) -> Table:
    """Both models' parameters number by number, if they have the same. Raises UserError if they do not."""
    if result.parameters is None or not len(result.parameters):
        raise UserError(f"{result.names[0]} and {result.names[1]} do not have the same parameters.")
    rows = result.parameters
    names = rows["parameter"] + [f"[{index}]" if index else "" for index in rows["index"]]
    columns = ("a", "b", "difference")
    texts = [[number(row[each]) for each in columns] for _, row in rows.iterrows()]
    return Table(texts=texts, rows=names.tolist(), columns=columns)
