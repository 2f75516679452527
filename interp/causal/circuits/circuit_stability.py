"""How stable the circuits that were found are: other pairs, resampled pairs and other thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_space import jaccard
from interp.core.wording import listed

RESAMPLES = 100
#: Where draws of a kind have the same circuits, in words, by how many of how many do.
_DRAWN = {
    "the other half of the pairs": "on the other half of the pairs",
    "resampled pairs": "in {} resamples",
    "other thresholds": "at {} other thresholds",
}


def how_stable(stability: pd.DataFrame) -> str:
    """How often other draws have the same minimal circuits, in a sentence."""
    same = stability.groupby("over", sort=False)["same"].agg(["sum", "size"])
    said = [_DRAWN[over].format(f"{row['sum']} of {row['size']}") for over, row in same.iterrows() if row["sum"]]
    if not said:
        return "No other half, resample or threshold has the same ones."
    lacks = [_DRAWN[over].format(f"any of {row['size']}") for over, row in same.iterrows() if not row["sum"]]
    return f"The same come out {listed(said)}" + (f", and not {listed(lacks)}." if lacks else ".")


def minimal_rows(sets: Bool[np.ndarray, "circuit unit"], faithful: Bool[np.ndarray, " circuit"]) -> list[int]:
    """The faithful rows of which no other faithful row is a part, the smallest first; of equal rows the first."""
    rows = np.flatnonzero(faithful)
    sizes = sets[rows].sum(1)
    found: list[int] = []
    for size in np.unique(sizes):
        level = rows[sizes == size]
        if found:
            inside = sets[level].astype(np.float32) @ sets[found].T.astype(np.float32)
            level = level[~(inside >= sets[found].sum(1) - 0.5).any(1)]
        _, first = np.unique(sets[level], axis=0, return_index=True)
        found += level[np.sort(first)].tolist()
    return found


def compute_stability(
    sets: Bool[np.ndarray, "circuit unit"],
    draws: Sequence[tuple[str, str, Bool[np.ndarray, " circuit"]]],
    faithful: Bool[np.ndarray, " circuit"],
) -> pd.DataFrame:
    """One row per (over, which, faithful circuits) of other draws, compared with ``faithful``."""
    own = minimal_rows(sets, faithful)
    rows = []
    for over, which, other in draws:
        found = minimal_rows(sets, other)
        both = own and found
        overlap = jaccard(*(torch.from_numpy(sets[rows[0]]) for rows in (own, found))) if both else float("nan")
        size = int(sets[found[0]].sum()) if found else None
        rows.append((over, which, size, len(found), set(own) == set(found), overlap))
    return pd.DataFrame(rows, columns=["over", "which", "size", "minimal", "same", "jaccard"])


def resampled(
    values: Float[Tensor, "metric circuit n"],
    full: Float[Tensor, "metric n"],
    empty: Float[Tensor, "metric n"],
    threshold: float,
    seed: int,
) -> list[Bool[np.ndarray, " circuit"]]:
    """Which circuits are faithful in each resample of the pairs. A metric that cannot change there makes none so."""
    n = values.shape[-1]
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES).T / n  # [n, resample]
    drawn = torch.from_numpy(weights)
    above = (values.double() - empty.double()[:, None]) @ drawn
    below = (full.double() - empty.double()) @ drawn
    scores = 1 - (1 - above / below[:, None]).abs()
    return list((scores.nan_to_num(nan=-torch.inf).amin(0) >= threshold).T.numpy())
