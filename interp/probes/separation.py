"""How well values tell rows with a signal from rows without: AUROC, strata, thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

_AT_ONCE = 64  # units whose ranks are held at once


def auroc(
    values: Float[np.ndarray, "row unit"], labels: Bool[np.ndarray, "row signal"]
) -> Float[np.ndarray, "unit signal"]:
    """Chance that a row with the signal has the larger value, ties counted half (Mann-Whitney U / n1 n0).

    NaN where a signal is always or never present.
    """
    return aurocs(values, labels)[0]


def aurocs(
    values: Float[np.ndarray, "row unit"],
    labels: Bool[np.ndarray, "row signal"],
    strata: Sequence[Bool[np.ndarray, " row"]] = (),
) -> list[Float[np.ndarray, "unit signal"]]:
    """:func:`auroc`, and that among pairs of rows that agree in each stratum: what a signal adds once the other is
    held fixed. The halves of a stratum are weighted by their number of pairs; NaN where none is left to compare. Rows
    are sorted once, whatever the strata.

    Ranks are multiples of one half, so that their sums are exact in any order.
    """
    parts = [np.ones(len(labels), dtype=bool), *(part for stratum in strata for part in (~stratum, stratum))]
    sums = np.empty((len(parts), values.shape[1], labels.shape[1]))
    of_parts = [np.where(part[:, None], labels, False).astype(float) for part in parts]
    for start in range(0, values.shape[1], _AT_ONCE):
        some = values[:, start : start + _AT_ONCE]
        ranks = np.empty((1 + len(strata), some.shape[1], len(some)))
        for unit in range(some.shape[1]):
            ranks[:, unit] = _ranks(some[:, unit], strata)
        for i, signals in enumerate(of_parts):
            sums[i, start : start + _AT_ONCE] = ranks[(i + 1) // 2] @ signals
    found, pairs = [], []
    for part, rank_sum, signals in zip(parts, sums, of_parts, strict=True):
        with_signal = signals.sum(0)
        pairs.append(with_signal * (part.sum() - with_signal))
        u = rank_sum - with_signal * (with_signal + 1) / 2
        found.append(np.where(pairs[-1] > 0, u / np.where(pairs[-1] > 0, pairs[-1], 1.0), np.nan))
    weighted = [(np.nan_to_num(area), weight) for area, weight in zip(found, pairs, strict=True)]
    return [found[0], *(_pooled(weighted[i], weighted[i + 1]) for i in range(1, len(parts), 2))]


def _ranks(values: Float[np.ndarray, " row"], strata: Sequence[np.ndarray]) -> Float[np.ndarray, "ranking row"]:
    """Ranks among all rows, and among those that agree in each stratum; equal values share their mean rank."""
    n = len(values)
    order = np.argsort(values)
    ordered = values[order]
    ranks = np.empty((1 + len(strata), n))
    if n and np.isnan(ordered[-1]):
        ranks[:] = np.nan
        return ranks
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    first, is_tied = np.flatnonzero(new), not new.all()
    last = np.append(first[1:], n)
    group = np.cumsum(new) - 1 if is_tied else None

    def shared(count: np.ndarray) -> np.ndarray:
        """The mean rank of each row's equals, from how many rows are counted up to it."""
        if group is None:
            return count
        below = np.concatenate(([0], count))
        return ((below[first] + below[last] + 1) / 2)[group]

    place = np.arange(1, n + 1)
    ranks[0, order] = shared(place)
    for index, stratum in enumerate(strata, 1):
        inside = stratum[order]
        count = np.cumsum(inside)
        ranks[index, order] = np.where(inside, shared(count), shared(place - count))
    return ranks


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

    return _pooled(within(~stratum), within(stratum))


def _pooled(
    without: tuple[np.ndarray, np.ndarray], within: tuple[np.ndarray, np.ndarray]
) -> Float[np.ndarray, "unit signal"]:
    """Weighted mean over two strata, of each (value, weight [signal]). NaN without weight."""
    (value, weight), (other, more) = without, within
    both = weight + more
    return np.where(both > 0, (value * weight + other * more) / np.where(both > 0, both, 1.0), np.nan)


def best_threshold(
    values: Float[np.ndarray, " row"], labels: Bool[np.ndarray, "row signal"], above: Bool[np.ndarray, " signal"]
) -> tuple[Float[np.ndarray, " signal"], Float[np.ndarray, " signal"]]:
    """The cut that classifies each signal best, on these rows: (threshold, accuracy).

    ``above``: whether the signal is said to lie above the cut or below it. The cut does not decide that: where "never"
    is the best answer, it is so either way. The threshold is halfway between two neighbouring values, or infinite where
    one class for all rows is best.
    """
    order = np.argsort(values)
    ordered, n = values[order], len(values)
    below = np.zeros((n + 1, labels.shape[1]), dtype=np.int32)  # rows with it among the i lowest
    np.cumsum(labels[order], 0, out=below[1:])
    cut = np.ones(n + 1, dtype=bool)
    cut[1:-1] = ordered[1:] > ordered[:-1]  # no cut between equal values
    below, place = below[cut], np.flatnonzero(cut)
    edges = np.concatenate(([-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]))[place]
    right = (place[:, None] - below + (below[-1] - below)) / n
    right[:, ~above] = 1 - right[:, ~above]
    best = right.argmax(0)
    return edges[best], right[best, np.arange(labels.shape[1])]
