"""Activation patching over every layer and position, head or neuron: which activation carries the answer?

    sweep = interp.activation_patching(model, pairs, "resid_pre", metrics=("logit_diff", "exact_match"))
    sweep.figure()

``direction="denoise"`` runs the corrupted problem and puts one activation of the clean run in its place (what
*restores* the answer), ``"noise"`` runs the clean problem with one activation of the corrupted run (what *breaks* it).
The two differ where components are redundant or only together sufficient. ``recovered`` is

    (patched - unpatched) / (other run - unpatched)

of means over the pairs: 1 means that the patch does all that exchanging the whole problem would do, in either
direction. A logit difference can come back in full while the answer does not, if another digit is larger than both: so
``answers``, the share of pairs that get the clean answer, stands next to every share.

A patch of a stream carries the difference along every route that begins there. Which of the routes it takes is a
question for :func:`interp.path_patching`, which holds the others.

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

from interp.causal.patching.patch_sites import check_layers, get_site, position_groups
from interp.causal.patching.patching_result import PatchingSweep, runs_differ
from interp.causal.patching.values import (
    Question,
    SweepValues,
    check_values,
    checked_cache,
    differs,
    fast_values,
    plain_values,
)
from interp.core.metrics import FACTORIES, Metric, require_metrics, require_pairs_answered, resolve_metrics, spoken
from interp.core.probe import probe
from interp.core.results import Provenance
from interp.core.sites import model_name, stream_is_written
from models.errors import UserError, known_name
from models.fast.layers import KNOWN
from models.importers.stock import from_transformer_lens
from models.tasks.base import Task
from models.tasks.paired_problems import ProblemPairs
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.hooked import HookedModel
from models.transformer.unaltered import alterations

DIRECTIONS = ("denoise", "noise")
RIGHT = "exact_match"  # the metric that says whether the clean answer is given


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
        site: one of :data:`interp.causal.patching.patch_sites.SITES`.
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


@probe("Which activation carries the difference between two problems?", able=require_pairs_answered, least=1)
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

    Its sentence is about the first metric, and about pairs that the model answers rightly: it refuses a model that
    answers no more than half of the clean problems right (unless the first metric is your own or "kl", which compare
    the model with itself), and pairs whose two runs do not differ in that metric beyond the interval of the difference.

    Args:
        model: any model with TransformerLens hooks.
        site, by, layers: see :func:`patch_sweep`.
        metrics: names of :data:`interp.core.metrics.FACTORIES` or metrics; all come from one sweep.
        direction: "denoise", "noise" or "both".
        target: the target whose answer the metrics read, default the pairs' own.
        allow_equal: give unchanged values, and no shares, where the runs or their activations do not differ.
        seed: seed of the cells that ``check`` draws. The bootstrap has the pairs' seed.

    Raises:
        UserError: as :func:`patch_sweep`; an unknown metric or direction; a model that cannot do the task; or runs that
            do not differ.
    """
    known_name("direction", direction, (*DIRECTIONS, "both"))
    device = model.cfg.device
    clean, corrupted = pairs.clean_tokens.to(device), pairs.corrupted_tokens.to(device)
    bound = resolve_metrics(model, pairs, metrics, target)
    names = [metric.name for metric in bound]
    if RIGHT not in names:
        bound = [*bound, FACTORIES[RIGHT](pairs, target=target)]
    asked = pairs.target if target is None else target
    rung = "exhaustive" if pairs.exhaustive else "sampled"
    provenance = Provenance(len(pairs), pairs.seed, f"pairs that differ in {pairs.what}", rung)
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
        ends = [run.isel(metric=0).values for run in (bases[-1], others[-1])]
        if not allow_equal and not runs_differ(ends[0], ends[1], provenance.resampling_seed):
            raise UserError(
                f"The mean {spoken(names[0])} is {ends[0].mean():.3g} in one run and {ends[1].mean():.3g} in the "
                f"other, no difference beyond its 95% interval on {len(pairs):,} pairs ({pairs.what}): there is "
                "nothing to recover. allow_equal=True returns the values."
            )
    axis = pd.Index(directions, name="direction")
    values, unpatched, other = (xr.concat(group, axis) for group in (parts, bases, others))
    answers, before = (x.sel(metric=RIGHT, drop=True).astype(bool) for x in (values, unpatched))
    values, unpatched, other = (x.sel(metric=names) for x in (values, unpatched, other))
    kind = get_site(site, model.cfg)
    swept = values, unpatched, other, answers, before
    return PatchingSweep(model_name(model), kind.name, pairs.what, *swept, fast, provenance)


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
    plain = model if stream_is_written(model, base, asked.hooks) else copy
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
        return None if alterations(model) or {*model.config.later_switches} - KNOWN else model
    if task is None or alterations(model):
        return None
    try:
        return from_transformer_lens(model, task)
    except UserError:
        return None
