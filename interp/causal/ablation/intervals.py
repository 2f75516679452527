"""Intervals for the effects of ablations, over strata in which problems have different numbers of targets."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp.core.stats import Bounds, bounds_of, clustered_proportion, ratio_interval


def bootstrap_ratio(
    values: Float[np.ndarray, "*cell n read"], mask: Bool[np.ndarray, "n read"], seed: int, bounds: Bounds | None = None
) -> Float[np.ndarray, "*cell 3"]:
    """Mean over the masked entries with its 95% bootstrap interval: (value, low, high), one per cell.

    Problems are resampled with all of their entries; problems without an entry are left out. The mean is the ratio of
    two sums, both recomputed in every draw (:func:`interp.core.stats.ratio_interval`). NaN for an empty mask. Where
    ``bounds`` of the values are not given, values that are all 0 or 1 in every cell are taken for shares.
    """
    rows = mask.any(1)
    if not rows.any():
        return np.full((*values.shape[:-2], 3), np.nan)
    flat = values.reshape(-1, *mask.shape)
    total = np.stack([np.where(mask, cell, 0.0)[rows].sum(1, dtype=np.float64) for cell in flat])  # [cell, n]
    found = np.stack(ratio_interval(total, mask[rows].sum(1), seed, bounds=bounds or bounds_of(flat)), -1)
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
