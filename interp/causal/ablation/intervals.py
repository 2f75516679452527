"""Intervals of what an ablation changes, over strata in which problems have different numbers of targets."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from interp.core.stats import clustered_proportion, resampled_sums, widened

RESAMPLES = 1000
_AT_ONCE = 2**22  # numbers
_TAILS = (0.025, 0.975)


def bootstrap_ratio(
    values: Float[np.ndarray, "*cell n read"], mask: Bool[np.ndarray, "n read"], seed: int, resamples: int = RESAMPLES
) -> Float[np.ndarray, "*cell 3"]:
    """Mean over the masked entries with its 95% bootstrap interval: (value, low, high), one a cell.

    Problems are resampled, each with all of its entries, those without an entry left out; the mean is the ratio of two
    sums, both taken again in every draw. All cells get the same draws. With one entry per problem it is
    :func:`interp.core.stats.bootstrap_interval`. NaN for an empty mask.

    A difference that is zero in every problem of the sample has the interval [0, 0]: the bootstrap sees no spread.
    """
    rows = mask.any(1)
    n = int(rows.sum())
    if not n:
        return np.full((*values.shape[:-2], 3), np.nan)
    weight = mask[rows].sum(1).astype(np.float64)
    below = resampled_sums(weight[None], seed, resamples)
    flat = values.reshape(-1, *mask.shape)
    total = np.stack([np.where(mask, cell, 0.0)[rows].sum(1, dtype=np.float64) for cell in flat])  # [cell, n]
    value = total.sum(1) / weight.sum()
    step = max(1, _AT_ONCE // resamples)
    draws = [
        np.quantile(resampled_sums(total[i : i + step], seed, resamples) / below, _TAILS, axis=1)
        for i in range(0, len(total), step)
    ]
    low, high = np.concatenate(draws, 1)
    low, high = widened(value, low, high, n)
    return np.stack((value, low, high), -1).reshape(*values.shape[:-2], 3)


def masked_proportions(
    right: Bool[np.ndarray, "*cell n read"], mask: Bool[np.ndarray, "n read"]
) -> Float[np.ndarray, "*cell 3"]:
    """Share right among the masked entries with its Korn-Graubard interval, problems as clusters; NaN where empty.

    With one entry per problem it is Clopper and Pearson's.
    """
    found = np.full((int(np.prod(right.shape[:-2])), 3), np.nan)
    problem = np.nonzero(mask)[0]
    if len(problem):
        for index, cell in enumerate(right.reshape(-1, *mask.shape)):
            estimate = clustered_proportion(cell[mask].astype(bool), problem)
            found[index] = estimate.value, estimate.low, estimate.high
    return found.reshape(*right.shape[:-2], 3)
