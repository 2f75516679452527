"""How well an estimate of effects agrees with the effects themselves: ranks, size, sign, and the worst miss."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.stats import permutation_p
from models.errors import UserError

_SHUFFLES = 1000


@dataclass(frozen=True)
class Agreement:
    """Agreement of estimated and real effects of ``cells`` (edges, heads) on ``n`` examples.

    ``spearman``: rank correlation of the cells' means over examples; ``p``: its control, how often shuffled cells agree
    as well (never below 1 / 1,001); ``spearman_pairs``: rank correlation of all (cell, example) values;
    ``worst_error``: largest absolute error of a mean, of cell ``worst``, in the units of the effect; ``largest``: the
    largest absolute real mean, to compare it with; ``ratio``: least-squares factor from estimate to real effect through
    the origin, over all values; ``same_sign``: share of all values. Correlations of constant values are NaN.
    """

    cells: int
    n: int
    spearman: float
    p: float
    spearman_pairs: float
    worst_error: float
    worst: int
    largest: float
    ratio: float
    same_sign: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def agreement(estimate: Float[np.ndarray, "cell n"], real: Float[np.ndarray, "cell n"], seed: int = 0) -> Agreement:
    """Compare estimated effects with the real ones; see :class:`Agreement`. ``seed`` is that of the shuffles.

    Raises:
        UserError: the arrays differ in shape, or are empty.
    """
    if estimate.shape != real.shape or not estimate.size:
        raise UserError(f"Estimates {list(estimate.shape)} and effects {list(real.shape)} must have one shape.")
    means = real.mean(1), estimate.mean(1)
    generator = np.random.default_rng(seed)
    observed = rank_correlation(*means)
    if np.isnan(observed):
        p = float("nan")
    else:
        from scipy.stats import rankdata

        ranks = rankdata(means[0]), rankdata(means[1])
        null = [float(np.corrcoef(ranks[0], generator.permutation(ranks[1]))[0, 1]) for _ in range(_SHUFFLES)]
        p = permutation_p(observed, np.array(null))
    errors, size = np.abs(means[0] - means[1]), float(np.vdot(estimate, estimate))
    return Agreement(
        cells=real.shape[0],
        n=real.shape[1],
        spearman=observed,
        p=p,
        spearman_pairs=rank_correlation(real.ravel(), estimate.ravel()),
        worst_error=float(errors.max()),
        worst=int(errors.argmax()),
        largest=float(np.abs(means[0]).max()),
        ratio=float(np.vdot(real, estimate)) / size if size else float("nan"),
        same_sign=float((np.sign(real) == np.sign(estimate)).mean()),
    )


def rank_correlation(a: Float[np.ndarray, " cell"], b: Float[np.ndarray, " cell"]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; NaN where one side is constant."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(a, b).statistic)
