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

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from interp.core.estimate import Estimate
from interp.core.frames import as_frame, leading
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.samples import middle_carry_pairs
from interp.core.significance import permutation_p
from models.calls import Count, Seed, Share
from models.errors import UserError
from models.number_format import in_percent, in_percent_with, p_value
from models.tasks import ProblemPairs
from models.transformer import HookedModel, model_name

#: The name of a metric, or a function that binds one to pairs.
Metrics = str | Callable[[ProblemPairs], Metric]
REPLACEMENTS_TRIED = ("corrupted", "mean", "zero")
FEWEST_DIFFERENT = 19  # random circuits that a p is made of, which is then at least 1 / 20


@dataclass(frozen=True, eq=False)
class Circuit(Result):
    """A circuit and how it was judged. ``found.mask`` marks its edges among ``space.labels``.

    ``faithfulness`` (of the first metric) and ``exact_match`` are [replacement, part, stat] on the held-out pairs, with
    the parts full, circuit, complement, ablated and the stats value, low, high. The rest is under the search's
    ablation: ``drops`` [metric, edge, stat] without each edge; ``curve`` [metric, size, stat], the faithfulness of the
    best circuit of each size that the search saw; and, for the first metric, ``random``, the faithfulness of random
    circuits of the circuit's size, ``different``, that of each different one among them but the circuit itself, and
    ``random_curve`` [size, stat], their mean and middle 95% by size. ``again`` is what the same search finds on the
    held-out pairs; None without any, or where it refuses them.
    """

    model: str
    what: str
    metrics: tuple[str, ...]
    replacement: str
    threshold: float
    graph: EdgeGraph
    space: CircuitSpace
    found: FoundCircuit
    faithfulness: xr.DataArray
    exact_match: xr.DataArray
    drops: xr.DataArray
    curve: xr.DataArray
    random: Float[np.ndarray, " draw"]
    random_curve: xr.DataArray
    held_out: bool
    provenance: Provenance
    again: FoundCircuit | None = None
    different: Float[np.ndarray, " circuit"] = field(default_factory=lambda: np.zeros(0))

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
    def _random_p(self) -> float:
        """Share of the different random circuits of this size (and the circuit itself) that are as close to F = 1 as
        the circuit; NaN for fewer than 19, of which none can give p = 0.05."""
        if len(self.different) < FEWEST_DIFFERENT:
            return float("nan")
        of = float(self.faithfulness.sel(replacement=self.replacement, part="circuit", stat="value"))
        return permutation_p(1 - abs(1 - of), 1 - np.abs(1 - self.different))

    def _text(self, array: xr.DataArray, part: str, replacement: str | None = None) -> str:
        value, low, high = array.sel(replacement=replacement or self.replacement, part=part).values
        if not np.isfinite((low, high)).all():
            return f"{in_percent(value)}, with no interval since ablating every edge may change nothing"
        return in_percent_with(value, low, high)

    def sentence(self) -> str:
        can = int(self.space.everything().sum())
        names = self.edges
        listed = ", ".join(names) if len(names) <= 8 else f"between {', '.join(self.nodes)}"
        where = "held-out pairs" if self.held_out else "pairs, those they were found on,"
        others = [name for name in self.faithfulness.replacement.values if name != self.replacement]
        also = ", ".join(
            f"{name} {self._text(self.faithfulness, 'circuit', name)}, "
            f"{self._text(self.exact_match, 'circuit', name)} of the answers right"
            for name in others
        )
        if self.found.proven:
            faithful, count = self.found.faithful_of_size or (0, 0)
            claim = (
                f"Of the circuits tried on the pairs searched ({self.found.looked_at}), no smaller one is faithful, "
                f"and {faithful:,} of the {count:,} of its size {'is' if faithful == 1 else 'are'}"
            )
        else:
            claim = f"A smaller faithful circuit is not ruled out ({self.found.looked_at})"
        return (
            f"In {self.model}, {self.found.size} of the {can} edges that can carry {self.what} ({listed}) recover "
            f"{self._text(self.faithfulness, 'circuit')} of the {spoken(self.metrics[0])} on {self.provenance.n:,} "
            f"{where} under {self.replacement} ablation ({also}). The circuit gives "
            f"{self._text(self.exact_match, 'circuit')} of the answers right and the whole model "
            f"{self._text(self.exact_match, 'full')}. The other edges recover "
            f"{self._text(self.faithfulness, 'complement')} and give "
            f"{self._text(self.exact_match, 'complement')} of the answers right. {len(self.needed)} of the "
            f"{self.found.size} {'is' if len(self.needed) == 1 else 'are'} needed (the interval of what is lost "
            f"without one lies above zero). {len(self.random):,} random circuits of this size recover "
            f"{in_percent(float(np.mean(self.random)))} on average ({self._chance()}). {claim}."
            f"{self._how_stable()}"
        )

    def _chance(self) -> str:
        """How many random circuits there really are, and the p that they give."""
        others = f"{len(self.different):,} of them differ from each other and from this one"
        return f"{others}: {'too few for a p' if np.isnan(self._random_p) else p_value(self._random_p)}"

    def _how_stable(self) -> str:
        if self.again is None:
            return ""
        if self.stability == 1:
            return " The same search finds the same circuit on the held-out pairs."
        return (
            f" The same search finds another one of {self.again.size} edges on the held-out pairs (overlap "
            f"{in_percent(self.stability, 0)}, Jaccard)."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per quantity: faithfulness and exact match by ablation and part, drop by edge, curve by size."""
        arrays = {
            "faithfulness": self.faithfulness.rename(part="of"),
            "exact match": self.exact_match.rename(part="of"),
        }
        of = {"replacement": self.replacement}
        for words, array, axis in (("drop in {}", self.drops, "edge"), ("{} by size", self.curve, "size")):
            for name in self.metrics:
                arrays[words.format(name)] = array.sel(metric=name, drop=True).rename({axis: "of"}).assign_coords(of)
        tables = [as_frame(array.to_dataset("stat")).assign(quantity=name) for name, array in arrays.items()]
        frame = leading(pd.concat(tables, ignore_index=True), ("quantity", "replacement", "of"))
        return frame.astype({"of": str}).assign(n=self.provenance.n)


@probe(
    "Which edges are enough?",
    scalar=Scalar(
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
    return Circuit(
        again=again,
        different=different,
        model=model_name(model),
        what=pairs.what,
        metrics=tuple(names),
        replacement=replacement,
        threshold=threshold,
        graph=first.graph,
        space=space,
        found=found,
        faithfulness=faithfulness,
        exact_match=exact_match,
        drops=drops,
        curve=curve,
        random=random,
        random_curve=random_curve,
        held_out=held_out,
        provenance=Provenance(len(other), pairs.seed, f"pairs that differ in {pairs.what}, {how}", strength),
    )
