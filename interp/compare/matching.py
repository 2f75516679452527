"""Shared by all comparisons: matching by smallest total distance, and a distance that ignores a positive scale."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_NOISE = 1e-12  # 1 minus a correlation below this is the rounding of float64


def match(distance: Float[np.ndarray, "left right"]) -> list[tuple[int, int]]:
    """(right, left) pairs with the smallest total distance (Hungarian algorithm), in the order of the right.

    There are as many pairs as the shorter side has items. Cost: cubic in the number of pairs.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(distance)
    return sorted((int(column), int(row)) for row, column in zip(rows, columns, strict=True))


def scaled_distance(a: Float[np.ndarray, "*entry"], b: Float[np.ndarray, "*entry"]) -> tuple[float, float]:
    """Distance of two tables up to a positive factor, and that factor.

        distance = 1 - max(0, <a, b> / (|a| |b|)),   factor = max(0, <a, b>) / |a|^2

    The factor is the c >= 0 for which c a is closest to b; ``1 - (1 - distance)^2`` is the share of b's square that is
    left. A table of zeros has distance 1 from every other; for two such tables it is NaN, as there is nothing to
    compare.
    """
    norm_a, norm_b = (float(np.linalg.norm(x)) for x in (a, b))
    if norm_a == 0 and norm_b == 0:
        return float("nan"), float("nan")
    if norm_a == 0 or norm_b == 0:
        return 1.0, float("nan")
    # Norms are divided out first: a product of small numbers would underflow.
    cosine = float(((a / norm_a) * (b / norm_b)).sum())
    distance = 1 - max(0.0, cosine)
    return 0.0 if distance < _NOISE else min(1.0, distance), max(0.0, cosine) * norm_b / norm_a


def relabelled_distances(
    a: Float[np.ndarray, "row column"],
    b: Float[np.ndarray, "row column"],
    both: bool,
    resamples: int,
    rng: np.random.Generator,
) -> Float[np.ndarray, " draw"]:
    """:func:`scaled_distance` with a's rows in random orders; neither table may be all zeros.

    ``both``: rows and columns are the same things and are permuted together. A single row has its columns permuted.
    """
    product = a.T @ b if len(a) == 1 else a @ b.T  # [i, j]: what a's row i adds in the place of b's row j
    orders = np.argsort(rng.random((resamples, len(product))), axis=1)
    if both:  # one by one: a table may be large
        cosine = np.array([(a[np.ix_(order, order)] * b).sum() for order in orders])
    else:
        cosine = product[orders, np.arange(len(product))].sum(1)
    return 1 - (cosine / (np.linalg.norm(a) * np.linalg.norm(b))).clip(0, 1)


def centred_rows(table: Float[np.ndarray, "*row column"]) -> Float[np.ndarray, "*row column"]:
    """Every row minus its mean over the columns that it has; missing entries (NaN) become 0.

    This does not change a softmax or an argmax over the columns.
    """
    present = ~np.isnan(table)
    count = np.maximum(present.sum(-1, keepdims=True), 1)
    filled = np.where(present, table, 0.0)
    return np.where(present, filled - filled.sum(-1, keepdims=True) / count, 0.0)
