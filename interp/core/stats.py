"""Intervals and controls that the probes share.

Proportions get exact (Clopper-Pearson) intervals. The columns of one addition share its carries and are not
independent, so a proportion over columns gets the interval of Korn and Graubard (1998, Survey Methodology 24,
193-201): Clopper-Pearson at the effective sample size that the spread *between problems* implies.

A bootstrap underestimates the spread of a few examples, and its percentiles are those of a normal distribution where
Student's t is due. :func:`widened` corrects both; every bootstrap here goes through it. Nor does it know of examples
that the sample does not have: where values are bounded, an interval reaches at least as far as a kind of example that
would be missed in one sample of forty (:func:`unseen`) could move the mean. So no interval has zero width where the
sample shows no failure. No interval for the mean of few examples from a long-tailed distribution reaches its nominal
coverage: see the coverages in the tests.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Real, Shaped
from scipy.special import betaincinv, ndtri, stdtrit

from interp.core.bootstrap_draws import resampled_sums
from models.errors import UserError
from models.number_format import in_percent_with

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
        return in_percent_with(self.value, self.low, self.high, counted=True)


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
    the variance says nothing and m is used: the rows of one problem then count once. The variance rests on the clusters
    that have the rarer outcome: if they are fewer (Kish's number of them, f), t(f - 1) takes the place of t(m - 1), but
    then the effective size is not reduced below m. If every row is a cluster of its own, the interval is Clopper and
    Pearson's. With m below about 10 no method is reliable.
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
    n, of_cluster = len(success), cluster_sums(success, cluster)
    size, clusters, k = of_cluster.size.astype(float), len(of_cluster.size), success.sum(0)
    p = k / n
    least = n**2 / float((size**2).sum())
    effective = np.full(p.shape, least)
    mixed = np.flatnonzero((k > 0) & (k < n)) if clusters > 1 else np.zeros(0, dtype=int)
    if len(mixed):
        weight, of_mixed = (n - size) ** -2.0, p[mixed]
        # With s the sums and z the sizes: sums over clusters of (s - p z)^2 / (n - z)^2, and of s^2 or (z - s)^2.
        sums = (of_cluster.sums[:, mixed] if len(mixed) < len(k) else of_cluster.sums).astype(float)
        weighted_sz, sz = np.stack((weight * size, size)) @ sums
        weighted_ss, ss = np.stack((weight, np.ones_like(weight))) @ np.square(sums, out=sums)
        squares = weighted_ss - 2 * of_mixed * weighted_sz + of_mixed**2 * float(weight @ size**2)
        variance = (clusters - 1) / clusters * np.maximum(squares, 0.0)
        rare = 2 * k[mixed] < n
        rows = np.where(rare, k[mixed], n - k[mixed]).astype(float)
        few = np.minimum(rows**2 / np.where(rare, ss, float(size @ size) - 2 * sz + ss), least)
        if n == clusters:  # independent rows, whose interval is exact
            few[:] = least
        spread = n / (n - 1) * p[mixed] * (1 - p[mixed])
        with np.errstate(divide="ignore"):
            of_all, of_few = (
                np.minimum(spread / variance * (stdtrit(n - 1, UPPER) / stdtrit(df, UPPER)) ** 2, float(n))
                for df in (max(least - 1, LEAST_DF), np.maximum(few - 1, LEAST_DF))
            )
        effective[mixed] = np.maximum(of_few, np.minimum(of_all, least))
    low, high = _exact_ends(p * effective, effective, LEVEL)
    return np.stack((p, low, high, effective))


class ClusterSums(NamedTuple):
    """How many rows each cluster has, and its sums over them."""

    size: Int[np.ndarray, " cluster"]
    sums: Integer[np.ndarray, "cluster column"]


def cluster_sums(values: Bool[np.ndarray, "row column"], cluster: Int[np.ndarray, " row"]) -> ClusterSums:
    """How often each column is true in each cluster that has a row, in the order of the clusters' numbers."""
    if (cluster[1:] < cluster[:-1]).any():
        order = np.argsort(cluster, kind="stable")
        values, cluster = values[order], cluster[order]
    starts = np.concatenate(([0], np.flatnonzero(cluster[1:] != cluster[:-1]) + 1))
    size = np.diff(starts, append=len(cluster))
    bits, largest = np.ascontiguousarray(values).view(np.uint8), int(size.max())
    if largest > 32:
        return ClusterSums(size, np.add.reduceat(bits, starts, axis=0, dtype=np.int64))
    sums = bits[starts]
    for place in range(1, largest):  # much faster for small clusters, and so are bytes
        longer = np.flatnonzero(size > place)
        sums[longer] += bits[starts[longer] + place]
    return ClusterSums(size, sums)


#: The least and the largest value that a measure can have, where these are known: (0, 1) for a share.
Bounds = tuple[float, float]


def unseen(n: Any) -> Any:
    """The largest probability of a kind of example that n examples have none of in one sample of forty: the end of
    Clopper and Pearson's interval for 0 of n."""
    return 1 - TAILS[0] ** (1 / n)


def _with_unseen(value: Any, low: Any, high: Any, n: int, bounds: Bounds) -> tuple[Any, Any]:
    """An interval that also covers examples at the bounds which the sample does not have, and ends at the bounds."""
    least, most = bounds
    low = np.minimum(low, value - unseen(n) * (value - least))
    return np.maximum(low, least), np.minimum(np.maximum(high, value + unseen(n) * (most - value)), most)


def mean_interval(values: Float[np.ndarray, " n"], bounds: Bounds | None = None) -> tuple[float, float, float]:
    """Mean and Student-t interval of independent values, within ``bounds``; that of a single value is infinite, or
    all that the bounds allow."""
    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return mean, *(bounds or (-math.inf, math.inf))
    half = float(stdtrit(n - 1, UPPER) * np.std(values, ddof=1) / np.sqrt(n))
    low, high = mean - half, mean + half
    if bounds is not None:
        low, high = map(float, _with_unseen(mean, low, high, n, bounds))
    return mean, low, high


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
    bounds: Bounds | None = None,
) -> tuple[Any, Any]:
    """The ends of a percentile bootstrap interval of ``n`` examples, widened to make up for a small n.

    Both distances from the value are multiplied by ``t(n - 1) / z sqrt(n / (n - 1))``: the bootstrap's variance divides
    by n in place of n - 1, and its percentiles are a normal's. For the mean of normal values this is Student's
    interval; the skew that the bootstrap found is kept. (Hesterberg 2015, American Statistician 69, 371-386, section
    4.1, widens the levels instead, which cannot lead beyond the examples.) For a single example it is infinite. With
    ``bounds`` it lies within them and allows for examples that the sample does not have; see the module.
    """
    if n < 2:
        low, high = value - np.inf, value + np.inf
    else:
        factor = float(stdtrit(n - 1, UPPER) / ndtri(UPPER)) * np.sqrt(n / (n - 1))
        low, high = value + factor * (low - value), value + factor * (high - value)
    return (low, high) if bounds is None else _with_unseen(value, low, high, n, bounds)


def percentile_interval(
    value: Float[np.ndarray, "*cell"] | float,
    drawn: Float[np.ndarray, "*cell resample"],
    n: int,
    bounds: Bounds | None = None,
) -> tuple[Any, Any]:
    """(low, high) of a statistic of ``n`` examples: percentiles of its bootstrap draws, :func:`widened`.

    Draws that are NaN do not count; the ends are NaN where all draws are.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of a cell without a number
        quantile = np.nanquantile if np.isnan(drawn).any() else np.quantile  # much faster
        low, high = quantile(drawn, TAILS, axis=-1)
    return widened(value, low, high, n, bounds)


_MEANS_AT_ONCE = 2**22  # resampled means held at once
#: Up to this difference, relative to the largest of them, numbers from a model in float32 are equal: sums in another
#: order differ by as much, and a metric is larger than its changes.
ROUNDING = 1e-5


def bootstrap_interval(
    values: Float[np.ndarray, "*cell n"], seed: int, resamples: int = 1000, bounds: Bounds | None = None
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """95% interval, (low, high), of the mean over the last axis, one per cell; see :func:`ratio_interval`.

    Values that are all 0 or 1 are counted: their interval is Clopper and Pearson's.
    """
    if bounds is None and values.size and bounds_of(values) == (0.0, 1.0):
        n = np.full(values.shape[:-1], float(values.shape[-1]))
        low, high = _exact_ends(np.asarray(values.sum(-1, dtype=float)), n, LEVEL)
        return np.asarray(low), np.asarray(high)
    _, low, high = ratio_interval(values, np.ones(values.shape[-1]), seed, resamples, bounds)
    return low, high


def bounds_of(values: np.ndarray) -> Bounds | None:
    """(0, 1) for values that are all 0 or 1, (-1, 1) for differences of such, else None."""
    if values.dtype == bool:
        return 0.0, 1.0
    if not ((np.abs(values) <= 1) & (values == np.round(values))).all():
        return None
    return (-1.0, 1.0) if (values < 0).any() else (0.0, 1.0)


def difference_bounds(values: np.ndarray, others: np.ndarray) -> Bounds | None:
    """(-1, 1) for the differences of values that are all 0 or 1, whichever signs the sample happens to have."""
    return (-1.0, 1.0) if bounds_of(values) == bounds_of(others) == (0.0, 1.0) else None


def ratio_interval(
    above: Float[np.ndarray, "*cell n"],
    below: Real[np.ndarray, " n"],
    seed: int,
    resamples: int = 1000,
    bounds: Bounds | None = None,
) -> tuple[Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"], Float[np.ndarray, "*cell"]]:
    """``mean(above) / mean(below)`` over the last axis and the ends of its :func:`widened` bootstrap interval.

    Numerator and denominator are resampled together, and all cells alike: example i is in the same draws everywhere, so
    cells may be compared. Where the denominator's own interval holds zero, the ends are NaN: the examples do not tell
    how much there is to share. Cost: one product [cell, n] by [n, resamples].

    ``bounds`` of the ratio are known for shares and their differences. Without them, a cell whose ratio c is the same
    in every example (but for :data:`ROUNDING`) has a bootstrap interval of no width. It gets ``c - p d`` to ``c + p
    d``, with p the probability of a kind of example that the sample misses (:func:`unseen`), and d how far its ratio
    may be: as far as 0 or, of a ratio, as far as 1 if that is farther. Nothing is said of a mean of 0, which has no
    scale.

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
    if bounds is None and ones:
        bounds = bounds_of(flat)
    whole = np.ones(resamples) if ones else resampled_sums(below[None], seed, resamples)[0]
    step = max(1, _MEANS_AT_ONCE // resamples)
    value, ends = flat.mean(-1) / below.mean(), np.empty((2, len(flat)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for at in (slice(start, start + step) for start in range(0, len(flat), step)):
            drawn = resampled_sums(flat[at], seed, resamples) / whole
            ends[:, at] = percentile_interval(value[at], drawn, n, bounds)
    if bounds is None and n > 1 and flat.size:
        largest = max(np.abs(flat).max(), np.abs(below).max())
        same = np.abs(flat - value[:, None] * below).max(-1) <= ROUNDING * largest
        constant = value[same]
        far = np.abs(constant) if ones else np.maximum(np.abs(constant), np.abs(1 - constant))
        ends[:, same] = constant - unseen(n) * far, constant + unseen(n) * far
    if min((whole > 0).mean(), (whole < 0).mean()) > TAILS[0]:  # the denominator may be zero, and the ratio anything
        ends[:] = np.nan
    value, low, high = (x.reshape(above.shape[:-1]) for x in (value, *ends))
    return value, low, high


def js_divergence(p: Float[np.ndarray, "*row kind"], q: Float[np.ndarray, "*row kind"]) -> Float[np.ndarray, "*row"]:
    """Jensen-Shannon divergence of distributions over the last axis, in bits: from 0 to 1; 0 log 0 is 0."""
    middle = (p + q) / 2

    def divergence(x: np.ndarray) -> np.ndarray:
        ratio = np.divide(x, middle, out=np.ones_like(x), where=x > 0)
        return (x * np.log2(ratio)).sum(-1)

    return ((divergence(p) + divergence(q)) / 2).clip(0, 1)


def js_distance(p: Float[np.ndarray, "*row kind"], q: Float[np.ndarray, "*row kind"]) -> Float[np.ndarray, "*row"]:
    """The square root of the divergence, a metric."""
    return np.sqrt(js_divergence(p, q))


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
