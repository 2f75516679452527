"""How a ranking of edges is judged.

With the edges in the order of a method's scores, C_k are the first k of them (those of them that are joined to the
output), K the number of edges that can matter, and F the restored share of the logit difference, on the truth's pairs:

    auroc, precision   of the absolute scores, for "the edge is in the only minimal circuit"; precision among as many
                       edges as the circuit has. Ties count half, as random orders of them would on average
    regret             edges of the first C_k that is faithful, in answers and logits, minus those of the smallest
                       faithful circuit there is. 0: the method's ranking leads to the smallest circuit
    cpr                area under F(C_k) over k / K, edges in the order of the signed scores; larger is better
    cmd                area between F(C_k) and 1, edges in the order of the absolute scores; smaller is better
    rank               Spearman correlation of the signed scores with the exact effects, over edges that can matter

CPR and CMD are those of MIB (Mueller et al., 2025, arXiv 2504.13151): trapezoids over shares of the edges. MIB takes
ten shares from 0.001 to 1. Here a graph of at most 64 edges takes every k from 0, larger ones MIB's shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata, spearmanr

from models.errors import UserError

if TYPE_CHECKING:
    from benchmarks.circuits.cases import Truth

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SMALL = 64
THRESHOLD = 0.9
#: Score -> whether more is better.
SCORES = {"auroc": True, "precision": True, "regret": False, "cpr": True, "cmd": False, "rank": True}

BOUNDS = {"auroc": (0.0, 1.0), "precision": (0.0, 1.0), "rank": (-1.0, 1.0)}


def auroc(scores: Float[np.ndarray, " edge"], inside: Bool[np.ndarray, " edge"]) -> float:
    """Chance that an edge of the circuit has a larger score than one outside it; NaN if there are none of either."""
    n, m = int(inside.sum()), int((~inside).sum())
    if not n or not m:
        return float("nan")
    return float((rankdata(scores)[inside].sum() - n * (n + 1) / 2) / (n * m))


def precision(scores: Float[np.ndarray, " edge"], inside: Bool[np.ndarray, " edge"]) -> float:
    """Share of the circuit among its number of edges with the largest scores; tied edges count with their chance."""
    size = int(inside.sum())
    if not size:
        return float("nan")
    last = np.sort(scores)[-size]
    above, tied = scores > last, scores == last
    chance = (size - above.sum()) / tied.sum()
    return float((inside[above].sum() + chance * inside[tied].sum()) / size)


def areas(shares: Float[np.ndarray, " point"], recovered: Float[np.ndarray, " point"]) -> tuple[float, float]:
    """(area under F, area between F and 1) by trapezoids."""
    return float(np.trapezoid(recovered, shares)), float(np.trapezoid(np.abs(1 - recovered), shares))


def score_ranking(truth: Truth, scores: Float[np.ndarray, " edge"], seed: int = 0) -> dict[str, float]:
    """All scores of one ranking; NaN where there is nothing to compare with. Ties are put in a random order.

    Raises:
        UserError: not one finite number for each edge.
    """
    if scores.shape != (len(truth.space),) or not np.isfinite(scores).all():
        raise UserError(f"A method gives one finite score to each of {len(truth.space)} edges, not {scores.shape}.")
    where = truth.live.numpy()
    live = scores[where]
    tie = np.random.default_rng(seed).random(len(live))
    found = {"auroc": float("nan"), "precision": float("nan")}
    if truth.circuit is not None:
        inside = truth.circuit.numpy()[where]
        found = {"auroc": auroc(np.abs(live), inside), "precision": precision(np.abs(live), inside)}
    absolute, signed = (np.lexsort((tie, -each)) for each in (np.abs(live), live))
    sizes, recovered, both = _curve(truth, absolute)
    fits = np.flatnonzero(both >= THRESHOLD)
    small = len(live) <= SMALL
    known = truth.smallest is not None and small and len(fits)
    found["regret"] = float(sizes[fits[0]] - truth.smallest) if known else float("nan")
    shares = np.arange(len(live) + 1) / len(live) if small else np.array(SHARES)
    found["cmd"] = areas(shares, recovered)[1]
    found["cpr"] = areas(shares, _curve(truth, signed)[1])[0]
    exact = truth.exact[where]
    varied = len(np.unique(live)) > 1 and len(np.unique(exact)) > 1
    found["rank"] = float(spearmanr(live, exact).statistic) if varied else float("nan")
    return found


def _curve(truth: Truth, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sizes, F, score of both metrics) of the circuits of the first edges."""
    total = len(order)
    steps = range(total + 1) if total <= SMALL else [int(share * total) for share in SHARES]
    edges = np.flatnonzero(truth.live.numpy())[order]
    masks = torch.zeros(len(steps), len(truth.space), dtype=torch.bool)
    for row, k in zip(masks, steps, strict=True):
        row[edges[:k].tolist()] = True
    return truth.judged(masks)
