"""P-values of permutations and of signs, and their correction where several are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


def permutation_p(observed: Any, null: Float[np.ndarray, "draw *cell"]) -> Any:
    """Share of draws at least as large as the observation, which counts as a draw: never below 1 / (draws + 1).

    An array of observations [*cell] gives one share per cell.
    """
    slack = 1e-12 * np.maximum(1.0, np.abs(observed))  # the observation itself, recomputed, must not count as smaller
    p = (1 + (null >= observed - slack).sum(0)) / (len(null) + 1)
    return p if np.ndim(p) else float(p)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction of several p-values, in their order; it bounds the chance of any false positive."""
    order = np.argsort(p)
    corrected = np.minimum(1.0, np.maximum.accumulate(np.sort(p) * np.arange(len(p), 0, -1)))
    found = np.empty(len(p))
    found[order] = corrected
    return found.tolist()


def sign_test(more: int, fewer: int) -> float:
    """The two-sided exact p of so many pairs that differ in one direction and so many in the other; 1 if none does."""
    from scipy.stats import binomtest  # half of this package's own import time, for numbers that few programs ask for

    return float(binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
