"""How well an estimate of effects agrees with the effects themselves: ranks, size, sign, and the worst miss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.core.bootstrap_draws import resampled_sums
from interp.core.significance import permutation_p
from interp.core.stats import ROUNDING, percentile_interval
from models.errors import UserError

_SHUFFLES = 1000  # and as many bootstrap draws


@dataclass(frozen=True)
class Agreement:
    """Agreement of estimated and real effects of ``cells`` (edges, heads) on ``n`` examples.

    The ``live`` cells have an effect: it is not zero in all examples. The ``ranked`` ones are these, and those to which
    the estimate wrongly gives one, so that it is not rewarded for them; all others are ranked alike by both.
    ``spearman``: rank correlation of their means over examples, with
    its 95% interval over examples; ``p``: its control, how often shuffled cells agree as well (never below 1 / 1,001);
    ``worst_error``: largest absolute error of a mean, of cell ``worst``, in the units of the effect; ``largest``: the
    largest absolute real mean, to compare it with. Correlations of constant values are NaN.
    """

    cells: int
    live: int
    ranked: int
    n: int
    spearman: float
    spearman_low: float
    spearman_high: float
    p: float
    worst_error: float
    worst: int
    largest: float


def agreement(estimate: Float[np.ndarray, "cell n"], real: Float[np.ndarray, "cell n"], seed: int = 0) -> Agreement:
    """Compare estimated effects with the real ones; see :class:`Agreement`. ``seed`` is that of the shuffles.

    Raises:
        UserError: the arrays differ in shape, or are empty.
    """
    if estimate.shape != real.shape or not estimate.size:
        raise UserError(f"Estimates {list(estimate.shape)} and effects {list(real.shape)} must have one shape.")
    means = real.mean(1), estimate.mean(1)
    live, claimed = (np.abs(x).max(1) / (np.abs(x).max() or 1) > ROUNDING for x in (real, estimate))
    either = live | claimed
    ranked = [_with_ties(x[either].astype(float)) for x in (real, estimate)]
    observed = rank_correlation(*(x.mean(1) for x in ranked))
    p, low, high = float("nan"), float("nan"), float("nan")
    if not np.isnan(observed):
        from scipy.stats import rankdata

        ranks = [rankdata(x.mean(1)) for x in ranked]
        generator = np.random.default_rng(seed)
        null = [float(np.corrcoef(ranks[0], generator.permutation(ranks[1]))[0, 1]) for _ in range(_SHUFFLES)]
        p = permutation_p(observed, np.array(null))
        drawn = [rankdata(resampled_sums(x, seed, _SHUFFLES), axis=0) for x in ranked]
        with np.errstate(invalid="ignore"):  # a draw of which all cells are alike has no rank correlation
            drawn = [(x - x.mean(0)) / np.linalg.norm(x - x.mean(0), axis=0) for x in drawn]
        low, high = map(float, percentile_interval(observed, (drawn[0] * drawn[1]).sum(0), real.shape[1], (-1.0, 1.0)))
    errors = np.abs(means[0] - means[1])
    return Agreement(
        cells=real.shape[0],
        live=int(live.sum()),
        ranked=int(either.sum()),
        n=real.shape[1],
        spearman=observed,
        spearman_low=low,
        spearman_high=high,
        p=p,
        worst_error=float(errors.max()),
        worst=int(errors.argmax()),
        largest=float(np.abs(means[0]).max()),
    )


def _with_ties(x: Float[np.ndarray, "cell n"]) -> Float[np.ndarray, "cell n"]:
    """The effects, with those of two cells made equal where they differ by rounding alone in every example. Sums in
    another order would otherwise rank cells that have one effect."""
    most, order = ROUNDING * np.abs(x).max(initial=0), np.argsort(x.mean(1), kind="stable")
    same = order.copy()  # at each place in the order, the cell whose effects are taken
    for i in range(1, len(order)):
        if np.abs(x[order[i]] - x[same[i - 1]]).max() <= most:
            same[i] = same[i - 1]
    return x[same[np.argsort(order)]]


def rank_correlation(a: Float[np.ndarray, " cell"], b: Float[np.ndarray, " cell"]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; NaN where one side is constant."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)
