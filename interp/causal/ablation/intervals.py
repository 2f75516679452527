"""Intervals for the effects of ablations, over strata in which problems have different numbers of targets."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Shaped

from interp.core.stats import bounds_of, clustered_proportion, ratio_interval


def bootstrap_ratio(
    values: Shaped[np.ndarray, "*cell n read"],
    mask: Bool[np.ndarray, "n read"],
    seed: int,
    before: Shaped[np.ndarray, "n read"] | None = None,
) -> Float[np.ndarray, "*cell 3"]:
    """Mean over the masked entries with its 95% bootstrap interval: (value, low, high), one per cell.

    The mean is that of ``values``, or with ``before`` that of ``before - values``, the drop.

    Problems are resampled with all of their entries; problems without an entry are left out. The mean is the ratio of
    two sums, both recomputed in every draw (:func:`interp.core.stats.ratio_interval`). NaN for an empty mask. Drops of
    truth values lie between -1 and 1, whichever signs the cells of this call have.
    """
    rows = mask.any(1)
    if not rows.any():
        return np.full((*values.shape[:-2], 3), np.nan)
    flat, chosen = values.reshape(-1, *mask.shape), mask[rows]
    total = np.empty((len(flat), int(rows.sum())))  # cell by cell, as the values may be many
    for one, cell in zip(total, flat, strict=True):
        held = cell[rows].astype(np.float64) if before is None else before[rows].astype(np.float64) - cell[rows]
        one[:] = np.where(chosen, held, 0.0).sum(1)
    bounds = bounds_of(flat) if before is None else (-1.0, 1.0) if before.dtype == bool else None
    found = np.stack(ratio_interval(total, chosen.sum(1), seed, bounds=bounds), -1)
    return found.reshape(*values.shape[:-2], 3)


def masked_proportions(
    right: Bool[np.ndarray, "*cell n read"], mask: Bool[np.ndarray, "n read"]
) -> Float[np.ndarray, "*cell 3"]:
    """Share right among the masked entries with its Korn-Graubard interval, problems as clusters; NaN where empty.

    With one entry per problem the interval is Clopper and Pearson's.
    """
    found = np.full((int(np.prod(right.shape[:-2])), 3), np.nan)
    problem = np.nonzero(mask)[0]
    if len(problem):
        for index, cell in enumerate(right.reshape(-1, *mask.shape)):
            estimate = clustered_proportion(cell[mask].astype(bool), problem)
            found[index] = estimate.value, estimate.low, estimate.high
    return found.reshape(*right.shape[:-2], 3)
