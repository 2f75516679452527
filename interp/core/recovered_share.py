"""Which share of what was lost comes back, with its interval."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from interp.core.bootstrap_draws import resampled_sums
from interp.core.stats import TAILS, percentile_interval, unseen


def recovered_share(
    here: Float[np.ndarray, " n"],
    worst: Float[np.ndarray, " n"],
    best: Float[np.ndarray, " n"],
    seed: int,
    least: float = 0.0,
) -> tuple[float, float, float]:
    """``(worst - here) / (worst - best)`` of the mean losses, and the ends of its 95% bootstrap interval over examples.

    The losses of an example are resampled together. The interval reaches at least as far as a kind of example that the
    sample misses (:func:`interp.core.stats.unseen`) could move the share, if nothing or everything came back there.
    All three are NaN where the interval of ``worst - best`` reaches down to ``least``: the examples then do not tell
    how much there is to recover. (:func:`interp.core.stats.ratio_interval` gives the same ratio for many cells.)
    """
    back, room = (worst.astype(np.float64) - each for each in (here, best))
    n, (of_back, of_room) = len(room), resampled_sums(np.stack((back, room)), seed)
    if not np.isfinite(room).all() or np.quantile(of_room, TAILS[0]) <= least:
        return float("nan"), float("nan"), float("nan")
    value = float(back.mean() / room.mean())
    drawn = np.divide(of_back, of_room, out=np.full_like(of_back, np.nan), where=of_room > 0)  # few draws have no room
    low, high = percentile_interval(value, drawn, n)
    low = min(float(low), value - unseen(n) * (value - min(value, 0.0)))
    return value, low, max(float(high), value + unseen(n) * (max(value, 1.0) - value))
