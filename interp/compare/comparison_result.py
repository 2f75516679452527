"""The result of :func:`interp.compare`."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import xarray as xr

from interp.compare.digits import DigitPoints
from interp.compare.weight_circuits import NAMES
from interp.core.controls import NO_CONTROL
from interp.core.results import Provenance, Result
from models.errors import known_name


@dataclass(frozen=True, eq=False)
class Comparison(Result):
    """Comparison of two models; ``names`` are a's and b's.

    ``table`` has one row per measured quantity: ``part`` ("heads", "units", "circuits", "responses", "embeddings"),
    ``quantity``, ``a`` and ``b`` (the matched heads; "" for the whole model), ``distance``, ``low`` and ``high`` (over
    problems; only for heads), ``factor`` (by which a's table is multiplied to be closest to b's), ``nothing`` ("a" or
    "b" if that model's table is all zeros, at distance 1 from any; if both are, there is no row), ``untrained`` (mean
    of the copies) and ``p_untrained``, ``shuffled`` and ``p_shuffled``.

    ``heads``: Dataset over (a, b) of ``distance``, ``low``, ``high``. ``unit_pairs``: matched neurons with their
    correlation. ``units`` (a, b): all correlations between units that vary. ``still``: how many units of a and of b do
    not vary. ``roles``: both models' mean weight [head, target, role]. ``unit_means``: both models' mean activation
    [unit, cell], cells with ``digit_sum`` and ``carry_in``. ``digits``: both models' digit embeddings in a plane.
    ``parameters``: both models' numbers next to each other, or None. ``control``: whose copies, and how many.
    """

    table: pd.DataFrame
    heads: xr.Dataset
    unit_pairs: pd.DataFrame
    units: xr.DataArray
    still: tuple[int, int]
    roles: tuple[xr.DataArray, xr.DataArray]
    unit_means: tuple[xr.DataArray, xr.DataArray]
    digits: tuple[DigitPoints, DigitPoints]
    parameters: pd.DataFrame | None
    names: tuple[str, str]
    control: tuple[str, int]
    provenance: Provenance

    @property
    def head_pairs(self) -> list[tuple[str, str]]:
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
