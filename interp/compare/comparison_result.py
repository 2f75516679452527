"""The result of :func:`interp.compare`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from interp.compare.digit_planes import DigitPoints
from interp.compare.weight_circuits import NAMES
from interp.core.controls import NO_CONTROL
from interp.core.drawings import drawing
from interp.core.results import Provenance, Result
from interp.core.views import Curves, Grid, Picture, Points, Series, Table, View
from models.errors import UserError, known_name
from models.number_format import in_percent, number


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Comparison of two models; ``names`` are a's and b's.

    ``table`` has one row per measured quantity: ``part`` ("heads", "units", "circuits", "responses", "embeddings"),
    ``quantity``, ``a`` and ``b`` (the matched heads; "" for the whole model), ``distance``, ``low`` and ``high`` (over
    problems; only for heads), ``factor`` (by which a's table is multiplied to be closest to b's), ``nothing`` ("a" or
    "b" if that model's table is all zeros, at distance 1 from any; if both are, there is no row), ``untrained`` (mean
    of the copies) and ``p_untrained``, ``shuffled`` and ``p_shuffled``.

    ``heads``: Dataset over (a, b) of ``distance``, ``low``, ``high``. ``unit_pairs``: matched neurons with their
    correlation. ``units`` (a, b): all correlations between units that vary. ``roles``: both models' mean weight [head,
    target, role]. ``unit_means``: both models' mean activation [unit, cell], cells with ``digit_sum`` and ``carry_in``.
    ``digits``: both models' digit embeddings in a plane. ``parameters``: both models' numbers next to each other, or
    None. ``control``: whose copies, and how many.
    """

    table: pd.DataFrame
    heads: xr.Dataset
    unit_pairs: pd.DataFrame
    units: xr.DataArray
    roles: tuple[xr.DataArray, xr.DataArray]
    unit_means: tuple[xr.DataArray, xr.DataArray]
    digits: tuple[DigitPoints, DigitPoints]
    parameters: pd.DataFrame | None
    names: tuple[str, str]
    control: tuple[str, int]
    provenance: Provenance

    @property
    def _head_pairs(self) -> list[tuple[str, str]]:
        """The matching: (a's head, b's head)."""
        rows = self._rows("attention by role")
        return list(zip(rows["a"].tolist(), rows["b"].tolist(), strict=True))

    def distance(self, quantity: str) -> float:
        """Distance in one quantity, averaged over matched pairs. Raises UserError if the table does not have it."""
        rows = self._rows(known_name("quantity", quantity, self.table["quantity"].unique()))
        return float(rows["distance"].mean())

    def sentence(self) -> str:
        heads = self.table[self.table["part"] == "heads"]
        texts = [f"attention by role of the matched heads {self._numbers(heads)}"]
        units = self.table[self.table["part"] == "units"]
        if len(units):
            texts.append(
                f"{len(self.unit_pairs)} matched MLP neurons with a mean correlation of "
                f"{self.unit_pairs['correlation'].abs().mean():.3f} (distance {self._numbers(units)})"
            )
        if len(logits := self._rows(NAMES["logits"])):
            texts.append(f"logits by digit sum and carry {self._numbers(logits)}")
        tables = self.table[self.table["part"] == "circuits"]
        both = tables[tables["nothing"] == ""]
        if len(both):
            near, far = (both.loc[pick] for pick in (both["distance"].idxmin(), both["distance"].idxmax()))
            said = (
                f"{len(both)} circuit tables from {near['distance']:.3f} ({near['quantity']}) to {far['distance']:.3f} "
                f"({far['quantity']})"
                if len(both) > 1
                else f"one circuit table {near['distance']:.3f} ({near['quantity']})"
            )
            texts.append(
                said + (f" and {len(tables) - len(both)} that only one model has" if len(tables) > len(both) else "")
            )
        if not self.control[1]:
            texts.append(NO_CONTROL)
        return f"Distances between {self.names[0]} and {self.names[1]}, from 0 to 1: {'; '.join(texts)}."

    def _rows(self, quantity: str) -> pd.DataFrame:
        return self.table[self.table["quantity"] == quantity]

    def _numbers(self, rows: pd.DataFrame) -> str:
        """The distance of one row, or the largest of many, with that of untrained copies."""
        row = rows.loc[rows["distance"].idxmax()]
        which = f" at most ({row['a']} - {row['b']})" if len(rows) > 1 else ""
        control = f"; untrained {row['untrained']:.3f}, p = {row['p_untrained']:.3f}" if self.control[1] else ""
        return f"{row['distance']:.3f}{which}{control}"

    def to_dataframe(self) -> pd.DataFrame:
        """``table`` with the number of problems."""
        return super().to_dataframe().assign(n=self.provenance.n)


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
    said = [f"distance of where matched heads look {result.distance('attention by role'):.3f}"]
    for rows, name in (
        (result.table[result.table["part"] == "units"], "of matched MLP neurons"),
        (result.table[result.table["quantity"].str.startswith("logits by")], "of the logits by digit sum and carry"),
    ):
        said += [f"{name} {float(rows['distance'].iloc[0]):.3f}"] if len(rows) else []
    title = f"{result.names[0]} next to {result.names[1]}: {', '.join(said)}"
    return Picture(views, columns=2, title=title, note=note)


def _distances(result: Comparison) -> Points:
    """One row per quantity, one mark per matched pair (or one for the whole model)."""
    rows = result.table[result.table["nothing"] == ""]
    which = [f"{a} - {b}" if a else "whole model" for a, b in zip(rows["a"], rows["b"], strict=True)]
    series = []
    for column, name in (
        ("distance", "distance"),
        ("untrained", "untrained copies (mean)"),
        ("shuffled", "labels shuffled (mean)"),
    ):
        said: dict[str, Any] = {"of": which}
        said |= {"p": rows[f"p_{column}"].to_numpy()} if f"p_{column}" in rows else {}
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
