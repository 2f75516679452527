"""The draws of a bootstrap, and sums over them: the same for every cell and every call."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float

#: The memory budget for whatever grows with the sample: how many float64 numbers are held at once (128 MB). Larger
#: computations are cut into blocks of examples.
NUMBERS_AT_ONCE = 2**24
_SHARES_KEPT = 2**19  # numbers of one bootstrap's draws that are kept, for up to 16 of them: 64 MB


@lru_cache(16)
def _shares(n: int, seed: int, resamples: int) -> Float[np.ndarray, "n resample"]:
    """How much of each bootstrap draw each of n examples is. Kept, as tables ask for the same ones many times."""
    found = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples).T / n
    found.flags.writeable = False
    return found


def resampled_sums(
    values: Float[np.ndarray, "cell n"], seed: int, resamples: int = 1000
) -> Float[np.ndarray, "cell resample"]:
    """Sums of ``values / n`` over bootstrap draws of the n examples, the same draws for every cell and every call.

    The counts take n numbers per resample. Where that exceeds :data:`NUMBERS_AT_ONCE`, they are drawn by blocks of
    examples, after the number that falls into each block: the same distribution, from other random numbers.
    """
    n = values.shape[-1]
    size = max(1, NUMBERS_AT_ONCE // resamples)
    if n <= size:
        shares = _shares if n * resamples <= _SHARES_KEPT else _shares.__wrapped__
        return values @ shares(n, seed, resamples)
    rng = np.random.default_rng(seed)
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]
    lengths = np.array([block.stop - block.start for block in blocks])
    found = np.zeros((len(values), resamples))
    for block, length, drawn in zip(blocks, lengths, rng.multinomial(n, lengths / n, size=resamples).T, strict=True):
        found += values[:, block] @ (rng.multinomial(drawn, np.full(length, 1 / length)).T / n)
    return found
