"""A split of pairs into one half to search on and one to report on, with no problem in both."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int

from models.errors import UserError
from models.tasks import ProblemPairs


def linked(pairs: ProblemPairs) -> Int[np.ndarray, " pair"]:
    """A number for each pair, the same for pairs that share a problem, directly or through other pairs."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    both = torch.cat((pairs.clean, pairs.corrupted))
    problem = torch.unique(both, dim=0, return_inverse=True)[1].numpy()
    n = len(pairs)
    edges = (np.ones(n), (problem[:n], problem[n:]))
    components = connected_components(coo_array(edges, shape=(problem.max() + 1,) * 2), directed=False)[1]
    return components[problem[:n]]


def halves(pairs: ProblemPairs, seed: int = 0) -> tuple[ProblemPairs, ProblemPairs]:
    """Two sets of pairs of about equal size that share no problem, clean or corrupted.

    Pairs that share a problem stay together; the groups are shuffled and dealt to whichever half is smaller.

    Raises:
        UserError: there are too few pairs, or they are so linked that a half would have fewer than 2 or less than a
            quarter of them.
    """
    if len(pairs) < 4:
        raise UserError(
            f"Two halves of two pairs each need at least 4 pairs, not {len(pairs)}; draw more, or search and judge on "
            "the same pairs with held_out=False."
        )
    group = linked(pairs)
    names, counts = np.unique(group, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    sizes, side = [0, 0], np.zeros(names.max() + 1, dtype=int)
    for i in order[np.argsort(-counts[order], kind="stable")]:  # large groups first, to make the halves even
        half = int(sizes[1] < sizes[0])
        side[names[i]] = half
        sizes[half] += int(counts[i])
    if min(sizes) < max(2, len(pairs) // 4):
        raise UserError(
            f"These {len(pairs):,} pairs share their problems, so that they cannot be cut into two halves without a "
            f"problem in both ({sizes[0]:,} and {sizes[1]:,} at best); draw fewer or other pairs."
        )
    of = side[group]
    first, second = (torch.from_numpy((of == half).nonzero()[0]) for half in (0, 1))
    return pairs.select(first), pairs.select(second)
