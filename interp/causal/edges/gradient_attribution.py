"""Estimates of every edge's and every node's effect from a few gradients, each compared with the exact effect.

Sender s writes ``value_s`` in the run and ``other_s`` in the replacement; ``g_r`` is the gradient of the metric with
respect to what receiver r reads, all paths after r included:

    eap           (other_s - value_s) . g_r, g_r of the run itself: the first-order term of cutting the edge s -> r
                  (attribution patching, Nanda 2023; Syed et al. 2023)
    eap-ig        (other_s - value_s) . mean of g_r over k = 1 .. steps, taken in runs whose *embeddings* are
                  other + k / steps (value - other), all else computed: EAP-IG (Hanna et al. 2024) by inputs. k = steps
                  is the run itself, k = 0 is left out; one step is "eap"
    ends          (other_s - value_s) . mean of g_r in the run itself and in the run with every edge cut; elsewhere
                  it is called "clean-corrupted"
    qk-fix        "eap", but for edges into queries and keys: the change of what the head writes when its query or key
                  input alone has other_s, which passes through the softmax exactly, times the gradient with respect to
                  it (AtP*'s QK fix, Kramar et al. 2024, for edges)
    atp-star      the mean of the absolute values of "qk-fix" without the gradients through one sublayer (a layer's
                  attention, or its MLP) at a time: effects that cancel along two paths show (AtP* with GradDrop, Kramar
                  et al. 2024, which drops those of whole layers; most models here have one). It has no sign. The sum is
                  divided by the number of sublayers less one, as an edge has no effect without those of its receiver
    gim           "eap" with other gradients (Gradient Interaction Modifications, Edin et al. 2025, arXiv 2505.17630):
                  the scales of norms are constants; the softmax passes on what one of twice the temperature would,
                  times two; factors of a product share its gradient: queries and keys get 1/4 of it, values and the
                  two branches of a gated MLP 1/2
    conductance   - sum over k of (value_s(k) - value_s(k - 1)) . (g_r(k) + g_r(k - 1)) / 2 along the same runs, k = 0
                  included: the path integral of each edge (conductance, Dhamdhere et al. 2018; for edges CEAP, Wu et
                  al. 2026, arXiv 2606.16920)

Products are summed over positions (of the edge's group) and d_model. As the steps grow, some sums approach
``metric(other run) - metric(run)``: with "eap-ig" the edges out of the embeddings; with "conductance" the edges into
the logits, or those across any cut of the graph. The gradient of a trained model can have a sharp peak on the way,
which few steps miss: then the sum is far off. So steps are doubled, from 5 on, until the sum out of the embeddings is
complete to :data:`TOLERANCE`, and the sentence says how complete it is. A complete estimate is not yet a right one: an
edge's share of the difference can have another sign than its effect when it alone is patched. A node's estimate is the
sum over its edges. For a sender that is, by the chain rule, the first-order term of patching it wherever it is read
(AtP for nodes: heads, MLPs, embeddings); for a receiver it is that of giving it the other run's input (a head's query,
key or value).

Signs are those of :mod:`interp.causal.edges.paths`: metric with the edge patched minus metric without. In the direction
"noise" the gradients of "eap" are taken on the clean run, in "denoise" on the corrupted one (as in TransformerLens
4.3's ``attribution_patch``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from interp.causal.edges.effects import EdgeEffects, asked, edge_grid, edge_matrix, effect_table, labelled
from interp.causal.edges.experiment import EdgeExperiment
from interp.causal.edges.gradients import gradients, interactions
from interp.causal.edges.graph import EdgeGraph, part_and_input
from interp.causal.edges.missed_effects import FEWEST_SUBSETS, missed_effects, missed_in_words
from interp.causal.edges.paths import compute_direct
from interp.core.agreement import Agreement, agreement
from interp.core.drawings import drawing
from interp.core.metrics import Metric, spoken
from interp.core.probe import probe
from interp.core.views import Picture, Points, Series
from models.calls.argument_kinds import Count, Index, Natural
from models.errors import UserError, known_name
from models.numerals import in_percent, p_value
from models.tasks import ProblemPairs
from models.transformer.hooked import HookedModel
from models.transformer.part_names import in_block

METHODS = ("eap", "eap-ig", "ends", "qk-fix", "atp-star", "gim", "conductance")
_ONE_STEP = ("eap", "ends", "qk-fix", "atp-star", "gim")
#: Methods whose numbers rank edges and estimate no effect: "atp-star" has no sign, "gim" takes other gradients.
SCORES = ("atp-star", "gim")
#: An estimate is complete if the sums out of the embeddings miss the difference of the two runs by at most this share
#: of it (means over pairs of the absolute values).
TOLERANCE = 0.05
FIRST_STEPS, MOST_STEPS = 5, 640
_SAID = 3


@dataclass(frozen=True, eq=False)
class EdgeAttribution(EdgeEffects):
    """``estimate`` and (if asked for) ``exact`` effects over (metric, edge, example); the same for whole nodes in
    ``senders`` and ``receivers``, datasets over (metric, sender or receiver, example).

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
    def called(self) -> str:
        """What the method's numbers are: "estimate" of the exact effects, or "score"."""
        return "score" if self.method in SCORES else "estimate"

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

    def agreement_table(self) -> pd.DataFrame:
        """One row per metric and level: rank correlation with its permutation p, worst absolute error and its place.

        Raises:
            UserError: the exact sweep was not asked for.
        """
        if not self.agreements:
            raise UserError("There is nothing to compare with: this was computed with exact=False.")
        names = {"edges": self.estimate.edge, "senders": self.senders.sender, "receivers": self.receivers.receiver}
        rows = []
        for (metric, what), found in self.agreements.items():
            row = {"metric": metric, "level": what, "method": self.method, "steps": self.steps} | found.to_dict()
            row |= {"worst": str(names[what].values[found.worst])}
            rows.append(row | ({"worst_error": np.nan, "worst": ""} if self.called == "score" else {}))
        return pd.DataFrame(rows)

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

    def sentence(self) -> str:
        metric = self.metric(None)
        effect = self.estimate.sel(metric=metric).mean("example").values
        strongest = np.argsort(-np.abs(effect), kind="stable")[:_SAID]
        parts = ", ".join(f"{self.estimate.edge.values[i]} ({effect[i]:+.3g})" for i in strongest)
        name = (
            self.method if self.method in _ONE_STEP else f"{self.method} in {self.steps} step{'s' * (self.steps > 1)}"
        )
        text = f"{self.model}, {self.what}, {self.direction}: by {name}, the strongest edges on the {spoken(metric)} "
        text += f"are {parts}; "
        sums = self.completeness(metric)
        if self.method not in _ONE_STEP and np.isfinite(sums["error"]):
            off = f"off by {in_percent(sums['error'], 0)} of the difference in the mean pair"
            text += f"out of the embeddings the estimates add up to {sums['out of the embeddings']:.3g} "
            text += f"where the runs differ by {sums['difference']:.3g}, "
            complete = sums["error"] <= TOLERANCE
            text += f"complete ({off}); " if complete else f"NOT complete ({off}, more than {TOLERANCE:.0%}); "
        if self.missed is not None:
            text += f"{missed_in_words(self.missed, metric)}; "
        if (metric, "edges") not in self.agreements:
            return text + f"these {self.called}s were not compared with exact effects."
        found = self.agreements[metric, "edges"]
        ranks = f"{found.spearman:.2f} [{found.spearman_low:.2f}, {found.spearman_high:.2f}]"
        ranked = f"the rank correlation with the exact effects is {ranks}"
        if not np.isfinite(found.spearman):
            ranked = "no rank correlation can be computed (all alike, or too few)"
        text += f"over the {found.live} of {found.cells} edges that have an effect {ranked}"
        if self.called == "score":
            return f"{text}; these are scores and estimate no effect."
        return text + (
            f" and the worst error {found.worst_error:.3g}, at {self.estimate.edge.values[found.worst]}, where the "
            f"largest effect is {found.largest:.3g}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per metric and edge: mean estimate (or score), spread, bootstrap interval (95%), n, exact mean."""
        table = effect_table(self.estimate, self.provenance.resampling_seed).rename(columns={"effect": self.called})
        exact = np.nan if self.exact is None else self.exact.mean("example").values.ravel()
        table.insert(table.columns.get_loc(self.called) + 1, "exact", exact)  # pyright: ignore[reportArgumentType]
        return table


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
    target: Index | None = None,
    exact: bool = True,
    verified: Natural = 10,
    subsets: Natural = 0,
    seed: int = 0,
) -> EdgeAttribution:
    """Estimated effects of all edges and nodes, compared with the exact ones on the same pairs.

    Args:
        method, steps: see the module; only "eap-ig" and "conductance" take more than one step. None takes 5, and
            twice as many (640 at most) until the estimates of the first metric are complete.
        exact: also patch every edge and node (the cost of :func:`interp.causal.edges.path_patching`); without it,
            nothing says how good the estimates are, unless ``subsets`` are asked for.
        verified, subsets: patch so many of the strongest edges, and so many random subsets of the others, 30 or more,
            which bound what any of those contributes (:mod:`interp.causal.edges.missed_effects`).
        direction, replacement, groups, target, seed: see :class:`interp.causal.edges.EdgeExperiment`.

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
    experiment = EdgeExperiment(model, pairs, metrics, replacement, direction, groups, target, seed)
    graph, base = experiment.graph, experiment.full[:, None]
    steps, estimate = _estimates(experiment, method, steps)
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
    return EdgeAttribution(
        **asked(experiment),
        method=method,
        steps=steps,
        estimate=labelled(experiment, estimate, "edge"),
        exact=sweep,
        senders=nodes[0],
        receivers=nodes[1],
        missed=missed_effects(experiment, estimate, verified, subsets, seed) if subsets else None,
    )


def _out_of(edges: xr.DataArray) -> np.ndarray:
    """The edges out of the embeddings."""
    return np.flatnonzero(np.isin(edges.sender.values, ("embed", "pos_embed")))


def incompleteness(sums: Float[np.ndarray, " n"], difference: Float[np.ndarray, " n"]) -> float:
    """How far sums of estimates are off, as a share of the difference they should give."""
    size = float(np.abs(difference).mean())
    return float(np.abs(sums - difference).mean()) / size if size else float("nan")


def _estimates(
    experiment: EdgeExperiment, method: str, steps: int | None
) -> tuple[int, Float[Tensor, "metric edge n"]]:
    """The estimates, and the number of steps that they took."""
    if method in _ONE_STEP or steps is not None:
        steps = 1 if method in _ONE_STEP or steps is None else steps
        return steps, compute_attribution(experiment, method, steps)
    return complete_estimate(experiment, method)


def complete_estimate(experiment: EdgeExperiment, method: str) -> tuple[int, Float[Tensor, "metric edge n"]]:
    """(steps, estimates), with steps doubled until the first metric's are complete, or there are 640."""
    steps, difference = FIRST_STEPS, (experiment.empty - experiment.full)[0].double().cpu().numpy()
    out = [edge.sender in ("embed", "pos_embed") for edge in experiment.graph.edges]
    while True:
        estimate = compute_attribution(experiment, method, steps)
        error = incompleteness(estimate[0, out].double().cpu().sum(0).numpy(), difference)
        if error <= TOLERANCE or 2 * steps > MOST_STEPS or not difference.any():
            return steps, estimate
        steps *= 2


def compute_attribution(experiment: EdgeExperiment, method: str, steps: int) -> Float[Tensor, "metric edge n"]:
    """The estimates of a method; see the module."""
    n_inputs = 1 + experiment.graph.has_positions
    columns = []
    for at in experiment.masked.batches(len(experiment)):
        value, other = experiment.values[:, at], experiment.replacement[:, at]
        ends = other[:n_inputs], value[:n_inputs]
        if method == "conductance":
            total, before = torch.zeros(()), None
            for k in range(steps + 1):
                written, slope = gradients(experiment, ends[0] + k / steps * (ends[1] - ends[0]), at)
                if before is not None:
                    change = before[0] - written
                    total = total + _products(experiment, change, (before[1] + slope) / 2)
                before = written, slope
            columns.append(total)
        elif method == "ends":
            slopes = sum((gradients(experiment, end, at)[1] for end in ends), torch.zeros(()))
            columns.append(_products(experiment, other - value, slopes / 2))
        elif method == "qk-fix":
            slopes = gradients(experiment, ends[1], at)[1]
            estimate = _products(experiment, other - value, slopes)
            columns.append(_through_the_softmax(experiment, estimate, other - value, slopes, at))
        elif method == "atp-star":
            columns.append(_with_dropped_gradients(experiment, other - value, at))
        elif method == "gim":
            slopes = gradients(experiment, ends[1], at, interactions(experiment.masked.model.config.gated_mlp))[1]
            columns.append(_products(experiment, other - value, slopes))
        else:
            slopes = torch.zeros(())
            for k in range(1, steps + 1):
                slopes = slopes + gradients(experiment, ends[0] + k / steps * (ends[1] - ends[0]), at)[1]
            columns.append(_products(experiment, other - value, slopes / steps))
    return torch.cat(columns, -1)


def _with_dropped_gradients(
    experiment: EdgeExperiment, change: Float[Tensor, "sender batch seen d_model"], at: slice
) -> Float[Tensor, "metric edge batch"]:
    """The estimates of "atp-star"."""
    graph = experiment.graph
    embeddings = experiment.values[: 1 + graph.has_positions, at]
    dropped = [stage for stage in range(2 * graph.n_layers) if graph.reads(stage)]
    total = torch.zeros(())
    for stage in dropped:
        name = in_block(stage // 2, "mlp.hook_post" if stage % 2 else "attn.hook_z")
        slopes = gradients(experiment, embeddings, at, ((name, lambda x, hook: x.detach()),))[1]
        products = _products(experiment, change, slopes)
        fixed = _through_the_softmax(experiment, products, change, slopes, at)
        total = total + torch.where((graph.stages == stage)[:, None], 0.0, fixed).abs()
    return total / max(1, len(dropped) - 1)


@torch.no_grad()
def _through_the_softmax(
    experiment: EdgeExperiment,
    estimate: Float[Tensor, "metric edge batch"],
    change: Float[Tensor, "sender batch seen d_model"],
    slope: Float[Tensor, "metric receiver batch seen d_model"],
    at: slice,
) -> Float[Tensor, "metric edge batch"]:
    """``estimate`` with the edges into queries and keys taken through the attention exactly.

    Cost: the attention of one layer for each such edge.
    """
    graph, masked = experiment.graph, experiment.masked
    embeddings = masked.embeddings(experiment.tokens[at])
    _, _, inputs = masked.propagate([embeddings[None]], 0, record=True)
    groups = list(graph.groups.values()) if graph.groups is not None else [tuple(range(graph.n_positions))]
    found = estimate.clone()
    for stage in inputs:
        if stage.stage % 2 or stage.stage == 2 * graph.n_layers:
            continue
        names = [receivers for receivers, _ in graph.reads(stage.stage)]
        own = masked.at_all_positions(masked.attention(stage.stage // 2, stage.parts))[0]
        for letter in (0, 1):
            for head, receiver in enumerate(names[letter]):
                after = sum((slope[:, i] for i in _readers(graph, part_and_input(receiver)[0])), torch.zeros(()))
                for i, (group, to, sender) in enumerate(graph.edge_index.tolist()):
                    if graph.receivers[to] != receiver:
                        continue
                    moved = torch.zeros_like(change[sender])
                    moved[:, list(groups[group])] = change[sender][:, list(groups[group])]
                    moved = moved if stage.parts[letter].shape[-2] == graph.n_positions else moved[:, list(graph.read)]
                    parts = list(stage.parts)
                    only = (torch.arange(len(names[letter])) == head)[:, None, None, None].to(moved)
                    parts[letter] = parts[letter] + only * moved
                    now = masked.at_all_positions(masked.attention(stage.stage // 2, parts))[0]
                    found[:, i] = ((now - own)[head] * after).sum((-1, -2))
    return found


def _readers(graph: EdgeGraph, head: str) -> list[int]:
    """The receivers that read what a head writes."""
    first = graph.senders.index(head)
    return [i for i, name in enumerate(graph.receivers) if graph.senders_before(graph.stage_of[name]) > first]


def _products(
    experiment: EdgeExperiment,
    change: Float[Tensor, "sender batch seen d_model"],
    slope: Float[Tensor, "metric receiver batch seen d_model"],
) -> Float[Tensor, "metric edge batch"]:
    """``change_s . slope_r`` of every edge, summed over its positions and d_model."""
    graph = experiment.graph
    group, receiver, sender = graph.edge_index.to(change.device).T
    groups = list(graph.groups.values()) if graph.groups is not None else [tuple(range(graph.n_positions))]
    tables = [torch.einsum("sbpd,mrbpd->mrsb", change[:, :, list(g)], slope[:, :, :, list(g)]) for g in groups]
    return torch.stack(tables)[group, :, receiver, sender].transpose(0, 1)


@drawing(EdgeAttribution)
def attribution_view(result: EdgeAttribution, metric: str | None = None) -> Picture:
    """Estimated effects as a matrix, and next to it each edge's estimate over its exact effect (if computed)."""
    metric = result.metric(metric)
    grid = edge_grid(result.matrix(metric, split=True), metric)
    steps = "" if result.method in _ONE_STEP else f" in {result.steps} step{'s' * (result.steps > 1)}"
    of = f"{result.called}s of edges for the {spoken(metric)} by {result.method}{steps}"
    note = f"{result.direction.capitalize()}, {result.replacement}. Grey: no edge"
    if result.exact is None:
        return Picture([grid], title=f"{result.model}: {of}, not compared ({result.what})", note=note)
    estimate, exact = (
        each.sel(metric=metric).mean("example").values.astype(float) for each in (result.estimate, result.exact)
    )
    edges, size = result.estimate.edge.values, np.maximum(np.abs(exact), np.abs(estimate))
    labels = np.where(size >= np.sort(size)[-min(4, len(size))], edges, "")
    found = result.agreements[metric, "edges"]
    ranked = f"rank correlation {found.spearman:.2f} with the exact ones"
    if not np.isfinite(found.spearman):
        ranked = "no order to compare with the exact ones"
    series = [Series("", exact, estimate, labels=labels, said={"edge": edges})]
    if result.called != "score":
        ranked += f" and err by up to {found.worst_error:.3g}"
    points = Points(
        f"exact effect on the {spoken(metric)}", result.called, series=series, diagonal=result.called != "score"
    )
    title = f"{result.model}: {of} have {ranked} ({result.what})"
    note += f". Shuffled edges reach this rank correlation with {p_value(found.p)}"
    return Picture([grid, points], title=title, note=note)
