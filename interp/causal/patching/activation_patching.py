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

``by="component"`` is a table of nodes: both embeddings, every head, and what each layer's attention and MLP write, each
patched by itself at all positions. Where positions do not differ between the runs, exchanging the token embeddings is
exchanging the problem: their share is 1 by construction, and a sentence names the strongest of the others.

Patches are variants of one run (:mod:`models.run`) if the model is this project's or can be copied into it,
else through the model's own hooks. ``check=True`` runs some cells of a fast sweep both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from interp.causal.metrics import FACTORIES, Metric, require_pairs_answered, resolve_metrics, spoken
from interp.causal.patching.patch_sites import component_name, component_sites
from interp.causal.patching.patching_result import MEASURES, PatchingSweep, runs_differ, tabulate
from interp.causal.patching.patching_values import (
    PatchSpec,
    SweepValues,
    check_values,
    differs,
    fast_values,
    plain_values,
)
from interp.core.model_checks import stream_is_written
from interp.core.probe import probe
from interp.core.results import Provenance
from models import ArithmeticTransformer
from models.calls import Seed
from models.errors import UserError, known_name
from models.importers import from_transformer_lens
from models.run import has_formulas
from models.tasks import ProblemPairs, Task
from models.transformer import HookedModel, alterations, model_name

DIRECTIONS = ("denoise", "noise")
RIGHT = "exact_match"  # the metric that says whether the clean answer is given


@dataclass(frozen=True, eq=False)
class SweptSite:
    """The values of one site in one direction: ``axes`` are the labels of the axes between the metrics and the pairs by
    name (layer, head or neuron, pos or role or dest and src), ``fast`` says whether the values are variants of one run
    (:mod:`models.run`)."""

    found: SweepValues
    asked: PatchSpec
    axes: dict[str, list[Any]]
    fast: bool

    @property
    def values(self) -> Float[np.ndarray, "metric *axes n"]:
        patched = self.found.patched
        return patched.reshape(len(patched), *map(len, self.axes.values()), patched.shape[-1])


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
    check: bool = False,
    seed: Seed = 0,
    allow_equal: bool = False,
) -> PatchingSweep:
    """Patch one kind of activation between the runs of each pair; see the module.

    Its sentence is about the first metric, and about pairs that the model answers rightly: it refuses a model that
    answers no more than half of the clean problems right (unless the first metric is your own or "kl", which compare
    the model with itself), and pairs whose two runs do not differ in that metric beyond the interval of the difference.

    Two problems that you type take the place of pairs: ``activation_patching(adder, "15+27", "15+22")``.

    Args:
        model: any model with TransformerLens hooks.
        site: one of :data:`interp.causal.patching.patch_sites.SITES`.
        by: a patch covers one "position", all positions of a "role" relative to the pairs' target, or "all".
            "component" patches the components of the module (with ``layers``, those of these layers), and takes no
            ``site``.
        metrics: names of :data:`interp.causal.metrics.FACTORIES`, or metrics such as
            ``logit_diff(pairs, target=3)``; all come from one sweep.
        direction: "denoise", "noise" or "both".
        allow_equal: give unchanged values, and no shares, where the runs or their activations do not differ.
        seed: seed of the cells that ``check`` draws. The bootstrap has the pairs' seed.

    Cost: about ``layers / 2`` runs per position for streams of all but the last layer, two runs in all for the last.

    Raises:
        UserError: no such site, layer, grouping, metric or direction; training mode; nothing to patch; a metric that
            reads missing positions or is not a number; a model that cannot do the task; or runs that do not differ.
        PatchMismatch: cells that ``check`` draws differ from runs through the model's own hooks.
    """
    known_name("direction", direction, (*DIRECTIONS, "both"))
    bound = resolve_metrics(model, pairs, metrics)
    names = [metric.name for metric in bound]
    if RIGHT not in names:
        bound = [*bound, FACTORIES[RIGHT](pairs)]
    whole = by == "component"
    if whole and site != "resid_pre":
        raise UserError("by='component' patches every component where it is: leave site out.")
    asked = [
        PatchSpec.of(
            model, pairs.corrupted_tokens, pairs.clean_tokens, bound, each, "all" if whole else by, layers, pairs.task,
            pairs.target, what=pairs.what, allow_equal=allow_equal or whole,
            check=seed if check else None,
        )
        for each in ([each.name for each in component_sites(model.cfg, layers)] if whole else [site])
    ]  # fmt: skip
    directions = list(DIRECTIONS) if direction == "both" else [direction]
    by_site = [
        [sweep(model, each if one == "denoise" else each.swapped_direction) for each in asked] for one in directions
    ]
    swept = [_components(sites) if whole else sites[0] for sites in by_site]
    provenance = Provenance(
        len(pairs), pairs.seed, f"pairs that differ in {pairs.what}", "exhaustive" if pairs.exhaustive else "sampled"
    )
    values = np.stack([each.values for each in swept])
    unpatched = np.stack([each.found.base for each in swept])
    other = np.stack([each.found.source for each in swept])
    for base, source in zip(unpatched[:, 0], other[:, 0], strict=True):
        if not allow_equal and not runs_differ(base, source, provenance.resampling_seed):
            raise UserError(
                f"The mean {spoken(names[0])} is {base.mean():.3g} in one run and {source.mean():.3g} in the other, no "
                f"difference beyond its 95% interval on {len(pairs):,} pairs ({pairs.what}): there is nothing to "
                "recover. allow_equal=True returns the values."
            )
    right, axes = [metric.name for metric in bound].index(RIGHT), swept[0].axes

    runs, own = ("direction", "metric", "pair"), values[:, : len(names)]
    labelled = xr.Dataset(  # one set of labels for all
        {
            "values": (("direction", "metric", *axes, "pair"), own),
            "unpatched": (runs, unpatched[:, : len(names)]),
            "other": (runs, other[:, : len(names)]),
            "answers": (("direction", *axes, "pair"), values[:, right].astype(bool)),
            "unpatched_answers": (("direction", "pair"), unpatched[:, right].astype(bool)),
        },
        coords={"metric": names} | axes | {"direction": directions},
    )
    table = tabulate(labelled["values"], labelled, provenance.resampling_seed)
    arrays = {name: labelled[name].rename(None) for name in ("values", "unpatched", "other")}
    fast = all(each.fast for each in swept)
    found = PatchingSweep("", table, provenance, ("metric", "direction", *axes), MEASURES, **arrays, fast=fast)
    subject = f"{model_name(model)}, pairs that differ in {pairs.what}"
    return found.saying(found._finding(subject, "" if whole else asked[0].site.name))


def _components(swept: Sequence[SweptSite]) -> SweptSite:
    """Sweeps of all positions at once as one, whose axis is the components in the order in which they write."""
    nodes = {}
    for order, each in enumerate(swept):
        site, patched = each.asked.site, each.found.patched  # [metric, layer, part, 1, n]
        for i, layer in enumerate(each.asked.layers):
            for part in range(patched.shape[2]):
                node = component_name(site, layer, part), patched[:, i, part, 0]
                nodes[not site.embedding, layer, order, part] = node
    names, values = zip(*(nodes[key] for key in sorted(nodes)), strict=True)
    found = replace(swept[0].found, patched=np.stack(values, 1)[:, None, :, None])
    return SweptSite(found, swept[0].asked, {"component": list(names)}, all(each.fast for each in swept))


def sweep(model: HookedModel, asked: PatchSpec) -> SweptSite:
    """The values of a sweep, which are numbers, and of which at least one may differ from the unpatched run's."""
    copy = _copy(model, asked.task)
    plain = model if stream_is_written(model, asked.base, asked.hooks) else copy
    if plain is None:
        raise UserError(
            f"What is written to {asked.hooks[0]} does not reach this model's stream, so that nothing would be patched"
            + ("; give task=, and a copy where it does is patched." if asked.task is None else ".")
        )
    found = plain_values(model, asked) if copy is None else fast_values(copy, asked)
    for metric, values in zip(asked.metrics, found.base, strict=True):
        if n_nan := int(np.isnan(values).sum()):
            raise UserError(
                f"The metric {metric.name!r} is not a number in {n_nan:,} of {len(values):,} unpatched runs."
            )
    if not asked.allow_equal and found.unchanged and not differs(plain, asked):
        raise UserError(
            f"{asked.site.name} is the same in both runs of all {len(asked.base):,} pairs ({asked.what}), so that "
            "patching it changes nothing; allow_equal=True returns the unchanged values."
        )
    if asked.check is not None and copy is not None:
        check_values(plain, asked, found)
    return SweptSite(found, asked, asked.axes(model.cfg), copy is not None)


def _copy(model: HookedModel, task: Task | None) -> ArithmeticTransformer | None:
    """The model for the fast path; None if it is altered (by hooks, for example) or cannot be expressed there."""
    if isinstance(model, ArithmeticTransformer):
        return None if alterations(model) or not has_formulas(model) else model
    if task is None or alterations(model):
        return None
    try:
        return from_transformer_lens(model, task)
    except UserError:
        return None
