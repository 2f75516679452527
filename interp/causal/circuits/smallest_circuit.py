"""The smallest circuit of a model that does what the whole model does, judged on problems that it was not found on.

A circuit is a set of edges of the residual stream (:mod:`interp.causal.edges`); all others carry what they would in
another run. It is searched for on one half of the pairs (:mod:`interp.causal.circuits.circuit_search`) and judged on
the other, which shares no problem with it: by the faithfulness and exact match of the circuit, of its complement and of
random circuits of the same size, under corrupted-run, mean and zero ablation, and by the drop without each of its
edges.

Edges that the ablation cannot see belong to no circuit. A pair's two runs have the same position embeddings, so under
corrupted-run ablation edges from them are neither kept nor cut. Such edges always stay on, also under the other
ablations; a circuit is what carries the *difference* between the runs, on top of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float

from interp.causal.circuits.circuit_search import Criterion, FoundCircuit, search
from interp.causal.circuits.circuit_space import CircuitSpace, jaccard
from interp.causal.circuits.edge_space import position_groups, space_of
from interp.causal.circuits.faithfulness import (
    judge_chance,
    judge_edges,
    judge_parts,
)
from interp.causal.circuits.pair_halves import halves
from interp.causal.edges import EdgeExperiment, EdgeGraph
from interp.causal.edges.edge_graph import LOGITS, part_and_input
from interp.causal.metrics import Metric, require_pairs_answered, spoken
from interp.core.estimate import SHARE, Estimate
from interp.core.frames import as_frame, leading
from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.samples import middle_carry_pairs
from interp.core.significance import permutation_p
from interp.core.table_result import ENDS, Measure, TableResult
from models.calls import Count, Seed, Share
from models.errors import UserError
from models.number_format import counted, p_value
from models.tasks import ProblemPairs
from models.transformer import HookedModel, model_name

#: The name of a metric, or a function that binds one to pairs.
Metrics = str | Callable[[ProblemPairs], Metric]
REPLACEMENTS_TRIED = ("corrupted", "mean", "zero")
FEWEST_DIFFERENT = 19  # random circuits that a p is made of, which is then at least 1 / 20


KEYS = ("quantity", "replacement", "of")
#: What edges carry that a circuit leaves out, in words.
CARRIED = {
    "corrupted": "the other problem's values",
    "resample": "values of another problem",
    "mean": "their means",
    "zero": "nothing",
    "optimal": "the constants that serve it best",
}
_MOST_NAMED = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Circuit(TableResult):
    """A circuit and how it was judged. ``found.mask`` marks its edges among ``space.labels``.

    A row of the table is a quantity: "faithfulness" and "exact match" by ablation and part, "drop in METRIC" by edge,
    and "METRIC by size".

    ``faithfulness`` (of the first metric) and ``exact_match`` are [replacement, part, stat] on the held-out pairs, with
    the parts full, circuit, complement, ablated and the stats value, low, high. The rest is under the search's
    ablation: ``drops`` [metric, edge, stat] without each edge; ``curve`` [metric, size, stat], the faithfulness of the
    best circuit of each size that the search saw; and, for the first metric, ``random``, the faithfulness of random
    circuits of the circuit's size, ``different``, that of each different one among them but the circuit itself, and
    ``random_curve`` [size, stat], their mean and middle 95% by size. ``again`` is what the same search finds on the
    held-out pairs; None without any, or where it refuses them.
    """

    metrics: tuple[str, ...]
    replacement: str
    graph: EdgeGraph
    space: CircuitSpace
    found: FoundCircuit
    faithfulness: xr.DataArray
    exact_match: xr.DataArray
    drops: xr.DataArray
    curve: xr.DataArray
    random: Float[np.ndarray, " draw"]
    random_curve: xr.DataArray
    different: Float[np.ndarray, " circuit"]
    again: FoundCircuit | None

    @property
    def stability(self) -> float:
        """Jaccard overlap with the circuit that the same search finds on the held-out pairs; NaN if there is none."""
        return float("nan") if self.again is None else jaccard(self.found.mask, self.again.mask)

    @property
    def edges(self) -> tuple[str, ...]:
        """The names of the edges, in the order in which they are read."""
        return self.space.names(self.found.mask)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The parts of the model that the edges join, in the order in which they write."""
        kept = self.graph.kept(self.found.mask)
        ends = {edge.sender for edge in kept} | {part_and_input(edge.receiver)[0] for edge in kept}
        return tuple(name for name in (*self.graph.senders, LOGITS) if name in ends)

    @property
    def needed(self) -> tuple[str, ...]:
        """The edges whose drop in one of the metrics has an interval entirely above zero."""
        return tuple(str(e) for e in self.drops.edge.values[(self.drops.sel(stat="low").values > 0).any(0)])

    @property
    def random_p(self) -> float:
        """Share of the different random circuits of this size (and the circuit itself) that are as close to F = 1 as
        the circuit; NaN for fewer than 19, of which none can give p = 0.05."""
        if len(self.different) < FEWEST_DIFFERENT:
            return float("nan")
        of = float(self.faithfulness.sel(replacement=self.replacement, part="circuit", stat="value"))
        return permutation_p(1 - abs(1 - of), 1 - np.abs(1 - self.different))

    def _finding(self, model: str, what: str) -> str:
        ours = {"quantity": "faithfulness", "replacement": self.replacement}
        circuit, others = (self.cell("value", **ours, of=part) for part in ("circuit", "complement"))
        names = f" ({', '.join(self.edges)})" if self.found.size <= _MOST_NAMED else ""
        can, recover = int(self.space.everything().sum()), "recovers" if self.found.size == 1 else "recover"
        random = str(Estimate(float(np.mean(self.random)), unit=SHARE))
        random += "" if math.isnan(self.random_p) else f" ({p_value(self.random_p)})"
        again = "" if math.isnan(self.stability) else f"; the other half's circuit overlaps by {self.stability:.0%}"
        unsure = ""
        if circuit.low is None or circuit.high is None:
            unsure = " (no interval: ablating every edge may change nothing)"
        claim = "no smaller one tried is faithful" if self.found.proven else "a smaller one is not ruled out"
        return (
            f"{model}, {what}: {self.found.size} of {counted(can, 'edge')}{names} {recover} {circuit}{unsure} of the "
            f"{spoken(self.metrics[0])} if cut edges carry {CARRIED[self.replacement]}. The others alone recover "
            f"{others}, random circuits of this size {random}; {claim}{again}."
        )


def tabulate(
    parts: Mapping[str, xr.DataArray],
    drops: xr.DataArray,
    curve: xr.DataArray,
    metrics: Sequence[str],
    replacement: str,
) -> pd.DataFrame:
    """The table of a :class:`Circuit`: ``parts`` are faithfulness and exact match [replacement, part, stat]."""
    arrays = {name: array.rename(part="of") for name, array in parts.items()}
    of = {"replacement": replacement}
    for words, array, axis in (("drop in {}", drops, "edge"), ("{} by size", curve, "size")):
        for name in metrics:
            arrays[words.format(name)] = array.sel(metric=name, drop=True).rename({axis: "of"}).assign_coords(of)
    tables = [as_frame(array.to_dataset("stat")).assign(quantity=name) for name, array in arrays.items()]
    frame = leading(pd.concat(tables, ignore_index=True), KEYS)
    return frame.astype({"of": str}).rename(columns={end: f"value_{end}" for end in ENDS})


@probe(
    "Which edges are enough?",
    summary=Summary(
        "edges of the smallest circuit of a carry",
        "count",
        lambda found: Estimate(float(len(found.edges)), note=", ".join(found.edges)),
        arguments=lambda _, task, n, seed: {"pairs": middle_carry_pairs(task, min(n, 128), seed), "n_random": 1},
        asked_by=(),
    ),
    able=require_pairs_answered,
)
def smallest_circuit(
    model: HookedModel,
    pairs: ProblemPairs,
    *,
    metrics: Metrics | Sequence[Metrics] = ("logit_diff", "exact_match"),
    replacement: str = "corrupted",
    method: str = "auto",
    threshold: Share = 0.9,
    groups: Mapping[str, Sequence[int]] | str | None = None,
    held_out: bool = True,
    n_random: Count = 100,
    seed: Seed = 0,
    **options: Any,
) -> Circuit:
    """Find the smallest circuit with ``1 - |1 - F| >= threshold`` for all metrics, and judge it on other pairs.

    Args:
        pairs: clean and corrupted problems; the circuit carries what they differ in.
        metrics: names of :mod:`interp.causal.metrics`, or functions that bind a metric to pairs. A circuit must restore
            all of them; faithfulness is reported for the first. Default the logit difference and the right answer.
        replacement: what a cut edge carries during the search: "corrupted", "resample", "mean" or "zero".
        method: "exhaustive", "greedy", "acdc", or "auto" (exhaustive up to 32,768 different circuits, else greedy).
        groups: "roles" splits every edge by the roles of its positions relative to the target (the task's
            ``relative_roles``); or groups of positions of your own.
        held_out: judge on the half of the pairs that was not searched on; False searches and judges on all.
        n_random: number of random circuits of the same size to compare with.
        options: options of the search method, such as ``share=0.1`` for greedy.

    Cost: masked runs on each half of the pairs (:mod:`interp.causal.circuits.circuit_search` says how many), and a few
    hundred on the other half.

    Raises:
        UserError: a model that answers no more than half of the pairs right (unless the metrics are your own or "kl",
            which compare the model with itself); whatever :class:`interp.causal.edges.EdgeExperiment`, the split or the
            search refuses; a metric already bound to all pairs.
    """
    asked = [metrics] if isinstance(metrics, str) or callable(metrics) else list(metrics)
    if any(isinstance(metric, Metric) for metric in asked):
        raise UserError(
            "The pairs are cut into two halves, and this metric is bound to other examples; give its name, or a "
            "function that makes it from pairs."
        )
    groups = position_groups(pairs, groups)
    one, other = halves(pairs, seed) if held_out else (pairs, pairs)
    bind = lambda of: [metric if isinstance(metric, str) else metric(of) for metric in asked]  # noqa: E731
    first = EdgeExperiment(model, one, bind(one), replacement, "noise", groups, seed)
    names, space = [metric.name for metric in first.metrics], space_of(first)
    undecided = ~space.everything()

    def searched(experiment: EdgeExperiment) -> FoundCircuit:
        evaluate = lambda masks: experiment(masks | undecided)[: len(names)]  # noqa: E731
        empty = evaluate(torch.zeros(1, len(space), dtype=torch.bool))[:, 0]
        return search(evaluate, space, Criterion(experiment.full[: len(names)], empty, threshold), method, **options)

    found = searched(first)

    extra = () if "exact_match" in names else ("exact_match",)
    judges = {
        kind: EdgeExperiment(model, other, [*bind(other), *extra], kind, "noise", groups, seed)
        for kind in dict.fromkeys((replacement, *REPLACEMENTS_TRIED))
    }
    faithfulness, exact_match = judge_parts(judges, space, found, seed)
    drops, curve = judge_edges(judges[replacement], names, space, found, seed)
    random, different, random_curve = judge_chance(
        judges[replacement], space, found, curve["size"].values.tolist(), n_random, seed
    )
    again = None
    if held_out:
        with suppress(UserError):
            again = searched(judges[replacement])
    how = f"apart from the {len(one):,} searched on (split by seed {seed})" if held_out else "searched on as well"
    strength = "exhaustive" if getattr(pairs, "exhaustive", False) and not held_out else "sampled"
    source = Provenance(len(other), pairs.seed, f"pairs that differ in {pairs.what}, {how}", strength)
    parts = {"faithfulness": faithfulness, "exact match": exact_match}
    circuit = Circuit(
        "", tabulate(parts, drops, curve, names, replacement), source, KEYS, (Measure("value", SHARE),),
        metrics=tuple(names), replacement=replacement, graph=first.graph, space=space, found=found,
        faithfulness=faithfulness, exact_match=exact_match, drops=drops, curve=curve,
        random=random, random_curve=random_curve, different=different, again=again,
    )  # fmt: skip
    return circuit.saying(circuit._finding(model_name(model), pairs.what))
