"""Intervals of differences between two rates or two means."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri, stdtrit

from interp.core.stats import UPPER, Bounds, mean_interval
from models.errors import UserError


def rate_difference(k: int, n: int, k2: int, n2: int) -> tuple[float, float, float]:
    """``k / n - k2 / n2`` of independent counts with its interval: (value, low, high).

    The interval is Newcombe's hybrid score interval (1998, Statistics in Medicine 17, 873-890, method 10).

    Raises:
        UserError: a count is not between 0 and its number of trials, or there are no trials.
    """
    if not (0 <= k <= n and 0 <= k2 <= n2 and n and n2):
        raise UserError(f"Two shares need trials and counts among them, not {k} of {n} and {k2} of {n2}.")
    z = float(ndtri(UPPER))
    p, p2 = k / n, k2 / n2
    (low, high), (low2, high2) = _wilson(p, n, z), _wilson(p2, n2, z)
    value = p - p2
    return value, value - math.hypot(p - low, high2 - p2), value + math.hypot(high - p, p2 - low2)


def _wilson(p: float, n: int, z: float) -> tuple[float, float]:
    """Wilson's score interval of a share (scipy.stats has it, but takes a second to import)."""
    centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)


def mean_difference(
    values: Float[np.ndarray, " n"],
    others: Float[np.ndarray, " m"],
    bounds: Bounds | None = None,
) -> tuple[float, float, float]:
    """Difference of the means of two independent samples with its interval: (value, low, high).

    The interval is Welch's, which allows unequal variances; it is infinite where neither sample has any spread. With
    ``bounds`` of the values it is what the intervals of the two means imply (Newcombe's hybrid), which have them too.
    Where a sample has a single value it is infinite with bounds as well: nothing tells how such values vary.
    """
    value = float(np.mean(values) - np.mean(others))
    if min(len(values), len(others)) < 2:
        return value, -math.inf, math.inf
    if bounds is not None:
        (mean, low, high), (other, low2, high2) = mean_interval(values, bounds), mean_interval(others, bounds)
        return value, value - math.hypot(mean - low, high2 - other), value + math.hypot(high - mean, other - low2)
    parts = np.array([np.var(x, ddof=1) / len(x) for x in (values, others)])
    if not parts.any():
        return value, -math.inf, math.inf
    df = parts.sum() ** 2 / (parts**2 / (np.array([len(values), len(others)]) - 1)).sum()
    half = float(stdtrit(df, UPPER) * math.sqrt(parts.sum()))
    return value, value - half, value + half
