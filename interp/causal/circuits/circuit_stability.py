"""How stable the circuits that were found are: other pairs, resampled pairs and other thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_space import jaccard

RESAMPLES = 100
#: Where draws of a kind come out so, in words: its name, and how many of how many.
_DRAWN = {
    "the other half of the pairs": "on {0}",
    "resampled pairs": "in {1} resamples",
    "other thresholds": "at {1} {0}",
}


def outcomes(stability: pd.DataFrame) -> pd.DataFrame:
    """What other draws came to, one row per kind (``over``): how many there are (``n``), how many have the ``same``
    minimal circuits, ``other`` ones or ``none`` that is faithful; of those with others, the sizes of the smallest
    (``least``, ``most``) and its mean overlap (``jaccard``), NaN without any."""
    rows = []
    for over, draws in stability.groupby("over", sort=False):
        none = ~draws["same"] & (draws["minimal"] == 0)
        other = draws[~draws["same"] & ~none]
        sizes = pd.to_numeric(other["size"])
        counts = {"n": len(draws), "same": int(draws["same"].sum()), "other": len(other), "none": int(none.sum())}
        rows.append(
            {"over": over, **counts, "least": sizes.min(), "most": sizes.max(), "jaccard": other.jaccard.mean()}
        )
    return pd.DataFrame(rows)


def how_stable(stability: pd.DataFrame, unit: str = "edge") -> str:
    """The rows of a table of stability as sentences: which draws have the same circuits, which others, which none."""
    said: dict[str, list[str]] = {"same": [], "other": [], "none": []}
    for row in outcomes(stability).itertuples():
        for kind, parts in said.items():
            if not (count := getattr(row, kind)):
                continue
            where = _DRAWN[row.over].format(row.over, f"{count:,} of {row.n:,}" if row.n > 1 else "")
            sizes = f"{row.least:.0f}" if row.least == row.most else f"{row.least:.0f} to {row.most:.0f}"
            smallest = f" (the smallest has {sizes} {unit}{'s' * (sizes != '1')}, overlap {row.jaccard:.2f})"
            parts.append(" ".join(where.split()) + smallest * (kind == "other"))
    begins = {"same": "The same minimal circuits come out", "other": "Others come out", "none": "None is faithful"}
    return " ".join(f"{begins[kind]} {', '.join(parts)}." for kind, parts in said.items() if parts)


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
