"""Wording for statements about attention: the weights of a role's keys, and gaps between roles."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from interp.core.thresholds import ALIKE, FAINT


@dataclass(frozen=True)
class Keys:
    """Weights on the keys of one group: each target's mean, strongest and weakest weight, averaged over targets."""

    mean: float
    strongest: float
    weakest: float
    apart: str  # the weights of single keys, by name or by strength

    @classmethod
    def of(cls, pattern: np.ndarray, member: np.ndarray, labels: np.ndarray) -> Keys:
        """From the mean weights [target, key] and the group's mask [target, key]; every target must have such keys."""
        rows = [weights[has] for weights, has in zip(pattern, member, strict=True)]
        weakest, mean, strongest = (float(np.mean([f(row) for row in rows])) for f in (np.min, np.mean, np.max))
        names = {tuple(re.sub(r"\d+$", "", str(label)) for label in labels[has]) for has in member}
        order = {tuple(np.argsort(-row, kind="stable").tolist()) for row in rows}
        if len(names) == len(order) == 1 and len(set(*names)) == len(min(names)):  # the same one is ahead everywhere
            weights = np.mean(rows, 0)
            apart = " and ".join(f"{weights[i]:.3f} ({min(names)[i]})" for i in min(order))
        else:
            apart = f"{strongest:.3f} (the one with most) and {weakest:.3f} (with least)"
        return cls(mean, strongest, weakest, apart)

    @property
    def alike(self) -> bool:
        return self.strongest <= ALIKE * self.mean or self.strongest - self.weakest < FAINT

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.alike else self.apart


def times(gap: float) -> str:
    """exp(gap) as text, to as many digits as are meaningful: "9.9", "165,672", "0.0021"."""
    ratio = math.exp(gap)
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2g}"


def gap_interval(low: float, high: float) -> str:
    """The interval after a number, with a leading space; empty where a single value gives no interval."""
    return f" [{low:.3f}, {high:.3f}]" if math.isfinite(low) and math.isfinite(high) else ""


def shuffled_keys(pattern: np.ndarray, member: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Permutation p-value [layer, head, role] of the summed rank of a role's keys within each query."""
    from scipy.stats import rankdata

    rng = np.random.default_rng(seed)
    observed = np.zeros((*pattern.shape[:2], member.shape[1]))
    null = np.zeros((resamples, *observed.shape))
    for target in range(pattern.shape[2]):
        visible = member[target].sum(0) > 0
        groups = member[target][:, visible]
        ranks = rankdata(pattern[:, :, target, visible], axis=-1)
        shuffle = np.argsort(rng.random((resamples, int(visible.sum()))), axis=1)
        observed += np.einsum("lhk,rk->lhr", ranks, groups)
        null += np.einsum("lhk,rpk->plhr", ranks, groups[:, shuffle])
    at_least = (null >= observed).sum(0)  # ranks are multiples of 1/2, so the sums are exact
    return (1 + at_least) / (resamples + 1)
