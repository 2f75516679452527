"""Activation patching over every layer and position, head or neuron: which activation carries the answer?

    sweep = interp.activation_patching(model, pairs, "resid_pre", metrics=("logit_diff", "exact_match"))
    sweep.figure()

``direction="denoise"`` runs the corrupted problem and puts one activation of the clean run in its place (what
*restores* the answer), ``"noise"`` runs the clean problem with one activation of the corrupted run (what *breaks* it).
The two differ where components are redundant or only together sufficient. ``recovered`` is

    (patched - unpatched) / (other run - unpatched)

of means over the pairs: 1 means that the patch does all that exchanging the whole problem would do, in either
direction.

Patches are computed by :mod:`interp.causal.patching.engine` if the model is this project's or can be copied into it,
else through the model's own hooks. ``check=True`` runs some cells of a fast sweep both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Int
from torch import Tensor

from interp.causal.patching.sites import check_layers, get_site, position_groups
from interp.causal.patching.values import (
    Question,
    SweepValues,
    check_values,
    checked_cache,
    differs,
    fast_values,
    plain_values,
)
from interp.core.metrics import Metric, require_metrics, resolve_metrics, spoken
from interp.core.model import HookedModel
from interp.core.probe import probe
from interp.core.results import Provenance, Result
from interp.core.sites import model_name, require_evaluation_mode, stream_is_written
from interp.core.stats import bootstrap_interval
from interp.core.thresholds import LEAST_SAID
from models.errors import UserError, known_name
from models.importers.stock import from_transformer_lens
from models.tasks.base import Task
from models.tasks.pairs import ProblemPairs
from models.transformer import ArithmeticTransformer
from models.unaltered import alterations

DIRECTIONS = ("denoise", "noise")
_DOES = {"denoise": "restores", "noise": "breaks"}
_WORDS = {"pos": "position", "dest": "destination", "src": "source"}
_NO_SPAN = 1e-6  # if the two runs' means differ by less, relative to 1 or to them, there is nothing to recover


@dataclass(frozen=True, eq=False)
class PatchingSweep(Result):
    """``values`` (direction, metric, layer, head or neuron, position..., pair): the metric of every patched run.

    ``unpatched`` and ``other`` (direction, metric, pair): the metric of the run that is patched, and of the run that
    activations are taken from.
    """

    model: str
    site: str
    what: str  # what the pairs differ in
    values: xr.DataArray
    unpatched: xr.DataArray
    other: xr.DataArray
    fast: bool
    provenance: Provenance

    @cached_property
    def table(self) -> xr.Dataset:
        """``mean``, ``spread`` (standard deviation over pairs), ``low`` and ``high`` (95% bootstrap of the mean),
        ``recovered`` (see the module; NaN where both runs have the same mean up to rounding)."""
        values = self.values
        low, high = bootstrap_interval(values.values, self.provenance.seed or 0)
        mean, base, other = (x.mean("pair") for x in (values, self.unpatched, self.other))
        span = other - base
        size = np.maximum(np.maximum(abs(other), abs(base)), 1)
        return xr.Dataset(
            {
                "mean": mean,
                "spread": values.std("pair", ddof=1 if values.sizes["pair"] > 1 else 0),
                "low": mean.copy(data=low),
                "high": mean.copy(data=high),
                "recovered": (mean - base) / span.where(abs(span) > _NO_SPAN * size),
            }
        )

    def strongest(self, direction: str | None = None, metric: str | None = None) -> tuple[str, float]:
        """The cell that recovers most, in words, and its share; NaN where there is nothing to recover.

        Raises:
            UserError: the sweep does not have this direction or metric.
        """
        directions, metrics = self.values.direction.values.tolist(), self.values.metric.values.tolist()
        direction, metric = direction or directions[0], metric or metrics[0]
        known_name("direction of this sweep", direction, directions)
        known_name("metric of this sweep", metric, metrics)
        chosen = self.table.recovered.sel(direction=direction, metric=metric)
        index = np.unravel_index(int(np.nanargmax(np.nan_to_num(chosen.values, nan=-np.inf))), chosen.shape)
        return self._where(chosen[index]), float(chosen.values[index])

    def _where(self, cell: xr.DataArray) -> str:
        dims = [str(dim) for dim in self.values.dims if dim in cell.coords and dim not in ("direction", "metric")]
        return ", ".join(f"{_WORDS.get(dim, dim)} {cell[dim].item()}" for dim in dims)

    def sentence(self) -> str:
        metric = self.values.metric.values.tolist()[0]
        parts = []
        for direction in self.values.direction.values.tolist():
            where, share = self.strongest(direction, metric)
            base, other = (
                float(x.sel(direction=direction, metric=metric).mean()) for x in (self.unpatched, self.other)
            )
            if np.isnan(share):
                parts.append(
                    f"the {spoken(metric)} has one mean in both runs, {base:.3g}, so that no share can be recovered"
                )
                continue
            ends = f"the {spoken(metric)} ({base:.3g} unpatched, {other:.3g} in the other run)"
            if share < LEAST_SAID:
                parts.append(f"no patch of {self.site} {_DOES[direction]} {LEAST_SAID:.0%} of {ends}")
            else:
                parts.append(
                    f"the strongest patch of {self.site}, at {where}, {_DOES[direction]} {share:.1%} of {ends}"
                )
        return f"{self.model}, pairs that differ in {self.what}: {'; '.join(parts)}."

    def found(self, metric: str | None = None) -> str:
        """What the strongest patches do, in a few words."""
        parts: dict[str, list[str]] = {}
        for direction in self.values.direction.values.tolist():
            where, share = self.strongest(direction, metric)
            nothing = not share >= LEAST_SAID  # or NaN
            does = f"{_DOES[direction]} {'nothing' if nothing else f'{share:.0%}'}"
            parts.setdefault("" if nothing else f" at {where}", []).append(does)
        return " and ".join(" and ".join(does) + where for where, does in parts.items())


@dataclass(frozen=True, eq=False)
class RawSweep:
    """What :func:`patch_sweep` returns: ``found.patched`` [metric, layer, part, group, (source,) n], as computed."""

    found: SweepValues
    asked: Question
    fast: bool

    @cached_property
    def labelled(self) -> xr.DataArray:
        """Values over (metric, layer, head or neuron, pos or role or dest and src, pair), without trivial axes."""
        site, groups = self.asked.site, self.asked.groups
        axis = {"position": "pos", "role": "role", "all": "all"}[groups.by]
        one = "dest" if site.pattern and groups.by != "all" else axis
        rows = ["dest", "src"] if site.by_source else [one]
        part = site.part or "part"
        values = xr.DataArray(
            self.found.patched,
            dims=("metric", "layer", part, *rows, "pair"),
            coords={"metric": [m.name for m in self.asked.metrics], "layer": list(self.asked.layers)}
            | {part: np.arange(self.found.patched.shape[2])}
            | {row: list(groups.labels) for row in rows},
        )
        dull = {name: 0 for name in ("part", "all") if name in values.dims}
        return values.isel(dull, drop=True)


@probe("Which activation carries it, for tokens and metrics of one's own?")
def patch_sweep(
    model: HookedModel,
    base_tokens: Int[Tensor, "n pos"],
    source: Any,
    metrics: Metric | Sequence[Metric],
    *,
    site: str = "resid_pre",
    by: str = "position",
    layers: Sequence[int] | int | None = None,
    task: Task | None = None,
    target: int | None = None,
    check: bool = False,
    seed: int = 0,
    allow_equal: bool = False,
) -> RawSweep:
    """A patching sweep over tokens rather than problems: the metric of every variant and example.

    Args:
        model: any model with TransformerLens hooks.
        base_tokens: the tokens to run (TransformerLens: ``corrupted_tokens``).
        source: where patches come from: tokens of the same shape, or a cache by hook name.
        metrics: only the positions that some metric reads are computed.
        site: one of :data:`interp.causal.patching.sites.SITES`.
        by: a patch covers one "position", all positions of a "role" relative to ``target``, or "all".
        task: what the tokens mean, default ``model.task``. A stock model needs it for the fast path, roles and labels.
        target: the target to which roles are relative.
        check: also run some cells of a fast sweep, drawn with ``seed``, through the model's own hooks, and raise
            PatchMismatch if they differ.
        allow_equal: if base and source have the same activations, return unchanged values instead of an error.

    Returns:
        Values of every variant and example, in the metrics' own units; ``.labelled`` names the axes. ``.found.base``
        has the unpatched run's values; without a fast path it is computed when it is first needed.

    Cost: about ``layers / 2`` runs per position for streams of all but the last layer, two runs in all for the last.

    Raises:
        UserError: no such site, layer or grouping; training mode; shapes that differ; nothing to patch; a metric that
            reads missing positions or is not a number.
    """
    if base_tokens.ndim != 2:
        raise UserError(f"A sweep runs tokens [n, pos], not of shape {list(base_tokens.shape)}.")
    found = require_metrics(metrics, base_tokens.shape[1])
    return _sweep(
        model, base_tokens, source, found, site, by, layers, task, target, check, seed, allow_equal, unpatched=False
    )


@probe("Which activation carries the difference between two problems?")
def activation_patching(
    model: HookedModel,
    pairs: ProblemPairs,
    *,
    site: str = "resid_pre",
    by: str = "position",
    metrics: str | Metric | Sequence[str | Metric] = "logit_diff",
    direction: str = "denoise",
    layers: Sequence[int] | int | None = None,
    target: int | None = None,
    check: bool = False,
    seed: int = 0,
    allow_equal: bool = False,
) -> PatchingSweep:
    """Patch one kind of activation between the runs of each pair; see the module and :func:`patch_sweep`.

    Args:
        model: any model with TransformerLens hooks.
        site, by, layers, allow_equal: see :func:`patch_sweep`.
        metrics: names of :data:`interp.core.metrics.FACTORIES` or metrics; all come from one sweep.
        direction: "denoise", "noise" or "both".
        target: the target whose answer the metrics read, default the pairs' own.
        seed: seed of the cells that ``check`` draws. The bootstrap has the pairs' seed.

    Raises:
        UserError: as :func:`patch_sweep`, or an unknown metric or direction.
    """
    known_name("direction", direction, (*DIRECTIONS, "both"))
    require_evaluation_mode(model)
    device = model.cfg.device
    clean, corrupted = pairs.clean_tokens.to(device), pairs.corrupted_tokens.to(device)
    bound = resolve_metrics(model, pairs, metrics, target)
    asked = pairs.target if target is None else target
    parts, bases, others, fast = [], [], [], True
    directions = list(DIRECTIONS) if direction == "both" else [direction]
    for one in directions:
        base, source = (corrupted, clean) if one == "denoise" else (clean, corrupted)
        raw = _sweep(
            model, base, source, bound, site, by, layers, pairs.task, asked, check, seed, allow_equal, pairs.what
        )
        parts.append(raw.labelled)
        coords, fast = {"metric": raw.labelled.metric.values}, raw.fast
        bases.append(xr.DataArray(raw.found.base, dims=("metric", "pair"), coords=coords))
        assert raw.found.source is not None  # the source is a run
        others.append(xr.DataArray(raw.found.source, dims=("metric", "pair"), coords=coords))
    axis = pd.Index(directions, name="direction")
    values, unpatched, other = (xr.concat(group, axis) for group in (parts, bases, others))
    rung = "exhaustive" if pairs.exhaustive else "sampled"
    provenance = Provenance(len(pairs), pairs.seed, f"pairs that differ in {pairs.what}", rung)
    kind = get_site(site, model.cfg)
    return PatchingSweep(model_name(model), kind.name, pairs.what, values, unpatched, other, fast, provenance)


def _sweep(
    model: HookedModel,
    base: Tensor,
    source: Any,
    metrics: list[Metric],
    site: str,
    by: str,
    layers: Sequence[int] | int | None,
    task: Task | None,
    target: int | None,
    check: bool,
    seed: int,
    allow_equal: bool,
    what: str = "what was given",
    unpatched: bool = True,
) -> RawSweep:
    require_evaluation_mode(model)
    if isinstance(source, Tensor) and source.shape != base.shape:
        raise UserError(
            f"Both runs need tokens of one shape [n, pos], not {list(base.shape)} and {list(source.shape)}."
        )
    if not base.numel():
        raise UserError(f"There is nothing to run: the tokens have shape {list(base.shape)}.")
    kind, chosen = get_site(site, model.cfg), check_layers(layers, model)
    base = base.to(model.cfg.device)
    if isinstance(source, Tensor):
        source = source.to(base.device)
    else:
        source = checked_cache(source, [kind.hook_name(layer) for layer in chosen], kind, base)
    task = getattr(model, "task", None) if task is None else task
    asked = Question(
        base, source, kind, tuple(chosen), position_groups(base.shape[1], by, task, target), tuple(metrics), unpatched
    )
    copy = _copy(model, task)
    plain = model if stream_is_written(model, base[:2], asked.hooks) else copy
    if plain is None:
        raise UserError(
            f"What is written to {asked.hooks[0]} does not reach this model's stream, so that nothing would be patched"
            + ("; give task=, and a copy where it does is patched." if task is None else ".")
        )
    found = plain_values(model, asked) if copy is None else fast_values(copy, asked)
    known = copy is not None or unpatched or np.isnan(found.patched).any()
    for metric, values in zip(metrics, found.base, strict=True) if known else ():
        if n_nan := int(np.isnan(values).sum()):
            raise UserError(
                f"The metric {metric.name!r} is not a number in {n_nan:,} of {len(values):,} unpatched runs."
            )
    if not allow_equal and found.unchanged and not differs(plain, asked):
        raise UserError(
            f"{kind.name} is the same in both runs of all {len(base):,} pairs ({what}), so that patching it changes "
            "nothing; allow_equal=True returns the unchanged values."
        )
    if check and copy is not None:
        check_values(plain, asked, found, seed)
    return RawSweep(found, asked, copy is not None)


def _copy(model: HookedModel, task: Task | None) -> ArithmeticTransformer | None:
    """The model for the fast path; None if it is altered (by hooks, for example) or cannot be expressed there."""
    if isinstance(model, ArithmeticTransformer):
        return None if alterations(model) or model.config.later_switches else model
    if task is None or alterations(model):
        return None
    try:
        return from_transformer_lens(model, task)
    except UserError:
        return None
