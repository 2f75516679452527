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
from interp.core.table_result import Measure
from interp.core.views import Picture
from models.calls import Seed
from models.errors import UserError, known_name
from models.number_format import number
from models.run import Frame, Run
from models.run.paths import patched_senders, receive
from models.run.run import AT_ONCE
from models.tasks import ProblemPairs
from models.transformer import HookedModel

PATHS = ("direct", "all")
ROUNDING_UNITS = 16  # of the model's precision: how far two orders of summation may be apart, on the metric's scale
_ROUNDING = 1e-6  # up to this size, relative to the metric (or 1), an effect is rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class PathPatching(EdgeEffects):
    """``values`` over (metric, edge, example): the metric with that path patched.

    ``edge`` has coordinates ``sender``, ``receiver`` and ``group`` ("" without groups). ``senders`` over (metric,
    sender, example): the metric with all edges of a sender patched.

    The ``effect`` of a row is the mean of ``values - base``, with its bootstrap interval (95%; none where it is 0 in
    every pair, see :func:`interp.causal.edges.edge_effects.effect_table`). An edge that ``moves`` the metric has an
    interval off zero (of a single pair, which has none: an effect).
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
        rows = self.table[self.table["metric"] == self.metric(metric)].set_index("edge")["effect"]
        return rows.sort_values(key=np.abs, ascending=False, kind="stable")

    def _finding(self, subject: str) -> str:
        metric = self.metric(None)
        rows = self.table[self.table["metric"] == metric]
        base, other = (number(float(x.sel(metric=metric).mean())) for x in (self.base, self.other))
        runs = f"it is {base} unpatched and {other} with every edge patched"
        moving, paths = rows[rows["moves"]], f"of {len(rows)} {self.paths} paths"
        if moving.empty:
            return f"{subject}: none {paths} moves the {spoken(metric)}; {runs}."
        edge = moving.loc[moving["effect"].abs().idxmax(), "edge"]
        verb, by = "moves" if len(moving) == 1 else "move", self.cell("effect", metric=metric, edge=edge)
        off = " (95% interval off zero)" if len(self.base.example) > 1 else ""
        return f"{subject}: {len(moving)} {paths} {verb} the {spoken(metric)}{off}, most of all {edge} by {by}; {runs}."


def _tabulate(values: xr.DataArray, base: xr.DataArray, other: xr.DataArray, seed: int) -> pd.DataFrame:
    """The table of :class:`PathPatching`."""
    bounds = [difference_bounds(*pair) for pair in zip(values.values, base.values, strict=True)]
    table = effect_table(values - base, "effect", seed, bounds)
    size = {
        name: max(1.0, *(float(abs(run.sel(metric=name)).max()) for run in (base, other)))
        for name in base.metric.values
    }
    effect = table["effect"].abs() > _ROUNDING * table["metric"].map(size)
    off = (table["effect_low"] > 0) | (table["effect_high"] < 0)
    return table.assign(moves=effect & (off | (values.sizes["example"] == 1)))


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
    fields, values = asked(experiment), labelled(experiment, found, "edge")
    table = _tabulate(values, fields["base"], fields["other"], fields["provenance"].resampling_seed)
    result = PathPatching(
        **fields, table=table, measures=(Measure("effect"),), paths=paths, values=values,
        senders=labelled(experiment, compute_senders(experiment), "sender"),
    )  # fmt: skip
    return result.saying(result._finding(f"{experiment.name}, {pairs.what}, {experiment.direction}"))


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
    one = "one edge alone is patched" if result.paths == "direct" else "the sender is patched for one receiver only"
    note = f"Path patching, {result.direction}, {result.replacement}: change when {one}. Grey: no edge"
    title = "" if metric == result.metric(None) else f"Effects of {result.paths} paths on the {spoken(metric)}"
    return Picture([edge_grid(result.matrix(metric, split=True), metric)], title=title, note=note)
