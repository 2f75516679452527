"""Exact path patching: the effect of one edge, or of a sender on a receiver over all paths.

    direct    only the edge from sender to receiver carries the other value; everything after the receiver is recomputed
    all       the receiver reads what it would read if the sender were patched wherever it is read; other receivers
              are affected only through that receiver

"direct" is the path patching of Wang et al. (2022, IOI) for single edges, as in ``get_act_patch_direct_path`` of
TransformerLens 4.3 for heads. MLPs are nodes of their own here, where Wang et al. recompute them along a path. "all"
into the logits patches the sender everywhere: it is the activation patch of that head or MLP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from interp.causal.edges.edge_effects import EdgeEffects, asked, edge_grid, edge_matrix, effect_table, labelled
from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.metrics import Metric, spoken
from interp.core.batches import slices
from interp.core.drawings import drawing
from interp.core.probe import probe
from interp.core.stats import difference_bounds
from interp.core.views import Picture
from models.calls import Seed
from models.errors import UserError, known_name
from models.run import Frame, Run
from models.run.paths import patched_senders, receive
from models.run.run import AT_ONCE
from models.tasks import ProblemPairs
from models.transformer import HookedModel

PATHS = ("direct", "all")
_SAID = 3
ROUNDING_UNITS = 16  # of the model's precision: how far two orders of summation may be apart, on the metric's scale
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

    def _moving(self, metric: str | None = None) -> pd.DataFrame:
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
        moving, paths = self._moving(metric), self.values.sizes["edge"]
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
    seed: Seed = 0,
) -> PathPatching:
    """Patch every edge of the model by itself, on pairs of problems.

    Args:
        paths: "direct" or "all" (see the module).
        direction, replacement, groups: see :class:`interp.causal.edges.EdgeExperiment`.
        seed: seed of resampling and of the bootstrap.

    Cost: at most one forward pass per edge, less for late edges (532 edges of a four-layer model, 64 pairs: 6 s).

    Raises:
        UserError: unknown names, groups with "all" paths, or pairs that do not differ.
    """
    known_name("kind of paths", paths, PATHS)
    if paths == "all" and groups is not None:
        raise UserError('Groups of positions split direct edges; with paths="all" there are none to split.')
    experiment = EdgeExperiment(model, pairs, metrics, replacement, direction, groups, seed)
    found = compute_direct(experiment) if paths == "direct" else compute_all(experiment)
    return PathPatching(
        **asked(experiment),
        paths=paths,
        values=labelled(experiment, found, "edge"),
        senders=labelled(experiment, compute_senders(experiment), "sender"),
    )


#: From a run and how much more each of its senders writes to (stage, how much more that stage reads), stage by stage.
Changes = Callable[[Run, Float[Tensor, "sender batch seen d_model"]], Iterator[tuple[int, Tensor]]]


def compute_direct(experiment: EdgeExperiment) -> Float[Tensor, "metric edge n"]:
    """Metrics with one edge cut at a time. Cost: each receiver's part once for each edge, and what follows it."""
    experiment.forwards += len(experiment.graph)

    def changes(run: Run, change: Tensor) -> Iterator[tuple[int, Tensor]]:
        graph = experiment.graph
        for stage in range(graph.n_stages):
            written, layer = change[: graph.senders_before(stage)], min(stage // 2, graph.n_layers - 1)
            if reads := graph.reads(stage):  # at all positions in attention, whose keys are there
                yield stage, written if len(reads) > 1 else run.frame.at_rows(written, layer)

    return _of_edges(experiment, changes)


def compute_all(experiment: EdgeExperiment) -> Float[Tensor, "metric edge n"]:
    """Metrics with each receiver reading what it reads when a sender is patched everywhere. Cost: as
    :func:`compute_direct`, and a run for each sender."""
    return _of_edges(experiment, patched_senders)


def compute_senders(experiment: EdgeExperiment) -> Float[Tensor, "metric sender n"]:
    """Metrics with all edges that leave a sender cut: what the logits read when it is patched everywhere."""
    n = len(experiment.graph.senders)
    experiment.forwards += n
    out, base = experiment.room(n), experiment.room(1)
    for rows, run, change, alive in _runs(experiment):
        *_, (_, final) = patched_senders(run, change)
        logits = run.f.logits(run.get("resid_post", run.frame.n_layers - 1) + final)
        out[:, :, rows] = experiment.judged(run.logits()[None], rows)
        out[:, alive, rows] = experiment.judged(logits[alive][..., run.frame.read_rows, :], rows)
        base[:, :, rows] = experiment.judged(run.logits()[None], rows)
    return _beside_whole(experiment, out, base)


def _beside_whole(
    experiment: EdgeExperiment, values: Float[Tensor, "metric path n"], base: Float[Tensor, "metric 1 n"]
) -> Float[Tensor, "metric path n"]:
    """The metrics of patched runs beside :attr:`EdgeExperiment.full`, whose sums are in another order than those of
    ``base``. What differs from ``base`` by rounding alone is no effect: it is set to 0."""
    effect, dtype = values - base, experiment.masked.model.dtype
    units = ROUNDING_UNITS if dtype in (torch.float32, torch.float64) else 0  # half precision rounds off too much
    small = effect.abs() <= units * torch.finfo(dtype).eps * base.abs().amax(-1, keepdim=True).clamp(min=1)
    return experiment.full[:, None] + effect.masked_fill(small, 0.0)


@torch.no_grad()
def _of_edges(experiment: EdgeExperiment, changes: Changes) -> Float[Tensor, "metric edge n"]:
    """Metrics of runs in which one receiver reads the changes of one sender (at the positions of one group)."""
    graph, out, base = experiment.graph, experiment.room(len(experiment.graph)), experiment.room(1)
    groups = torch.zeros(len(graph.groups or {None: ()}), graph.n_positions)
    for row, places in zip(groups, (graph.groups or {None: range(graph.n_positions)}).values(), strict=True):
        row[list(places)] = 1
    index = torch.full((len(groups), len(graph.receivers), len(graph.senders)), -1)
    index[tuple(graph.edge_index.T)] = torch.arange(len(graph))
    for rows, run, change, alive in _runs(experiment):
        base[:, :, rows] = experiment.judged(run.logits()[None], rows)
        out[:, :, rows] = base[:, :, rows]
        last_rows = run.frame.rows(run.frame.n_layers - 1)
        for stage, reads in changes(run, change):
            known = alive[: len(reads)].nonzero()[:, 0]
            places = groups.to(reads)[:, None, None, slice(None) if reads.shape[-2] == graph.n_positions else last_rows]
            first = [graph.receivers.index(names[0]) for names, _ in graph.reads(stage)]

            def take(
                letter: str,
                head: int,
                some: slice,
                logits: Tensor,
                rows: slice = rows,
                first: list[int] = first,
                known: Tensor = known,
            ) -> None:
                number = torch.arange(some.start, some.stop)  # of group and sender
                receiver = first["qkv".find(letter) if letter else 0] + head
                edges = index[number // len(known), receiver, known[number % len(known)]]
                there = edges >= 0  # in the last layer a group may have no position that is read
                out[:, edges[there], rows] = experiment.judged(logits[there], rows)

            receive(run, stage, (reads[known] * places[..., None]).flatten(0, 1), take)
    return _beside_whole(experiment, out, base)


def _runs(experiment: EdgeExperiment) -> Iterator[tuple[slice, Run, Tensor, Tensor]]:
    """(examples, their run, how much more each sender would write [sender, batch, seen, d_model], and whether it is
    anything): an embedding that is the same in both runs has no effect, and not a rounding error."""
    masked = experiment.masked
    frame = Frame(masked.model, masked.graph.read, weights=masked.weights)
    width = frame.n_pos * max(frame.width, frame.cfg.n_heads * frame.n_pos)
    for at in masked.batches(len(experiment)):
        change = experiment.replacement[:, at] - experiment.values[:, at]
        for some in slices(at.stop - at.start, max(1, AT_ONCE // width)):
            part = change[:, some]
            rows = slice(at.start + some.start, at.start + some.stop)
            yield rows, Run(frame, masked.model.as_tokens(experiment.tokens[rows])), part, part.flatten(1).any(1).cpu()


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
