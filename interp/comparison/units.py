"""MLP units of two models matched by what they respond to.

Over the same problems and targets, ``mlp.hook_post`` of two units has correlation r, and

    distance = 1 - max(0, r)       a unit that does the opposite is as far as one that does something else

since an activation function has a side: no sign can be moved through a ReLU or GELU. Through a *gated* unit it can
(``act(gate) * linear``: signs of ``linear`` and of what the unit writes), so that there |r| takes the place of r. The
scale of a unit is not seen. Units that never vary on the problems have no correlation and are left out, and counted.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

_STILL = 1e-7  # spread relative to the largest activation, below which a unit is constant up to rounding

Units = Float[np.ndarray, "n target unit"]


def varying(units: Units) -> Bool[np.ndarray, " unit"]:
    """Units that are not constant over problems and targets."""
    flat = units.reshape(units.shape[0] * units.shape[1], units.shape[2])
    return flat.std(0) > _STILL * max(float(np.abs(flat).max(initial=0.0)), 1e-30)


def correlations(left: Units, right: Units) -> Float[np.ndarray, "left right"]:
    """Pearson correlation of every pair over problems and targets; both sides must vary."""
    x, y = (_standard(part.reshape(-1, part.shape[-1])) for part in (left, right))
    return (x.T @ y).clip(-1, 1)


def unit_distances(correlation: Float[np.ndarray, "left right"], sign_free: bool) -> Float[np.ndarray, "left right"]:
    """1 - r, cut off at 1; with ``sign_free`` 1 - |r|."""
    distance = 1 - (np.abs(correlation) if sign_free else correlation.clip(min=0))
    return np.where(distance < 1e-12, 0.0, distance)


def _standard(x: Float[np.ndarray, "row unit"]) -> Float[np.ndarray, "row unit"]:
    x = x - x.mean(0)
    return x / np.linalg.norm(x, axis=0)
