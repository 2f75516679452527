"""What a distance between two models would be without their likeness: untrained copies, and shuffled labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from interp.compare.head_matching import head_distances, shuffled_roles
from interp.compare.matching import match, relabelled_distances
from interp.compare.neuron_matching import correlations, sign_free, unit_distances, varying
from interp.compare.paired_readings import Readings
from interp.compare.weight_circuits import NAMES
from interp.core.significance import permutation_p

CONTROLS = 39
_SQUARE = ("digits", "places", "OV written: token", "OV written: place")  # tables whose rows are also the columns


@dataclass(frozen=True, eq=False)
class PairMeasurement:
    """Measurements of one pair of models: rows (part, quantity, a, b, distance, factor, nothing), matched neurons."""

    rows: list[dict[str, Any]]
    pairs: list[dict[str, Any]]
    units: xr.DataArray


@dataclass(frozen=True, eq=False)
class ModelTables:
    """A model's readings and tables."""

    reading: Readings
    heads: Mapping[str, Float[np.ndarray, "head _ _"]]  # the numbers of rows and columns differ between tables
    whole: Mapping[str, Float[np.ndarray, "_ _"]]


def null_columns(
    row: Mapping[str, Any], controls: Sequence[PairMeasurement], fixed: str, shuffled: Callable[..., Any]
) -> dict:
    """Untrained and shuffled means and p-values of one row; NaN if one model's table is all zeros."""
    if row["nothing"]:
        return dict.fromkeys(("distance_untrained", "p_untrained", "distance_shuffled", "p_shuffled"), np.nan)
    null = [
        other["distance"] for control in controls for other in control.rows if _key(other, fixed) == _key(row, fixed)
    ]
    by_label = shuffled(row)
    return {
        "distance_untrained": float(np.mean(null)) if null else np.nan,
        "p_untrained": _closer(row["distance"], np.array(null)),
        "distance_shuffled": float(by_label.mean()) if len(by_label) else np.nan,
        "p_shuffled": _closer(row["distance"], by_label),
    }


def _key(row: Mapping[str, Any], fixed: str) -> tuple[str, ...]:
    """The key by which a copy's row is matched with another: the quantity, at the head that both share."""
    return ("units",) if row["part"] == "units" else (row["part"], row["quantity"], row[fixed])


def pair_null(pair: Mapping[str, Any], controls: Sequence[PairMeasurement], fixed: str) -> dict[str, float]:
    null = [other["distance"] for control in controls for other in control.pairs if other[fixed] == pair[fixed]]
    mean = float(np.mean(null)) if null else np.nan
    return {"distance_untrained": mean, "p_untrained": _closer(pair["distance"], np.array(null))}


def _closer(distance: float, null: Float[np.ndarray, " draw"]) -> float:
    return permutation_p(-float(distance), -null) if len(null) else float("nan")


def shuffled_distances(left: ModelTables, right: ModelTables, rng: np.random.Generator) -> Callable[..., Any]:
    """Distances under shuffled labels, for any row of the table that has labels to shuffle."""
    index = {name: i for i, name in enumerate(left.reading.heads)}, {n: j for j, n in enumerate(right.reading.heads)}
    words = {words: name for name, words in NAMES.items()}
    roles = [shuffled_roles(left.reading.roles, rng) for _ in range(CONTROLS)]
    by_pair = [head_distances(each, right.reading.roles).mean(0) for each in roles]
    matched = [{j: distance[i, j] for j, i in match(distance)} for distance in by_pair]

    def draws(row: Mapping[str, Any]) -> Float[np.ndarray, " draw"]:
        if row["part"] == "heads":
            other = index[1][row["b"]]
            return np.array([each[other] for each in matched if other in each])
        if row["part"] == "units":
            return np.array([_units_shuffled(left.reading, right.reading, rng) for _ in range(CONTROLS)])
        name = words[row["quantity"]]
        if name == "QK: place -> place":
            return np.zeros(0)  # what a query sees depends on its place, so its rows cannot be permuted
        if row["part"] == "circuits":
            tables = left.heads[name][index[0][row["a"]]], right.heads[name][index[1][row["b"]]]
        else:
            tables = left.whole[name], right.whole[name]
        return relabelled_distances(*tables, name in _SQUARE, 199, rng)

    return draws


def _units_shuffled(a: Readings, b: Readings, rng: np.random.Generator) -> float:
    kept = [varying(reading.units) for reading in (a, b)]
    order = rng.permutation(len(a.units))
    values = correlations(a.units[order][..., kept[0]], b.units[..., kept[1]])
    distance = unit_distances(values, sign_free(a, b))
    return float(np.mean([distance[i, j] for j, i in match(distance)]))
