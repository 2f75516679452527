"""Exact path patching: the effect of one edge, or of a sender on a receiver over all paths.

    direct    only the edge from sender to receiver carries the other value; everything after the receiver is recomputed
    all       the receiver reads what it would read if the sender were patched wherever it is read; other receivers
              are affected only through that receiver

"direct" is the path patching of Wang et al. (2022, IOI) for single edges, as in ``get_act_patch_direct_path`` of
TransformerLens 4.3 for heads. MLPs are nodes of their own here, where Wang et al. recompute them along a path. "all"
into the logits patches the sender everywhere: it is the activation patch of that head or MLP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
import xarray as xr
from torch import Tensor

from interp.causal.edges.edge_effects import EdgeEffects, asked, edge_grid, edge_matrix, effect_table, labelled
from interp.causal.edges.edge_experiment import MASKS_AT_ONCE, EdgeExperiment
from interp.causal.edges.masked_model import Addition, Inputs
from interp.causal.metrics import Metric, spoken
from interp.core.drawings import drawing
from interp.core.probe import probe
from interp.core.stats import difference_bounds
from interp.core.views import Picture
from models.calls import Index
from models.errors import UserError, known_name
from models.tasks import ProblemPairs
from models.transformer import HookedModel

PATHS = ("direct", "all")
_SAID = 3
_ROUNDING = 1e-6  # up to this size, relative to the metric (or 1), an effect is rounding


@dataclass(frozen=True, eq=False)
class PathPatching(EdgeEffects):
    """``values`` over (metric, edge, example): the metric with that path patched.

    ``edge`` has coordinates ``sender``, ``receiver`` and ``group`` ("" without groups). ``senders`` over (metric,
    sender, example): the metric with all edges of a sender patched.
    """

    paths: str
    values: xr.DataArray
    senders: xr.DataArray

    @cached_property
    def effects(self) -> xr.DataArray:
        """``values - base`` (metric, edge, example)."""
        return self.values - self.base

    def matrix(self, metric: str | None = None, group: str | None = None, split: bool = False) -> xr.DataArray:
        """Mean effects over (sender, receiver); NaN where there is no edge. They are of one ``group``, summed over
        groups, or with ``split`` separate by receiver and group ("L0H0.v@own operands")."""
        return edge_matrix(self.effects.sel(metric=self.metric(metric)).mean("example"), group, split)

    def strongest(self, metric: str | None = None) -> pd.Series:
        """Mean effect of each edge, the largest in absolute value first."""
        mean = self.effects.sel(metric=self.metric(metric)).mean("example").values
        order = np.argsort(-np.abs(mean), kind="stable")
        return pd.Series(mean[order], index=self.values.edge.values[order])

    def moving(self, metric: str | None = None) -> pd.DataFrame:
        """The rows of the table, strongest first, of the edges whose effect has an interval off zero (of a single pair,
        which has none: that have an effect)."""
        table = self.to_dataframe()
        table = table[table["metric"] == self.metric(metric)]
        size = max(1.0, *(float(abs(run.sel(metric=self.metric(metric))).max()) for run in (self.base, self.other)))
        off = (table["low"] > 0) | (table["high"] < 0)
        if self.values.sizes["example"] == 1:
            off = table["effect"].abs() > _ROUNDING * size
        table = table[off & (table["effect"].abs() > _ROUNDING * size)]
        return table.sort_values("effect", key=np.abs, ascending=False, kind="stable", ignore_index=True)

    def sentence(self) -> str:
        metric = self.metric(None)
        moving, paths = self.moving(metric), self.values.sizes["edge"]
        parts = [
            f"{row.edge} ({row.effect:+.3g}" + (f" [{row.low:+.3g}, {row.high:+.3g}])" if np.isfinite(row.low) else ")")
            for row in moving[:_SAID].itertuples()
        ]
        base, other = (float(x.sel(metric=metric).mean()) for x in (self.base, self.other))
        effect = f"an effect on the {spoken(metric)}"
        if self.values.sizes["example"] > 1:
            effect += " whose own 95% interval is off zero"
        found = f"none of {paths} {self.paths} paths has {effect}"
        if parts:
            have = "has" if len(moving) == 1 else "have"
            found = f"{len(moving)} of {paths} {self.paths} paths {have} {effect}, most of all {', '.join(parts)}"
        return (
            f"{self.model}, {self.what}, {self.direction}: {found}. It is {base:.3g} unpatched and {other:.3g} with "
            "every edge patched."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per metric and edge: mean effect, its standard deviation over pairs and bootstrap interval (95%; none
        where the effect is 0 in every pair, see :func:`interp.causal.edges.edge_effects.effect_table`)."""
        values, base = (x.transpose("metric", ...).values for x in (self.values, self.base))
        bounds = [difference_bounds(*pair) for pair in zip(values, base, strict=True)]
        return effect_table(self.effects, self.provenance.resampling_seed, bounds)


@probe("Along which edge does the difference go?", least=1)
def path_patching(
    model: HookedModel,
    pairs: ProblemPairs,
    *,
    metrics: str | Metric | Sequence[str | Metric] = "logit_diff",
    paths: str = "direct",
    direction: str | None = None,
    replacement: str = "corrupted",
    groups: Mapping[str, Sequence[int]] | None = None,
    target: Index | None = None,
    seed: int = 0,
) -> PathPatching:
    """Patch every edge of the model by itself, on pairs of problems.

    Args:
        paths: "direct" or "all" (see the module).
        direction, replacement, groups, target: see :class:`interp.causal.edges.EdgeExperiment`.
        seed: seed of resampling and of the bootstrap.

    Cost: at most one forward pass per edge, less for late edges (532 edges of a four-layer model, 64 pairs: 6 s).

    Raises:
        UserError: unknown names, groups with "all" paths, or pairs that do not differ.
    """
    known_name("kind of paths", paths, PATHS)
    if paths == "all" and groups is not None:
        raise UserError('Groups of positions split direct edges; with paths="all" there are none to split.')
    experiment = EdgeExperiment(model, pairs, metrics, replacement, direction, groups, target, seed)
    found = compute_direct(experiment) if paths == "direct" else compute_all(experiment)
    return PathPatching(
        **asked(experiment),
        paths=paths,
        values=labelled(experiment, found, "edge"),
        senders=labelled(experiment, compute_senders(experiment), "sender"),
    )


def compute_direct(experiment: EdgeExperiment) -> Tensor:
    """Metrics [metric, edge, n] with one edge cut at a time."""
    n = len(experiment.graph)
    return experiment.without_each(torch.arange(n), n)


def compute_senders(experiment: EdgeExperiment) -> Tensor:
    """Metrics [metric, sender, n] with all edges that leave a sender cut."""
    return experiment.without_each(experiment.graph.edge_index[:, 2], len(experiment.graph.senders))


@torch.no_grad()
def compute_all(experiment: EdgeExperiment) -> Tensor:
    """Metrics [metric, edge, n] with each receiver reading what it reads when a sender is patched everywhere."""
    graph, masked = experiment.graph, experiment.masked
    out = torch.empty(len(experiment.metrics), len(graph), len(experiment), dtype=masked.model.dtype)
    for at in masked.batches(len(experiment)):
        tokens, replacement = experiment.tokens[at], experiment.replacement[:, at]
        embeddings = masked.embeddings(tokens)[None]
        base = _padded(experiment, masked.propagate([embeddings], 0, record=True)[2])
        for sender in range(len(graph.senders)):
            edges = graph.edge_index[:, 2] == sender
            table = masked.table(~edges[None])
            inputs = masked.propagate([embeddings], 0, table, replacement, record=True)[2]
            changed = _padded(experiment, inputs) - base
            for places in edges.nonzero()[:, 0].split(max(1, MASKS_AT_ONCE // len(graph))):
                receivers = graph.edge_index[places, 1]
                change = Addition(receivers, changed[receivers])
                keep_all = torch.ones(len(places), len(graph), dtype=torch.bool)
                for which, _, logits in masked.chunks(tokens, keep_all, replacement, change):
                    for values, found in zip(out, experiment.judge(logits, at), strict=True):
                        values[places[which], at] = found.to(out)
    return out


def _padded(experiment: EdgeExperiment, inputs: list[Inputs]) -> Tensor:
    """What was read, as one tensor [receiver, batch, pos, d_model]; zero at positions that are not read."""
    return torch.cat([experiment.masked.at_all_positions(part[0]) for stage in inputs for part in stage.parts])


@drawing(PathPatching)
def path_view(result: PathPatching, metric: str | None = None) -> Picture:
    """Mean effect of every path on one metric."""
    metric = result.metric(metric)
    one = "one edge alone is patched" if result.paths == "direct" else "one receiver alone hears of a patched sender"
    note = f"Path patching, {result.direction}, {result.replacement}: change when {one}. Grey: no edge"
    title = (
        "" if metric == result.metric(None) else f"{result.model}: effects of {result.paths} paths on {spoken(metric)}"
    )
    return Picture([edge_grid(result.matrix(metric, split=True), metric)], title=title, note=note)
