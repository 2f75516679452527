"""How well values tell rows with a signal from rows without: AUROC, strata, thresholds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float


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
    values: Float[np.ndarray, " row"], labels: Bool[np.ndarray, "row signal"], above: Bool[np.ndarray, " signal"]
) -> tuple[Float[np.ndarray, " signal"], Float[np.ndarray, " signal"]]:
    """The cut that classifies each signal best, on these rows: (threshold, accuracy).

    ``above``: whether the signal is said to lie above the cut or below it. The cut does not decide that: where "never"
    is the best answer, it is so either way. The threshold is halfway between two neighbouring values, or infinite where
    one class for all rows is best.
    """
    order = np.argsort(values, kind="stable")
    ordered, label = values[order], labels[order].astype(float)
    n = len(values)
    below = np.concatenate((np.zeros((1, label.shape[1])), np.cumsum(label, 0)))  # rows with it among the i lowest
    above_right = (np.arange(n + 1)[:, None] - below + (below[-1] - below)) / n
    cut = np.ones(n + 1, dtype=bool)
    cut[1:-1] = ordered[1:] > ordered[:-1]  # no cut between equal values
    edges = np.concatenate(([-np.inf], (ordered[1:] + ordered[:-1]) / 2, [np.inf]))[cut]
    right = np.where(above, above_right[cut], 1 - above_right[cut])
    best = right.argmax(0)
    return edges[best], right[best, np.arange(label.shape[1])]
