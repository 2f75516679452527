"""Matching of two models' MLP neurons by what they respond to.

Over the same problems and targets, ``mlp.hook_post`` of two units has correlation r, and

    distance = 1 - max(0, r)       a unit that does the opposite is as far as one that does something else

since no sign can be moved through a ReLU or GELU. Through a *gated* unit it can (``act(gate) * linear``: the signs of
``linear`` and of what the unit writes), so there |r| replaces r. The scale of a unit does not matter. Units that never
vary on the problems have no correlation; they are left out and counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from interp.compare.matching import match
from interp.compare.paired_readings import Readings

_STILL = 1e-7  # below this spread, relative to the largest activation, a unit is constant up to rounding

Units = Float[np.ndarray, "n target unit"]


def varying(units: Units) -> Bool[np.ndarray, " unit"]:
    """Mask of the units that are not constant over problems and targets."""
    flat = units.reshape(units.shape[0] * units.shape[1], units.shape[2])
    return flat.std(0) > _STILL * max(float(np.abs(flat).max(initial=0.0)), 1e-30)


def correlations(
    left: Float[np.ndarray, "n target left"], right: Float[np.ndarray, "n target right"]
) -> Float[np.ndarray, "left right"]:
    """Pearson correlation of every pair over problems and targets; both sides must vary."""
    x, y = (_standard(part.reshape(-1, part.shape[-1])) for part in (left, right))
    return (x.T @ y).clip(-1, 1)


def unit_distances(correlation: Float[np.ndarray, "left right"], sign_free: bool) -> Float[np.ndarray, "left right"]:
    """1 - max(0, r), or 1 - |r| with ``sign_free``."""
    distance = 1 - (np.abs(correlation) if sign_free else correlation.clip(min=0))
    return np.where(distance < 1e-12, 0.0, distance)


def sign_free(a: Readings, b: Readings) -> bool:
    """Whether a sign can be moved through the units of both models."""
    return bool(a.model.config.gated_mlp and b.model.config.gated_mlp)


def matched_units(a: Readings, b: Readings) -> tuple[xr.DataArray, list[dict[str, Any]]]:
    """Correlations (a, b) of the units that vary, and the matched pairs: a, b, correlation, distance."""
    kept = [varying(reading.units) for reading in (a, b)]
    names = [np.array(reading.unit_names, dtype=object)[mask] for reading, mask in zip((a, b), kept, strict=True)]
    if not all(mask.any() for mask in kept):
        return xr.DataArray(np.zeros((0, 0)), dims=("a", "b"), coords={"a": [], "b": []}), []
    values = correlations(a.units[..., kept[0]], b.units[..., kept[1]])
    distance = unit_distances(values, sign_free(a, b))
    rows = [
        {"a": names[0][i], "b": names[1][j], "correlation": values[i, j], "distance": distance[i, j]}
        for j, i in match(distance)
    ]
    return xr.DataArray(values, dims=("a", "b"), coords={"a": names[0].tolist(), "b": names[1].tolist()}), rows


def _standard(x: Float[np.ndarray, "row unit"]) -> Float[np.ndarray, "row unit"]:
    x = x - x.mean(0)
    return x / np.linalg.norm(x, axis=0)
