"""How a ranking of edges is judged.

With the edges in the order of a method's scores, C_k are the first k of them (those of them that are joined to the
output), K the number of edges that can matter, and F the restored share of the logit difference, on the truth's pairs:

    auroc, precision   of the absolute scores, for "the edge is in every minimal circuit" against "in none", over edges
                       that can matter; precision among as many edges as there are inside. Ties count half, as random
                       orders of them would on average
    optimal            the AUROC under optimal ablation, of methods that saw means
    certified          the AUROC for minimal circuits that are right on every input
    planted            AUROC for the edges that a model was built around
    heads              of as many heads as the (planted, else minimal) circuit has, the share that are in it
    regret             edges of the first C_k that is faithful, in answers and logits, minus those of the smallest
                       faithful circuit there is. 0: the method's ranking leads to the smallest circuit
    cpr                area under F(C_k) over k / K, edges in the order of the signed scores; larger is better
    cmd                area between F(C_k) and 1, edges in the order of the absolute scores; smaller is better
    rank               Spearman correlation of the signed scores with the exact effects, over edges that can matter

CPR and CMD are those of MIB (Mueller et al., 2025, arXiv 2504.13151): trapezoids over shares of the edges. MIB takes
ten shares from 0.001 to 1. Here a graph of at most 64 edges takes every k from 0, larger ones MIB's shares.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.stats import rankdata, spearmanr

from models.errors import UserError

if TYPE_CHECKING:
    from benchmarks.circuits.truth import Truth

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SMALL = 64
THRESHOLD = 0.9
#: Score -> whether more is better.
SCORES = {
    "auroc": True, "optimal": True, "certified": True, "planted": True, "precision": True, "heads": True,
    "regret": False, "cpr": True, "cmd": False, "rank": True,
}  # fmt: skip
BOUNDS = dict.fromkeys(("auroc", "optimal", "certified", "planted", "precision", "heads"), (0.0, 1.0)) | {
    "rank": (-1.0, 1.0)
}


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


def head_accuracy(names: Sequence[str], scores: Float[np.ndarray, " edge"], circuit: Collection[str]) -> float:
    """Of as many heads as the circuit has, those with the largest outgoing score: the share that are in it. NaN where
    all heads or none are."""
    best: dict[str, float] = {}
    for name, score in zip(names, scores, strict=True):
        sender = name.partition("->")[0]
        if "H" in sender:
            best[sender] = max(best.get(sender, 0.0), abs(float(score)))
    inside = {edge.partition("->")[0] for edge in circuit} & best.keys()
    if len(inside) == len(best):
        return float("nan")
    return precision(np.array(list(best.values())), np.array([head in inside for head in best]))


def score_ranking(truth: Truth, scores: Float[np.ndarray, " edge"], seed: int = 0) -> dict[str, float]:
    """All scores of one ranking; NaN where there is nothing to compare with. Ties are put in a random order.

    Raises:
        UserError: not one finite number for each edge.
    """
    if scores.shape != (len(truth.space),) or not np.isfinite(scores).all():
        raise UserError(f"A method gives one finite score to each of {len(truth.space)} edges, not {scores.shape}.")
    where = truth.live.numpy()
    live, names = scores[where], [name for name, on in zip(truth.space.labels, where, strict=True) if on]
    found = dict.fromkeys(SCORES, float("nan"))
    for column, kind in (("auroc", "minimal"), *((kind, kind) for kind in ("optimal", "certified", "planted"))):
        if (sides := truth.sides[kind]) is not None:
            inside, judged = np.isin(names, [*sides[0]]), np.isin(names, [*sides[0], *sides[1]])
            found[column] = auroc(np.abs(live[judged]), inside[judged])
            if column == "auroc":
                found["precision"] = precision(np.abs(live[judged]), inside[judged])
    if (sides := truth.sides["planted"] or truth.sides["minimal"]) is not None:
        found["heads"] = head_accuracy(names, live, sides[0])
    tie = np.random.default_rng(seed).random(len(live))
    absolute, signed = (np.lexsort((tie, -each)) for each in (np.abs(live), live))
    sizes, recovered, both = _curve(truth, absolute)
    fits = np.flatnonzero(both >= THRESHOLD)
    small, smallest = len(live) <= SMALL, truth.known.get("smallest")
    if smallest is not None and small and len(fits):
        found["regret"] = float(sizes[fits[0]] - smallest)
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
