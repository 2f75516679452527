"""Every circuit that does what the model does, how many there are, and how much of that is the sample.

What the model does is here to tell one problem of a pair from the other. All else that an answer needs may come over
cut edges, which carry the other problem, so that these circuits are smaller than those that answer every problem with
constants on cut edges (:func:`interp.certified_circuits`).

A circuit is a set of edges (or nodes) of the residual stream; all others carry what they would in another run, or a
constant. Every different circuit is run on one half of the pairs. It is faithful if it restores both the logit
difference and the right answers: ``1 - |1 - F| >= threshold`` for each, F as in
:mod:`interp.causal.circuits.circuit_search`. A faithful circuit is *minimal* if no other faithful circuit is part of
it. A smallest circuit is minimal; a minimal one need not be smallest.

Three things say how much the answer can be trusted: the other half of the pairs, judged by itself; resamples of the
pairs; other thresholds. Where there are several minimal circuits, each part that two of them share is *exchanged*: what
it writes in the run of the one is put into the run of the other. If the other's answers stay, that part does the same
in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from math import comb

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.causal.circuits.circuit_search import Criterion, search
from interp.causal.circuits.circuit_space import CircuitSpace, jaccard
from interp.causal.circuits.circuit_stability import compute_stability, how_stable, minimal_rows, resampled
from interp.causal.circuits.edge_space import position_groups, space_of
from interp.causal.circuits.pair_halves import halves
from interp.causal.circuits.part_exchange import exchange_parts
from interp.causal.circuits.smallest_circuit import CARRIED
from interp.causal.edges import EdgeExperiment, EdgeGraph
from interp.causal.edges.edge_graph import EMBED, LOGITS, POS_EMBED, part_and_input
from interp.causal.edges.optimal_ablation import optimal_values
from interp.causal.metrics import require_pairs_answered
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.samples import middle_carry_pairs
from interp.core.table_result import Measure, TableResult
from interp.core.views import Line, Picture, Points, Series
from interp.core.wording import listed
from models.calls import Count, Seed, Share
from models.errors import UserError, known_name
from models.number_format import counted, in_percent
from models.tasks import ProblemPairs
from models.transformer import HookedModel, model_name

METRICS = ("logit_diff", "exact_match")
REPLACEMENTS = ("corrupted", "mean", "zero", "optimal")
MOST_CIRCUITS = 2**16
MOST_FITTED = 2**9  # circuits whose own constants are fitted
THRESHOLDS = (0.8, 0.9, 0.95, 0.99)
_MOST_EXCHANGED, _MOST_NAMED, _GREEDY_BY_ONE = 6, 4, 64
MEASURES = (Measure("logit_diff", SHARE), Measure("exact_match", SHARE))


@dataclass(frozen=True, eq=False, kw_only=True)
class AllCircuits(TableResult):
    """Every different circuit up to ``looked_to`` edges (or nodes), and which of them are faithful: those are the rows,
    with their size, both faithfulnesses, the edges that they consist of, and whether they are minimal.

    Attributes:
        masks: the circuits [circuit, edge], over ``space.labels``; ``sets`` are the units (edges or nodes) of each
            [circuit, unit], over ``units``, and count for its size.
        faithfulness: F [metric, circuit] of the logit difference and of the right answers.
        complete: whether these are all circuits; if not, every circuit that is not listed is larger than ``looked_to``,
            and ``at_most`` is the size of a faithful one that greedy removal found (None: it found none smaller).
        stability: one row per other draw, resample or threshold, with the size of its smallest circuit, how many
            minimal ones it has, whether these are the ``same``, and the ``jaccard`` overlap of the smallest ones.
        exchange: one row per ordered pair of minimal circuits and part that both have: the share of the second one's
            answers that stay when the part writes what it does in the first (NaN rows: nothing is shared).
    """

    replacement: str
    by: str
    threshold: float
    space: CircuitSpace
    units: tuple[str, ...]
    masks: Bool[Tensor, "circuit edge"]
    sets: Bool[Tensor, "circuit unit"]
    faithfulness: Float[np.ndarray, "metric circuit"]
    complete: bool
    looked_to: int
    at_most: int | None
    stability: pd.DataFrame
    exchange: pd.DataFrame

    @cached_property
    def scores(self) -> Float[np.ndarray, "metric circuit"]:
        """``1 - |1 - F|`` of each metric; minus infinity where it is NaN."""
        return np.nan_to_num(1 - np.abs(1 - self.faithfulness), nan=-np.inf)

    def faithful(self, threshold: float | None = None) -> Bool[np.ndarray, " circuit"]:
        """Which circuits restore both metrics."""
        return self.scores.min(0) >= (self.threshold if threshold is None else threshold)

    @cached_property
    def _minimal_at(self) -> list[int]:
        """Where the minimal circuits stand among all, the smallest first."""
        return minimal_rows(self.sets.numpy(), self.faithful())

    @cached_property
    def minimal(self) -> tuple[tuple[str, ...], ...]:
        """The minimal circuits, the smallest first, each as names of edges or nodes."""
        return tuple(tuple(np.array(self.units)[self.sets[row].numpy()].tolist()) for row in self._minimal_at)

    @property
    def size(self) -> int | None:
        """The size of the smallest faithful circuit; None if there is none among those listed."""
        return len(self.minimal[0]) if self.minimal else None

    @property
    def smallest(self) -> tuple[tuple[str, ...], ...]:
        """The minimal circuits of the smallest size."""
        return tuple(names for names in self.minimal if len(names) == self.size)

    @property
    def unique(self) -> bool:
        """Whether there is exactly one minimal circuit, and all circuits were looked at."""
        return self.complete and len(self.minimal) == 1

    @property
    def overlap(self) -> float:
        """Mean Jaccard overlap of two minimal circuits; NaN for fewer than two."""
        found = [jaccard(self.sets[one], self.sets[other]) for one, other in combinations(self._minimal_at, 2)]
        return float(np.mean(found)) if found else float("nan")

    def _finding(self, model: str, what: str) -> str:
        looked = counted(len(self.masks), "circuit")
        looked += "" if self.complete else f" of up to {counted(self.looked_to, self.by)}"
        kept, share = int(self.faithful().sum()), in_percent(self.threshold, 0)
        keep = "keeps" if kept == 1 else "keep"
        said = f"{model}, {what}: {kept:,} of {looked} {keep} {share} of logit difference and answers if cut edges "
        said += f"carry {CARRIED[self.replacement]}"
        if not self.minimal:
            bound = f"; greedy removal finds one of {self.at_most}" if self.at_most is not None else ""
            return f"{said}{'' if self.complete else f', so that larger ones are needed{bound}'}."
        first, sizes = self.minimal[0], listed(sorted({len(names) for names in self.minimal}))
        if len(self.minimal) > 1:
            said += f". {len(self.minimal):,} are minimal, of {sizes} {self.by}s"
        elif len(first) > _MOST_NAMED:
            said += f". One is minimal, of {counted(len(first), self.by)}"
        else:
            said += f". One is minimal: {', '.join(first) or 'nothing at all'}"
        return f"{said}. {how_stable(self.stability)}"


def tabulate(
    sets: Bool[np.ndarray, "circuit unit"],
    units: Sequence[str],
    faithfulness: Float[np.ndarray, "metric circuit"],
    faithful: Bool[np.ndarray, " circuit"],
) -> pd.DataFrame:
    """The table of :class:`AllCircuits`, the smallest circuits first."""
    rows, minimal = [], minimal_rows(sets, faithful)
    for row in np.flatnonzero(faithful).tolist():
        names = np.array(units)[sets[row]].tolist()
        shares = dict(zip(METRICS, faithfulness[:, row], strict=True))
        rows.append({"of": ", ".join(names), "size": len(names), "minimal": row in minimal, **shares})
    table = pd.DataFrame(rows, columns=["of", "size", "minimal", *METRICS])
    return table.sort_values(["size", "minimal"], ascending=[True, False], ignore_index=True)


@probe(
    "How many circuits are enough, and which?",
    summary=Summary(
        "minimal circuits of a carry",
        "count",
        lambda found: Estimate(float(len(found.minimal)), note="; ".join(map(", ".join, found.minimal))),
        arguments=lambda _, task, n, seed: {"pairs": middle_carry_pairs(task, min(n, 128), seed)},
        asked_by=(),
    ),
    able=require_pairs_answered,
    least=4,
)
def all_circuits(
    model: HookedModel,
    pairs: ProblemPairs,
    *,
    replacement: str = "corrupted",
    by: str = "edge",
    threshold: Share = 0.9,
    groups: Mapping[str, Sequence[int]] | str | None = None,
    most: Count = MOST_CIRCUITS,
    seed: Seed = 0,
) -> AllCircuits:
    """List every faithful circuit of a model, on one half of the pairs, and say how stable the list is.

    Args:
        pairs: clean and corrupted problems; the circuit carries what they differ in.
        replacement: what cut edges carry: "corrupted", "mean", "zero" or "optimal", each circuit's own best constants,
            fitted on the other half of the pairs (:mod:`interp.causal.edges.optimal_ablation`).
        by: "edge", or "node" for sets of heads and MLPs with all edges between them.
        groups: "roles" or groups of positions, which split every edge, as in :func:`interp.smallest_circuit`.
        most: list no more than so many circuits (with "optimal", 512 at most). If there are more, all up to a size are
            listed, and greedy removal from the whole graph bounds the smallest from above.
        seed: of the halves and of the resamples.

    Cost: two masked runs of half of the pairs for each circuit; "optimal" 200 more, with gradients.

    Raises:
        UserError: a model that answers no more than half of the pairs right, and whatever
            :class:`interp.causal.edges.EdgeExperiment` or the split refuses.
    """
    known_name("replacement", replacement, REPLACEMENTS)
    known_name("unit", by, ("edge", "node"))
    if by == "node" and groups is not None:
        raise UserError("Groups of positions split edges; nodes are whole heads and MLPs.")
    kind = "mean" if replacement == "optimal" else replacement
    split = position_groups(pairs, groups)
    sides = halves(pairs, seed)
    one, other = (EdgeExperiment(model, side, METRICS, kind, "noise", split, seed) for side in sides)
    space = space_of(one)
    undecided = ~space.everything()
    most = min(most, MOST_FITTED) if replacement == "optimal" else most
    masks, sets, units, looked_to, complete = _listed(space, one.graph, by, most)

    def run(experiment: EdgeExperiment, fitted_on: ProblemPairs) -> Callable[[Tensor], Tensor]:
        if replacement == "optimal":
            return lambda masks: optimal_values(experiment, masks | undecided, fitted_on.clean_tokens)
        return lambda masks: experiment(masks | undecided)

    runs = run(one, sides[1]), run(other, sides[0])
    values = [each(masks) for each in runs]
    nothing = torch.zeros(1, len(space), dtype=torch.bool)
    ends = [(each.full, ask(nothing)[:, 0]) for each, ask in zip((one, other), runs, strict=True)]
    criteria = [Criterion(*end, threshold) for end in ends]
    scores = [criterion.score(found).numpy() for criterion, found in zip(criteria, values, strict=True)]
    faithful = scores[0] >= threshold
    draws = [("the other half of the pairs", "", scores[1] >= threshold)]
    draws += [
        ("resampled pairs", str(i), found) for i, found in enumerate(resampled(values[0], *ends[0], threshold, seed))
    ]
    draws += [("other thresholds", f"{t:g}", scores[0] >= t) for t in THRESHOLDS if t != threshold]
    minimal = minimal_rows(sets.numpy(), faithful)
    at_most = None
    if not complete and not minimal:
        share = 0.0 if int(space.everything().sum()) <= _GREEDY_BY_ONE else 0.1
        found = search(runs[0], space, criteria[0], "greedy", share=share, to_the_end=False) if by == "edge" else None
        at_most = found and found.size
    few = masks[minimal[:_MOST_EXCHANGED]] | undecided
    exchange = exchange_parts(one, few) if len(few) > 1 else exchange_parts(one, few[:0])
    shares = criteria[0].faithfulness(values[0]).numpy()
    source = f"pairs that differ in {pairs.what}, half of {len(pairs):,}"
    result = AllCircuits(
        "", tabulate(sets.numpy(), units, shares, faithful), Provenance(len(one), pairs.seed, source), ("of",),
        MEASURES, replacement=replacement, by=by, threshold=threshold, space=space, units=units, masks=masks, sets=sets,
        faithfulness=shares, complete=complete, looked_to=looked_to, at_most=at_most,
        stability=compute_stability(sets.numpy(), draws, faithful), exchange=exchange,
    )  # fmt: skip
    return result.saying(result._finding(model_name(model), pairs.what))


def _listed(
    space: CircuitSpace, graph: EdgeGraph, by: str, most: int
) -> tuple[Bool[Tensor, "circuit edge"], Bool[Tensor, "circuit unit"], tuple[str, ...], int, bool]:
    """(edges, units, names of the units, the largest size listed, whether these are all) of the circuits."""
    if by == "edge":
        masks, size = space.circuits(most)
        return masks, masks, space.labels, size, size == int(space.everything().sum())
    nodes = tuple(name for name in graph.senders if name not in (EMBED, POS_EMBED))
    always = {EMBED, POS_EMBED, LOGITS}
    size = next(
        (k - 1 for k in range(1, len(nodes) + 1) if sum(comb(len(nodes), i) for i in range(k + 1)) > most), None
    )
    looked = len(nodes) if size is None else size
    chosen = [set(some) for k in range(looked + 1) for some in islice(combinations(nodes, k), most)]
    ends = [(edge.sender, part_and_input(edge.receiver)[0]) for edge in graph.edges]
    rows = [[all(end in some or end in always for end in both) for both in ends] for some in chosen]
    masks = space.live(torch.tensor(rows, dtype=torch.bool))
    found: dict[tuple[bool, ...], int] = {}
    for i, row in enumerate(masks.tolist()):
        found.setdefault(tuple(row), i)
    first = sorted(found.values())
    sets = torch.tensor([[node in chosen[i] for node in nodes] for i in first], dtype=torch.bool)
    return masks[first], sets.reshape(len(first), len(nodes)), nodes, looked, size is None


@drawing(AllCircuits)
def every_circuit_view(result: AllCircuits, most: int = 2_000) -> Picture:
    """Each circuit by its size and its worse faithfulness score; the ``most`` best ones, the minimal ones apart."""
    score, sizes = result.scores.min(0), result.sets.sum(1).numpy()
    best = np.argsort(-score, kind="stable")[:most]
    rest = best[~np.isin(best, result._minimal_at) & np.isfinite(score[best])]
    series = [
        Series(name, sizes[of], score[of], control=name == "circuits")
        for name, of in (("circuits", rest), ("minimal ones", np.array(result._minimal_at, dtype=int)))
        if len(of)
    ]
    y = "1 - |1 - F|, the worse of logits and answers"
    points = Points(f"{result.by}s", y, series=series, lines=(Line(result.threshold),))
    note = f"{result.replacement.capitalize()} ablation, faithful from {result.threshold:g}"
    return Picture([points], note=note)
