"""Estimates of every edge's and every node's effect from a few gradients, each compared with the exact effect.

The methods are those of :mod:`interp.causal.edges.attribution_methods`. As the steps grow, some sums approach
``metric(other run) - metric(run)``: with "eap-ig" the edges out of the embeddings; with "conductance" the edges into
the logits, or those across any cut of the graph. The gradient of a trained model can have a sharp peak on the way,
which few steps miss: then the sum is far off. So steps are doubled, from 5 on, until the sum out of the embeddings is
complete to :data:`TOLERANCE`, and the sentence says how complete it is. A complete estimate is not yet a right one: an
edge's share of the difference can have another sign than its effect when it alone is patched. A node's estimate is the
sum over its edges. For a sender that is, by the chain rule, the first-order term of patching it wherever it is read
(AtP for nodes: heads, MLPs, embeddings); for a receiver it is that of giving it the other run's input (a head's query,
key or value).

Signs are those of :mod:`interp.causal.edges.path_patching`: metric with the edge patched minus metric without. In the
direction "noise" the gradients of "eap" are taken on the clean run, in "denoise" on the corrupted one (as in
TransformerLens 4.3's ``attribution_patch``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr

from interp.causal.edges.attribution_methods import METHODS, ONE_STEP, SCORES, TOLERANCE, estimates, incompleteness
from interp.causal.edges.edge_effects import EdgeEffects, asked, edge_grid, edge_matrix, effect_table, labelled
from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.edges.effect_agreement import Agreement, agreement
from interp.causal.edges.missed_effects import FEWEST_SUBSETS, missed_effects, missed_in_words
from interp.causal.edges.path_patching import compute_direct
from interp.causal.metrics import Metric, spoken
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import probe
from interp.core.table_result import Measure
from interp.core.views import Picture, Points, Series
from interp.core.wording import sentence
from models.calls import Count, Natural, Seed
from models.errors import UserError, known_name
from models.number_format import counted, in_percent, number, p_value
from models.tasks import ProblemPairs
from models.transformer import HookedModel


@dataclass(frozen=True, eq=False, kw_only=True)
class EdgeAttribution(EdgeEffects):
    """``estimate`` and (if asked for) ``exact`` effects over (metric, edge, example); the same for whole nodes in
    ``senders`` and ``receivers``, datasets over (metric, sender or receiver, example). The table has their means, the
    estimates' with bootstrap intervals.

    Effects are the metric with the edge (all edges of the node) patched minus ``base``. Of methods in :data:`SCORES`
    the estimates are scores, on a scale of their own. ``missed`` (if asked for): the exact effects of the strongest
    edges, and a bound on what any other one contributes (:mod:`interp.causal.edges.missed_effects`).
    """

    method: str
    steps: int
    estimate: xr.DataArray
    exact: xr.DataArray | None
    senders: xr.Dataset
    receivers: xr.Dataset
    missed: xr.Dataset | None = None

    @property
    def by(self) -> str:
        """The method, with its steps where it takes several."""
        return self.method if self.method in ONE_STEP else f"{self.method} in {counted(self.steps, 'step')}"

    @cached_property
    def agreements(self) -> dict[tuple[str, str], Agreement]:
        """(metric, "edges", "senders" or "receivers") -> agreement of estimates and exact effects on the same pairs."""
        if self.exact is None:
            return {}
        pairs = {"edges": (self.estimate, self.exact)}
        pairs |= {name: (x.estimate, x.exact) for name, x in (("senders", self.senders), ("receivers", self.receivers))}
        return {
            (metric, what): agreement(estimate.sel(metric=metric).values, exact.sel(metric=metric).values)
            for metric in self.estimate.metric.values.tolist()
            for what, (estimate, exact) in pairs.items()
        }

    def completeness(self, metric: str | None = None) -> dict[str, float]:
        """Mean sums of the estimates out of the embeddings and into the logits, and the difference they approximate.

        ``error`` is how far the sums out of the embeddings are off, as a share of the difference (means over pairs of
        absolute values): complete is an error of at most :data:`TOLERANCE`. It is NaN where the runs do not differ.
        """
        metric = self.metric(metric)
        estimate, difference = self.estimate.sel(metric=metric), (self.other - self.base).sel(metric=metric)
        mean, out = estimate.mean("example"), estimate.isel(edge=_out_of(estimate)).sum("edge")
        return {
            "out of the embeddings": float(out.mean()),
            "into the logits": float(mean.values[mean.receiver.values == "logits"].sum()),
            "difference": float(difference.mean()),
            "error": incompleteness(out.values, difference.values),
        }

    def matrix(self, metric: str | None = None, group: str | None = None, split: bool = False) -> xr.DataArray:
        """Mean estimates over (sender, receiver); arguments as in :meth:`PathPatching.matrix`."""
        return edge_matrix(self.estimate.sel(metric=self.metric(metric)).mean("example"), group, split)

    def _finding(self, subject: str) -> str:
        metric, name = self.metric(None), self.measures[0].name
        text = f"{subject}: the {name}s by {self.by}"
        found = self.agreements.get((metric, "edges"))
        if found is None:
            rows = self.table[self.table["metric"] == metric]
            text += f" are 0 at all {len(rows)} edges"
            if (rows[name].abs() > 0).any():
                edge = rows.loc[rows[name].abs().idxmax(), "edge"]
                most = self.cell(name, metric=metric, edge=edge)
                text = f"{subject}: the {name}s by {self.by} are largest at {edge} ({most}), of {len(rows)} edges"
            text += ", and were not compared with exact effects"
        elif math.isnan(found.spearman):
            text += " have no rank correlation with the exact effects (all alike, or too few)"
        else:
            ranks = Estimate(found.spearman, found.spearman_low, found.spearman_high)
            text += (
                f" rank edges as their exact effects do with a correlation of {ranks} (shuffled edges: "
                f"{p_value(found.p)}; {found.live} of {found.cells} edges have an effect)"
            )
        if found is not None and name == "estimate" and (found.largest or found.worst_error):
            edge = self.estimate.edge.values[found.worst]
            text += f"; the largest error is {number(found.worst_error)} at {edge} (largest exact effect "
            text += f"{number(found.largest)})"
        text, off = f"{text}.", self.completeness(metric)["error"]
        if self.method not in ONE_STEP and off > TOLERANCE:
            text += f" They do NOT add up to the difference of the runs: it is off by {in_percent(off, 0)}."
        if self.missed is not None:
            text += f" {sentence(missed_in_words(self.missed, metric))}"
        return text


@probe("Which edges would matter, by gradients?", least=1)
def edge_attribution(
    model: HookedModel,
    pairs: ProblemPairs,
    *,
    metrics: str | Metric | Sequence[str | Metric] = "logit_diff",
    method: str = "eap-ig",
    steps: Count | None = None,
    direction: str | None = None,
    replacement: str = "corrupted",
    groups: Mapping[str, Sequence[int]] | None = None,
    exact: bool = True,
    subsets: Natural = 0,
    seed: Seed = 0,
) -> EdgeAttribution:
    """Estimated effects of all edges and nodes, compared with the exact ones on the same pairs.

    Args:
        method, steps: see the module; only "eap-ig" and "conductance" take more than one step. None takes 5, and
            twice as many (640 at most) until the estimates of the first metric are complete.
        exact: also patch every edge and node (the cost of :func:`interp.causal.edges.path_patching`); without it,
            nothing says how good the estimates are, unless ``subsets`` are asked for.
        subsets: patch the ten strongest edges, and so many random subsets of the others, 30 or more, which bound what
            any of those contributes (:mod:`interp.causal.edges.missed_effects`).
        direction, replacement, groups, seed: see :class:`interp.causal.edges.EdgeExperiment`.

    Cost: ``steps`` forward and backward passes (conductance one more; twice as many where they are raised), in addition
    to the exact sweep.

    Raises:
        UserError: unknown names, a metric without a gradient (exact match), steps below 1, or conductance with an
            replacement that is not a run (mean, zero).
    """
    known_name("method", method, METHODS)
    if method == "conductance" and replacement not in ("corrupted", "resample"):
        raise UserError(
            f"Conductance follows runs from one input to another, and the replacement {replacement!r} is not a run."
        )
    if 0 < subsets < FEWEST_SUBSETS:
        raise UserError(f"A bound on missed effects needs at least {FEWEST_SUBSETS} random subsets, not {subsets}.")
    experiment = EdgeExperiment(model, pairs, metrics, replacement, direction, groups, seed)
    graph, base = experiment.graph, experiment.full[:, None]
    steps, estimate = estimates(experiment, method, steps)
    sweep = labelled(experiment, compute_direct(experiment) - base, "edge") if exact else None
    nodes = []
    for axis, column, names in (("sender", 2, graph.senders), ("receiver", 1, graph.receivers)):
        part = graph.edge_index[:, column]
        sums = estimate.new_zeros(len(estimate), len(names), len(experiment))
        sums = sums.index_add(1, part.to(estimate.device), estimate)
        found = {"estimate": labelled(experiment, sums, axis)}
        if exact:
            found["exact"] = labelled(experiment, experiment.without_each(part, len(names)) - base, axis)
        nodes.append(xr.Dataset(found))
    fields, each = asked(experiment), labelled(experiment, estimate, "edge")
    name = "score" if method in SCORES else "estimate"
    table = effect_table(each, name, fields["provenance"].resampling_seed)
    table["exact"] = np.nan if sweep is None else sweep.mean("example").values.ravel()
    result = EdgeAttribution(
        **fields,
        table=table,
        measures=(Measure(name), Measure("exact", title="exact effect")),
        method=method,
        steps=steps,
        estimate=each,
        exact=sweep,
        senders=nodes[0],
        receivers=nodes[1],
        missed=missed_effects(experiment, estimate, subsets, seed) if subsets else None,
    )
    return result.saying(result._finding(f"{experiment.name}, {pairs.what}, {experiment.direction}"))


def _out_of(edges: xr.DataArray) -> np.ndarray:
    """The edges out of the embeddings."""
    return np.flatnonzero(np.isin(edges.sender.values, ("embed", "pos_embed")))


@drawing(EdgeAttribution)
def attribution_view(result: EdgeAttribution, metric: str | None = None) -> Picture:
    """Estimated effects as a matrix, and next to it each edge's estimate over its exact effect (if computed)."""
    metric, name = result.metric(metric), result.measures[0].name
    title = "" if metric == result.metric(None) else f"{name.capitalize()}s for the {spoken(metric)} by {result.by}"
    note = f"{result.direction.capitalize()}, {result.replacement}. Grey: no edge"
    grid = edge_grid(result.matrix(metric, split=True), metric)
    if result.exact is None:
        return Picture([grid], title=title, note=note)
    rows = result.table[result.table["metric"] == metric]
    size = rows[[name, "exact"]].abs().max(axis=1)
    labels = rows["edge"].where(size >= size.nlargest(4).min(), "")
    series = Series.of(rows, "exact", name, said=["edge"], labels=labels.to_numpy())
    axis, same = f"exact effect on the {spoken(metric)}", name == "estimate"
    return Picture([grid, Points(axis, name, series=[series], diagonal=same)], title=title, note=note)
