"""Searches for the smallest circuit that does what the whole model does.

A search sees the model only through ``evaluate(masks [variant, edge]) -> values [metric, variant, n]``: the metrics of
every example, with the edges that a mask does not keep ablated. All have one signature and are looked up by name:

    exhaustive   looks at every different circuit; the smallest faithful one is proven to be the smallest.
    greedy       starts from the whole graph and repeatedly removes the edge that costs least, measuring the exact
                 effect of every removal again at each step. No single edge of its result can be dropped.
    acdc         Conmy et al. (2023), Algorithm 1: goes over the edges once, from the logits backwards, and removes an
                 edge if the score falls by less than tau without it. Every tau of a list is tried and the smallest
                 faithful circuit kept. Their score is the KL divergence from the whole model, for one tau; here it is
                 the criterion's.

A circuit is faithful if its score, the least ``1 - |1 - F|`` of the metrics, is at least the threshold; F is the
restored share of a metric, ``(m(circuit) - m(ablated)) / (m(full) - m(ablated))``. Too much counts like too little: a
circuit may leave out the edges that suppress the answer. Several metrics can be given because a mean hides much: a
circuit may restore most of the mean logit difference and hardly a right answer. Effects are not monotone, so no search
prunes by a bound.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_space import CircuitSpace, without_each
from models.errors import UserError, known_name

#: ``masks [variant, edge]`` -> the metrics of every example ``[metric, variant, n]``.
Evaluate = Callable[[Tensor], Tensor]
TAUS = (0.003, 0.01, 0.03, 0.1, 0.3)
#: An exhaustive search is refused if there are more circuits than this.
MOST_CIRCUITS = 2**15


@dataclass(frozen=True, eq=False)
class Criterion:
    """When a circuit counts as faithful: ``1 - |1 - F| >= threshold`` for every metric, F on the mean over examples.

    Raises:
        UserError: a threshold outside (0, 1], wrong shapes, or an ablation of everything that changes nothing.
    """

    full: Float[Tensor, "metric n"]
    empty: Float[Tensor, "metric n"]
    threshold: float = 0.9

    def __post_init__(self) -> None:
        if not 0.0 < self.threshold <= 1.0:
            raise UserError(f"The threshold is a share above 0 and at most 1, not {self.threshold}.")
        if self.full.shape != self.empty.shape or self.full.ndim != 2:
            raise UserError(
                "The metrics of the full and of the ablated model must be [metric, n], one number per example."
            )
        if not float((self.full - self.empty).abs().max()) > 1e-9:
            raise UserError(
                "Ablating every edge changes the metric of no example, so there is nothing for a circuit to explain."
            )
        if float(self.span.abs().min()) <= 1e-9:
            raise UserError("Ablating every edge leaves the mean of a metric as it is: choose another metric.")

    @property
    def span(self) -> Float[Tensor, " metric"]:
        """Means of the metrics in the full model, minus those with everything ablated."""
        return (self.full.double() - self.empty.double()).mean(-1)

    def faithfulness(self, values: Float[Tensor, "metric variant n"]) -> Float[Tensor, "metric variant"]:
        """The restored share of each metric: 1 for the full model, 0 with everything ablated."""
        return (values.double() - self.empty.double()[:, None]).mean(-1) / self.span[:, None]

    def score(self, values: Float[Tensor, "metric variant n"]) -> Float[Tensor, " variant"]:
        """The least ``1 - |1 - F|`` of the metrics; minus infinity for a circuit with a metric that is NaN."""
        return (1 - (1 - self.faithfulness(values)).abs()).nan_to_num(nan=-float("inf")).amin(0)


@dataclass(frozen=True, eq=False)
class FoundCircuit:
    """What a search found.

    ``path`` holds one circuit per size, from the largest to the smallest: the best of its size among those evaluated.
    (Searches that do not evaluate all circuits leave out those that a smaller one beats.) ``scores`` are their scores.
    ``proven``: no smaller faithful circuit exists in the space. ``faithful_of_size``: (faithful, all) circuits of the
    size found; None unless all were evaluated.
    """

    method: str
    mask: Bool[Tensor, " edge"]
    score: float
    path: Bool[Tensor, "step edge"]
    scores: Float[Tensor, " step"]
    evaluated: int
    proven: bool
    looked_at: str
    faithful_of_size: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        return int(self.mask.sum())


@dataclass
class _Seen:
    """The circuits evaluated so far: keeps the best of each size and gives the smallest faithful one."""

    evaluate: Evaluate
    space: CircuitSpace
    criterion: Criterion
    evaluated: int = 0
    best: dict[int, tuple[float, Tensor]] = field(default_factory=dict)

    def scores(self, masks: Bool[Tensor, "variant edge"]) -> Float[Tensor, " variant"]:
        values = self.evaluate(masks)
        n_metrics, n = self.criterion.full.shape
        if values.shape != (n_metrics, len(masks), n):
            raise UserError(f"evaluate must return {[n_metrics, len(masks), n]} values, not {list(values.shape)}.")
        self.evaluated += len(masks)
        scores = self.criterion.score(values)
        sizes = masks.sum(1)
        for size in sizes.unique().tolist():
            where = (sizes == size).nonzero()[:, 0]
            top = int(where[scores[where].argmax()])
            if size not in self.best or float(scores[top]) > self.best[size][0]:
                self.best[size] = float(scores[top]), masks[top].clone()
        return scores

    def smallest(self) -> tuple[float, Tensor]:
        """The smallest faithful circuit seen (the best of its size), as (score, mask)."""
        size = min(size for size, (score, _) in self.best.items() if score >= self.criterion.threshold)
        return self.best[size]

    def found(self, method: str, looked_at: str, proven: bool = False, **more: Any) -> FoundCircuit:
        sizes = sorted(self.best, reverse=True)
        if not proven:  # a circuit tried in passing may not be the best of its size: drop what a smaller one beats
            least = {size: max((self.best[s][0] for s in sizes if s < size), default=-math.inf) for size in sizes}
            sizes = [s for s in sizes if self.best[s][0] > least[s] or s == sizes[0]]
        score, mask = self.smallest()
        path = torch.stack([self.best[size][1] for size in sizes])
        scores = torch.tensor([self.best[size][0] for size in sizes], dtype=torch.float64)
        return FoundCircuit(method, mask, score, path, scores, self.evaluated, proven, looked_at, **more)


def _begin(evaluate: Evaluate, space: CircuitSpace, criterion: Criterion) -> tuple[_Seen, Bool[Tensor, " edge"]]:
    """Evaluate the whole and the empty graph; the whole graph must score 1."""
    seen, whole = _Seen(evaluate, space, criterion), space.everything()
    scores = seen.scores(torch.stack((whole, torch.zeros_like(whole))))
    if not float(scores[0]) >= 1 - 1e-3:
        raise UserError(
            f"The whole graph has faithfulness score {float(scores[0]):.4f} in place of 1: the masked run does not "
            "reproduce the model, so that a search would mean nothing."
        )
    return seen, whole


def exhaustive(
    evaluate: Evaluate, space: CircuitSpace, criterion: Criterion, at_most: int = MOST_CIRCUITS, every_size: bool = True
) -> FoundCircuit:
    """Evaluate the circuits by size, the smallest first, to the end or (``every_size=False``) to the first size with a
    faithful one. Cost: one masked run per circuit, up to 2^edges.

    Raises:
        UserError: more than ``at_most`` different circuits.
    """
    circuits, complete = space.circuits(at_most)
    if complete < int(space.everything().sum()):
        raise UserError(
            f"{int(space.everything().sum())} edges make more than at_most = {at_most:,} different circuits; use "
            "method='greedy', or allow more."
        )
    seen, _ = _begin(evaluate, space, criterion)
    seen.evaluated = 0
    sizes = circuits.sum(1)
    counts: tuple[int, int] | None = None
    largest = int(sizes.max())
    for size in sorted(sizes.unique().tolist()):
        batch = circuits[sizes == size]
        faithful = int((seen.scores(batch) >= criterion.threshold).sum())
        if faithful and counts is None:
            counts = faithful, len(batch)
            if not every_size:
                largest = size
                break
    edges = int(space.everything().sum())
    what = f"all {seen.evaluated:,} different circuits of at most {largest} of {edges} edges (2^{edges} subsets)"
    return seen.found("exhaustive", what, proven=True, faithful_of_size=counts)


def greedy(
    evaluate: Evaluate,
    space: CircuitSpace,
    criterion: Criterion,
    share: float | Sequence[float] = 0.0,
    to_the_end: bool = True,
) -> FoundCircuit:
    """Remove at each step the edge without which the score is best, measured exactly for every edge that is left.

    ``share`` > 0 removes that share of the remaining edges at once (those whose single removals cost least); effects
    are measured again after each step. A step is halved, down to a quarter, while it costs more of the margin above the
    threshold than its share of the edges, and then while it is not faithful. Otherwise the first steps would spend on
    many edges the margin that a smaller circuit needs for a few. If several shares are given, each is tried from the
    whole graph. When no faithful step is left, removal goes on edge by edge to the empty circuit, for the curve
    (``to_the_end``). Last, single edges are dropped from the smallest faithful circuit seen while it stays faithful.
    Cost: edges^2 / 2 masked runs; with a share r up to 4 edges / r.

    Raises:
        UserError: no share, or one outside [0, 1).
    """
    shares = [float(share)] if isinstance(share, int | float) else list(share)
    if not shares or not all(0.0 <= one < 1.0 for one in shares):
        raise UserError(f"share is at least 0 and below 1, or several such numbers, not {share}.")
    seen, whole = _begin(evaluate, space, criterion)
    for one in shares:
        remove_greedily(seen, whole, one, to_the_end)
    while (mask := seen.smallest()[1]).any():
        scores_without_each(seen, mask)
        if int(seen.smallest()[1].sum()) == int(mask.sum()):
            break
    edges = int(whole.sum())
    return seen.found("greedy", f"{seen.evaluated:,} circuits by greedy removal from {edges} edges")


def remove_greedily(seen: _Seen, mask: Bool[Tensor, " edge"], share: float, to_the_end: bool) -> None:
    """Remove as many of the least needed edges at once as cost at most the same part of the margin that remains above
    the threshold; halve the number if it costs more; one edge at a time at the end.

    ``share``: the part of the circuits without one edge of which the best are tried together at first.
    """
    threshold, now = seen.criterion.threshold, seen.best[int(mask.sum())][0]
    while mask.any():
        trials, scores = scores_without_each(seen, mask)
        order = scores.argsort(descending=True, stable=True)
        count = max(1, int(share * len(trials)))
        small = max(1, count // 4)
        while True:
            trial = seen.space.live(trials[order[:count]].all(0))  # without every edge that one of these trials lacks
            score = float(scores[order[0]]) if count == 1 else float(seen.scores(trial[None])[0])
            spent = (now - threshold) * (count / len(trials) if count > small else 1)
            if count == 1 or score >= now - spent:
                break
            count = max(small, count // 2) if count > small else count // 2
        if score < threshold and not to_the_end:
            return
        mask, now = trial, score


def scores_without_each(
    seen: _Seen, mask: Bool[Tensor, " edge"]
) -> tuple[Bool[Tensor, "trial edge"], Float[Tensor, " trial"]]:
    """The circuits without one edge (and what only it connects), each once, and their scores."""
    trials = torch.unique(seen.space.live(without_each(mask)), dim=0)
    trials = trials[trials.sum(1).argsort(stable=True)]  # among equal scores the smaller circuit comes first
    return trials, seen.scores(trials)


def acdc(
    evaluate: Evaluate, space: CircuitSpace, criterion: Criterion, taus: float | Sequence[float] = TAUS
) -> FoundCircuit:
    """One pass per tau over the edges in reverse topological order (see the module). Cost: one run per edge and tau.

    Raises:
        UserError: no tau, or one that is not positive.
    """
    taus = [taus] if isinstance(taus, int | float) else list(taus)
    if not taus or min(taus) <= 0:
        raise UserError(f"acdc needs thresholds above 0, not {taus or 'none'}.")
    seen, whole = _begin(evaluate, space, criterion)
    for tau in taus:
        mask, score = whole, 1.0
        for edge in space.reverse_topological():
            if not mask[edge]:
                continue
            keep = torch.ones_like(mask)
            keep[edge] = False
            trial = space.live(mask & keep)
            without = float(seen.scores(trial[None])[0])
            if score - without < tau:
                mask, score = trial, without
    edges = int(space.everything().sum())
    names = ", ".join(f"{tau:g}" for tau in taus)
    return seen.found("acdc", f"{seen.evaluated:,} circuits by ACDC's pass over {edges} edges at tau {names}")


METHODS: Mapping[str, Callable[..., FoundCircuit]] = {"exhaustive": exhaustive, "greedy": greedy, "acdc": acdc}


def search(
    evaluate: Evaluate, space: CircuitSpace, criterion: Criterion, method: str = "auto", **options: Any
) -> FoundCircuit:
    """The smallest faithful circuit by one of the methods; "auto" is exhaustive where that is allowed, else greedy.

    Raises:
        UserError: an unknown method or option (with the closest), or whatever the method refuses.
    """
    if method == "auto":
        few = space.circuits(MOST_CIRCUITS)[1] == int(space.everything().sum())
        method = "exhaustive" if few else "greedy"
    known_name("search method", method, (*METHODS, "auto"))
    known = [*inspect.signature(METHODS[method]).parameters][3:]
    for option in options:
        known_name(f"option of the {method} search", option, known)
    return METHODS[method](evaluate, space, criterion, **options)
