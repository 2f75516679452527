"""Intervals and controls that the probes share.

Proportions get exact (Clopper-Pearson) intervals. The columns of one addition share its carries and are not
independent, so a proportion over columns gets the interval of Korn and Graubard (1998, Survey Methodology 24,
193-201): Clopper-Pearson at the effective sample size that the spread *between problems* implies.

A bootstrap underestimates the spread of a few examples, and its percentiles are those of a normal distribution where
Student's t is due. :func:`widened` corrects both; every bootstrap here goes through it. No interval for the mean of few
examples from a long-tailed distribution reaches its nominal coverage: see the coverages in the tests.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Real
from scipy.special import betaincinv, ndtri, stdtrit

from models.errors import UserError

#: The confidence level of all intervals, and the quantiles at their ends.
LEVEL = 0.95
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
UPPER = TAILS[1]


@dataclass(frozen=True)
class Proportion:
    """``successes / n`` with its confidence interval, which was computed at the sample size ``n_effective``."""

    successes: int
    n: int
    low: float
    high: float
    n_effective: float

    @property
    def value(self) -> float:
        return self.successes / self.n if self.n else float("nan")

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def clopper_pearson(successes: float | int, n: float | int, confidence: float = LEVEL) -> tuple[float, float]:
    """Exact binomial interval for a proportion: at least ``confidence`` coverage for every true value.

    ``n`` may be an effective (non-integer) sample size. With n = 0 the interval is (0, 1).

    Raises:
        UserError: ``successes`` outside 0..n, or a confidence outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise UserError(f"A confidence level lies between 0 and 1, not {confidence}.")
    if not 0 <= successes <= n:
        raise UserError(f"{successes} successes out of {n} is not a proportion.")
    low, high = _exact_ends(np.asarray(successes, dtype=float), np.asarray(n, dtype=float), confidence)
    return float(low), float(high)


def _exact_ends(
    successes: Float[np.ndarray, "*shape"], n: Float[np.ndarray, "*shape"], confidence: float
) -> Float[np.ndarray, "2 *shape"]:
    """Clopper-Pearson intervals of many proportions."""
    tail, failures, least = (1 - confidence) / 2, n - successes, np.finfo(float).tiny
    low = np.where(successes == 0, 0.0, betaincinv(np.maximum(successes, least), failures + 1, tail))
    high = np.where(failures == 0, 1.0, betaincinv(successes + 1, np.maximum(failures, least), 1 - tail))
    return np.stack((low, high))


def proportion(right: Any) -> Proportion:
    """A share of independent cases with its Clopper-Pearson interval."""
    k, n = int(np.sum(right)), len(right)
    return Proportion(k, n, *clopper_pearson(k, n), float(n))


def clustered_proportion(success: Bool[np.ndarray, " row"], cluster: Int[np.ndarray, " row"]) -> Proportion:
    """A proportion over rows in numbered clusters (such as the columns of one problem), with Korn-Graubard interval.

    The variance of the ratio estimate is the jackknife's over clusters, which does not let a large cluster hide its own
    residual. The effective sample size ``n / (n - 1) p (1 - p) / variance`` is multiplied by
    ``(t(n - 1) / t(m - 1))^2``, Student quantiles, and is at most n. Clusters of unequal size count as
    ``m = n^2 / sum of squared sizes`` (Kish), which is their number where all sizes are equal. Where every row agrees,
    the variance says nothing and m is used: the rows of one problem then count once. If every row is a cluster of its
    own, the interval is Clopper and Pearson's. With m below about 10 no method is reliable.
    """
    if len(success) == 0:
        return Proportion(0, 0, 0.0, 1.0, 0.0)
    _, low, high, effective = clustered_proportions(success[:, None], cluster)[:, 0].tolist()
    return Proportion(int(success.sum()), len(success), low, high, effective)


def clustered_proportions(
    success: Bool[np.ndarray, "row column"], cluster: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "4 column"]:
    """:func:`clustered_proportion` of many columns over the same rows, at least one.

    Returns the value, the ends of its interval, and the effective sample size.
    """
    n, k = len(success), success.sum(0)
    size = np.bincount(cluster)
    present = size > 0
    size, clusters = size[present].astype(float), int(present.sum())
    p = k / n
    least = n**2 / float((size**2).sum())
    effective = np.full(p.shape, least)
    mixed = np.flatnonzero((k > 0) & (k < n)) if clusters > 1 else np.zeros(0, dtype=int)
    if len(mixed):
        residual = [np.bincount(cluster, weights=success[:, column] - p[column])[present] for column in mixed]
        variance = (clusters - 1) / clusters * ((np.stack(residual) / (n - size)) ** 2).sum(1)
        t_ratio = float(stdtrit(n - 1, UPPER) / stdtrit(max(least - 1, LEAST_DF), UPPER))
        spread = n / (n - 1) * p[mixed] * (1 - p[mixed])
        with np.errstate(divide="ignore"):
            effective[mixed] = np.minimum(spread / variance * t_ratio**2, float(n))
    low, high = _exact_ends(p * effective, effective, LEVEL)
    return np.stack((p, low, high, effective))


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


def mean_interval(values: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """Mean and Student-t interval of independent values; the interval of a single value is infinite."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return mean, -float("inf"), float("inf")
    half = float(stdtrit(n - 1, UPPER) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def mean_difference(
    values: Float[np.ndarray, " n"], others: Float[np.ndarray, " m"], confidence: float = 0.95
) -> tuple[float, float, float]:
    """Difference of the means of two independent samples with its interval: (value, low, high).

    The interval is Welch's, which allows unequal variances; it is infinite where a sample has a single value.
    """
    value = float(np.mean(values) - np.mean(others))
    if min(len(values), len(others)) < 2:
        return value, -math.inf, math.inf
    parts = np.array([np.var(x, ddof=1) / len(x) for x in (values, others)])
    if not parts.any():
        return value, value, value
    df = parts.sum() ** 2 / (parts**2 / (np.array([len(values), len(others)]) - 1)).sum()
    half = float(stdtrit(df, (1 + confidence) / 2) * math.sqrt(parts.sum()))
    return value, value - half, value + half


def mean_intervals(
    values: Float[np.ndarray, "n *cell"],
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """:func:`mean_interval` over the first axis, cell by cell, without missing values (NaN)."""
    found = np.full((3, *values.shape[1:]), np.nan)
    for cell in np.ndindex(*values.shape[1:]):
        column = values[(slice(None), *cell)]
        if len(kept := column[~np.isnan(column)]):
            found[(slice(None), *cell)] = mean_interval(kept)
    return found[0], found[1], found[2]


LEAST_DF = 0.1  # degrees of freedom where one cluster holds nearly all rows: the interval is then nearly [0, 1]


def widened(
    value: Float[np.ndarray, "*cell"] | float,
    low: Float[np.ndarray, "*cell"] | float,
    high: Float[np.ndarray, "*cell"] | float,
    n: int,
) -> tuple[Any, Any]:
    """The ends of a percentile bootstrap interval of ``n`` examples, widened to make up for a small n.

    Both distances from the value are multiplied by ``t(n - 1) / z sqrt(n / (n - 1))``: the bootstrap's variance divides
    by n in place of n - 1, and its percentiles are a normal's. For the mean of normal values this is Student's
    interval; the skew that the bootstrap found is kept. (Hesterberg 2015, American Statistician 69, 371-386, section
    4.1, widens the levels instead, which cannot lead beyond the examples.) For a single example it is infinite.
    """
    if n < 2:
        return value - np.inf, value + np.inf
    factor = float(stdtrit(n - 1, UPPER) / ndtri(UPPER)) * np.sqrt(n / (n - 1))
    return value + factor * (low - value), value + factor * (high - value)


def percentile_interval(
    value: Float[np.ndarray, "*cell"] | float,
    drawn: Float[np.ndarray, "*cell resample"],
    n: int,
) -> tuple[Any, Any]:
    """(low, high) of a statistic of ``n`` examples: percentiles of its bootstrap draws, :func:`widened`.

    Draws that are NaN do not count; the ends are NaN where all draws are.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of a cell without a number
        quantile = np.nanquantile if np.isnan(drawn).any() else np.quantile  # much faster
        low, high = quantile(drawn, TAILS, axis=-1)
    return widened(value, low, high, n)


#: The memory budget for whatever grows with the sample: how many float64 numbers are held at once (128 MB). Larger
#: computations are cut into blocks of examples.
NUMBERS_AT_ONCE = 2**24
_MEANS_AT_ONCE = 2**22  # resampled means held at once


def resampled_sums(
    values: Float[np.ndarray, "cell n"], seed: int, resamples: int = 1000
) -> Float[np.ndarray, "cell resample"]:
    """Sums of ``values / n`` over bootstrap draws of the n examples, the same draws for every cell and every call.

    The counts take n numbers per resample. Where that exceeds :data:`NUMBERS_AT_ONCE`, they are drawn by blocks of
    examples, after the number that falls into each block: the same distribution, from other random numbers.
    """
    n, rng = values.shape[-1], np.random.default_rng(seed)
    size = max(1, NUMBERS_AT_ONCE // resamples)
    if n <= size:
        return values @ (rng.multinomial(n, np.full(n, 1 / n), size=resamples).T / n)
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    lengths = np.array([block.stop - block.start for block in blocks])
    found = np.zeros((len(values), resamples))
    for block, length, drawn in zip(blocks, lengths, rng.multinomial(n, lengths / n, size=resamples).T, strict=True):
        found += values[:, block] @ (rng.multinomial(drawn, np.full(length, 1 / length)).T / n)
    return found


def bootstrap_interval(
    values: Float[np.ndarray, "*cell n"], seed: int, resamples: int = 1000
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """Bootstrap interval, (low, high), of the mean over the last axis, one per cell; see :func:`ratio_interval`."""
    _, low, high = ratio_interval(values, np.ones(values.shape[-1]), seed, resamples)
    return low, high


def ratio_interval(
    above: Float[np.ndarray, "*cell n"], below: Real[np.ndarray, " n"], seed: int, resamples: int = 1000
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """``mean(above) / mean(below)`` over the last axis and the ends of its :func:`widened` bootstrap interval.

    Numerator and denominator are resampled together, and all cells alike: example i is in the same draws everywhere, so
    cells may be compared. Where the denominator's own interval holds zero, the ends are NaN: the examples do not tell
    how much there is to share. Cost: one product [cell, n] by [n, resamples].

    Raises:
        UserError: no example, no resample, or a denominator whose mean is zero.
    """
    n = len(below)
    if not n or resamples < 1:
        raise UserError(f"A bootstrap needs examples and at least 1 resample, not {n} and {resamples}.")
    flat, below = above.reshape(-1, n).astype(np.float64), below.astype(np.float64)
    if below.mean() == 0:
        raise UserError("The mean that others are compared with is zero, so that no share of it can be taken.")
    ones = bool((below == 1).all())  # then the mean of the draws is 1, without the rounding of its sum
    whole = np.ones(resamples) if ones else resampled_sums(below[None], seed, resamples)[0]
    step = max(1, _MEANS_AT_ONCE // resamples)
    value, ends = flat.mean(-1) / below.mean(), np.empty((2, len(flat)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for at in (slice(start, start + step) for start in range(0, len(flat), step)):
            drawn = resampled_sums(flat[at], seed, resamples) / whole
            ends[:, at] = percentile_interval(value[at], drawn, n)
    if min((whole > 0).mean(), (whole < 0).mean()) > TAILS[0]:  # the denominator may be zero, and the ratio anything
        ends[:] = np.nan
    value, low, high = (x.reshape(above.shape[:-1]) for x in (value, *ends))
    return value, low, high


def permutation_p(observed: Any, null: Float[np.ndarray, "draw *cell"]) -> Any:
    """Share of draws at least as large as the observation, which counts as a draw: never below 1 / (draws + 1).

    An array of observations [*cell] gives one share per cell.
    """
    slack = 1e-12 * np.maximum(1.0, np.abs(observed))  # the observation itself, recomputed, must not count as smaller
    p = (1 + (null >= observed - slack).sum(0)) / (len(null) + 1)
    return p if np.ndim(p) else float(p)


def auroc(
    values: Float[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"]
) -> Float[np.ndarray, "unit signal"]:
    """Chance that a row with the signal has the larger value, ties counted half (Mann-Whitney U / n1 n0).

    NaN where a signal is always or never present.
    """
    with_signal = labels.sum(0).astype(float)
    pairs = with_signal * (len(labels) - with_signal)
    from scipy.stats import rankdata  # imported here: it takes 57 MB, and few programs need it

    ranks = rankdata(values, axis=0) if len(values) else values
    u = ranks.T @ labels.astype(float) - with_signal * (with_signal + 1) / 2
    return np.where(pairs > 0, u / np.where(pairs > 0, pairs, 1.0), np.nan)


def stratified_auroc(
    values: Float[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"], stratum: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "unit signal"]:
    """AUROC among pairs of rows that agree in ``stratum``: what a signal adds once the other is held fixed.

    The two strata are weighted by their number of pairs. NaN where the stratum leaves no pair to compare.
    """

    def within(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        present = labels[rows].sum(0).astype(float)
        return np.nan_to_num(auroc(values[rows], labels[rows])), present * (rows.sum() - present)

    return _pooled(within, stratum)


def stratified_difference(
    outcome: Float[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"], stratum: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "unit signal"]:
    """Mean outcome with minus without the signal, ``stratum`` held fixed (Cochran-Mantel-Haenszel weights).

    ``sum_k w_k (mean1_k - mean0_k) / sum_k w_k`` with ``w_k = n1_k n0_k / (n1_k + n0_k)``; NaN if no stratum has both.
    """

    def within(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y, x = outcome[rows], labels[rows].astype(float)
        n1 = x.sum(0)
        n0 = len(x) - n1
        ok = (n1 > 0) & (n0 > 0)
        with_sum = y.T @ x
        means = with_sum / np.where(ok, n1, 1.0) - (y.sum(0)[:, None] - with_sum) / np.where(ok, n0, 1.0)
        return means, np.where(ok, n1 * n0 / np.maximum(n1 + n0, 1.0), 0.0)

    return _pooled(within, stratum)


def _pooled(
    within: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], stratum: Bool[np.ndarray, " row"]
) -> Float[np.ndarray, "unit signal"]:
    """Weighted mean over the two strata; ``within(rows)`` gives (value, weight [signal]). NaN without weight."""
    (value, weight), (other, more) = within(~stratum), within(stratum)
    both = weight + more
    return np.where(both > 0, (value * weight + other * more) / np.where(both > 0, both, 1.0), np.nan)


def best_threshold(
    values: Float[np.ndarray, " row"], labels: Bool[np.ndarray, "row signal"]
) -> tuple[Float[np.ndarray, " signal"], Bool[np.ndarray, " signal"], Float[np.ndarray, " signal"]]:
    """The cut that classifies each signal best, on these rows: (threshold, signal lies above it, accuracy).

    The threshold is halfway between two neighbouring values, or infinite where one class for all rows is best.
    """
    order = np.argsort(values, kind="stable")
    ordered, label = values[order], labels[order].astype(float)
    n = len(values)
    below = np.concatenate((np.zeros((1, label.shape[1])), np.cumsum(label, 0)))  # rows with it among the i lowest
    above_right = (np.arange(n + 1)[:, None] - below + (below[-1] - below)) / n
    cut = np.ones(n + 1, dtype=bool)
    cut[1:-1] = ordered[1:] > ordered[:-1]  # no cut between equal values
    edges = np.concatenate(([-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]))[cut]
    above_right = above_right[cut]
    high, low = above_right.argmax(0), above_right.argmin(0)
    columns = np.arange(label.shape[1])
    accuracy_above, accuracy_below = above_right[high, columns], 1 - above_right[low, columns]
    above = accuracy_above >= accuracy_below
    return np.where(above, edges[high], edges[low]), above, np.maximum(accuracy_above, accuracy_below)
