"""Matching of two models' heads by where they look.

A head's row at a target is summed over the keys of each role (:meth:`models.tasks.task.Task.relative_roles`), which
gives a distribution p over roles. The distance of two heads, on the same problems, is

    distance = mean over problems and targets of  sqrt(JS(p, q)),   JS = H((p + q) / 2) - (H(p) + H(q)) / 2   in bits

(the Jensen-Shannon distance, a metric: 0 the same, 1 disjoint), and pairs are matched to make the sum smallest. It
ignores how a head splits its weight among the keys of one role. BOS is a role like the others: a head that rests there
is far from one that rests elsewhere.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from interp.core.stats import js_distance

Roles = Float[np.ndarray, "n head target role"]


def known_mean(values: Float[np.ndarray, "*cell target"]) -> Float[np.ndarray, "*cell"]:
    """Mean over the targets without missing values (NaN); NaN where all are missing."""
    kept = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(kept, values, 0).sum(-1) / kept.sum(-1)


def head_distances(left: Roles, right: Roles) -> Float[np.ndarray, "n left right"]:
    """Distance of every pair of heads on every problem, averaged over targets.

    Missing rows (NaN) do not count; heads without a common row have distance 1.
    """
    found = np.empty((len(left), left.shape[1], right.shape[1]))
    for i, j in np.ndindex(*found.shape[1:]):
        found[:, i, j] = known_mean(js_distance(left[:, i], right[:, j]))
    return np.nan_to_num(found, nan=1.0)


def shuffled_roles(roles: Roles, rng: np.random.Generator) -> Roles:
    """The roles' names permuted, for every target separately (in the same way for all problems and heads).

    Roles without any weight at a target (no keys) keep their place.
    """
    out = roles.copy()
    for target in range(roles.shape[2]):
        used = np.flatnonzero(roles[:, :, target].max((0, 1)) > 0)
        out[:, :, target, used] = roles[:, :, target, rng.permutation(used)]
    return out
