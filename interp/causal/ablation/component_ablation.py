"""Component ablation: what breaks without a component, by replacement and carry stratum.

    value    mean of the metric over the stratum with the component ablated
    drop     the whole model's mean minus that, on the same examples

Without pairs of problems the metric is "accuracy", the share of single answer tokens that are right under teacher
forcing. With pairs every metric of :mod:`interp.causal.metrics` is available, on the clean runs. Intervals are at 95%:
Korn and Graubard's for accuracies (Clopper and Pearson's where a problem has one entry), and the bootstrap over
problems for other metrics and every drop. The control of every cell is a change of the same length in a random
direction (:mod:`interp.causal.ablation.ablated_runs`).

Limits. Sampled. The model never trained on ablated runs: a drop says that something downstream needs the part to be
about as it was, not what the part represents. Later layers may compensate for a removed part, which hides it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float

from interp.causal.ablation.ablated_runs import REPLACEMENTS, check_replacement, in_words, run_ablations
from interp.causal.ablation.carry_strata import ALL
from interp.causal.ablation.components import Component, check_components, heads, hooks_of, neurons, sublayers
from interp.causal.ablation.metrics_per_example import ACCURACY, MetricReader, metrics_asked, strata_of
from interp.causal.metrics import Metric, require_answered, require_pairs_answered, spoken
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.model_checks import with_writable_stream
from interp.core.probe import Summary, probe
from interp.core.results import Provenance
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import bootstrap_ratio, masked_proportions
from interp.core.table_result import Measure, TableResult, largest, table_view
from interp.core.task_checks import check_targets, resolve_task
from interp.core.views import Grid, Picture
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import counted
from models.tasks import ProblemPairs, TaskLike
from models.transformer import HookedModel, model_name

_MOST_NEURONS = 64  # that a default sweep ablates one by one


KEYS = ("metric", "replacement", "component", "stratum")


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentAblation(TableResult):
    """``table`` is a Dataset over (metric, component, replacement, stratum), with the replacements "zero", "mean" and
    "resample", or doses of them such as "zero:0.5":

    * ``value`` with the component ablated and ``drop``, with intervals; ``value_random``: the value after a random
      change of the same length, with its interval; NaN without it
    * ``has_effect``: whether the drop's interval is off 0 and the value's apart from that of the random change, on the
      side of the effect
    * ``clean``, ``clean_low``, ``clean_high`` [metric, stratum] of the whole model; ``n`` problems and ``entries``,
      which are answer tokens or one value for a problem
    * ``changed`` [component, replacement]: whether the ablation moved any activation at all

    ``values[metric]`` [component, replacement, problem, read] holds the metric of every example (read: the answer
    tokens, or one entry).
    """

    values: Mapping[str, xr.DataArray]

    def largest_change(self) -> dict[str, Any]:
        """The row of the first metric's largest change over all examples, of those that ``has_effect`` if any does."""
        rows = self.rows_at(metric=str(self.table.metric.values[0]), stratum=ALL)
        shown = rows[rows["has_effect"]] if rows["has_effect"].any() else rows.dropna(subset=["drop"])
        return shown.loc[shown["drop"].abs().idxmax()].to_dict()

    def _finding(self, model: str, left_out: int) -> str:
        row, names = self.largest_change(), self.table.sizes["component"]
        metric = row["metric"]
        unit = SHARE if self.values[metric].dtype == bool else ""
        value = replace(self.measure("value").estimate(row), unit=unit)
        name = f"{row['component']} {in_words(row['replacement'])}"
        whole, other = (Estimate(float(row[end]), unit=unit) for end in ("clean", "value_random"))
        random = "" if value.control is None else f"a random change of equal length: {other}"
        of = f", the largest change {'beyond its control ' * bool(random)}of {names} components" if names > 1 else ""
        if row["has_effect"]:
            verb, random = "falls" if row["drop"] > 0 else "rises", f" ({random})" * bool(random)
            text = f"{model}: {spoken(metric)} {verb} from {whole} to {value} with {name}{random}{of}."
        else:
            beyond = "chance and a random change of equal length do" if random else "chance"
            text = f"{model}: no component's ablation is shown to change {spoken(metric)} by more than {beyond}. The "
            text += f"largest change, with {name}, is from {whole} to {value}{f' ({random})' * bool(random)}."
        unknown = int(self.table["drop"].sel(metric=metric, stratum=ALL).isnull().sum())
        text += f" {counted(unknown, 'ablation')} gave no number." if unknown else ""
        return text + (f" {left_out:,} neurons were not ablated." if left_out else "")


def compute_component_ablation(
    values: Mapping[str, Float[np.ndarray, "component kind n read"] | Bool[np.ndarray, "component kind n read"]],
    clean: Mapping[str, Float[np.ndarray, "n read"] | Bool[np.ndarray, "n read"]],
    strata: Mapping[str, Mapping[str, Bool[np.ndarray, "n read"]]],
    components: Sequence[str],
    replacement: Sequence[str],
    changed: Bool[np.ndarray, "component kind"],
    provenance: Provenance,
    model: str = "the model",
    controls: Mapping[str, np.ndarray] | None = None,
    left_out: int = 0,
) -> ComponentAblation:
    """The result, from the metric of every example. Boolean values are counted, others averaged.

    ``controls`` are the values after random changes of the same length, in the shape of ``values``. ``strata[metric]``
    are masks by name; a stratum that a metric lacks is NaN there. ``left_out``: neurons that were not ablated.
    """
    names = list(dict.fromkeys(name for masks in strata.values() for name in masks))
    seed = provenance.resampling_seed
    full, whole = ("metric", "component", "replacement", "stratum"), ("metric", "stratum")
    shape = (len(values), len(components), len(replacement), len(names))
    kinds = ("value", "drop", "value_random")
    parts: dict[str, np.ndarray] = {k: np.full(shape, np.nan) for kind in kinds for k in _columns(kind)}
    parts |= {k: np.full((shape[0], shape[3]), np.nan) for k in _columns("clean")}
    counts = {k: np.zeros((shape[0], shape[3]), dtype=np.int64) for k in ("n", "entries")}
    for i, (metric, ablated) in enumerate(values.items()):
        before = clean[metric]
        estimate = masked_proportions if before.dtype == bool else _averages(seed)
        for name, mask in strata[metric].items():
            j = names.index(name)
            for kind, found in (
                ("value", estimate(ablated, mask)),
                ("drop", bootstrap_ratio(ablated, mask, seed, before)),
                ("clean", estimate(before, mask)),
                *([] if controls is None else [("value_random", estimate(controls[metric], mask))]),
            ):
                for k, key in enumerate(_columns(kind)):
                    parts[key][i, ..., j] = found[..., k]
            counts["n"][i, j], counts["entries"][i, j] = mask.any(1).sum(), mask.sum()
    data: dict[str, Any] = {k: (full if v.ndim == 4 else whole, v) for k, v in parts.items()}
    data |= {k: (whole, v) for k, v in counts.items()} | {"changed": (full[1:3], changed)}
    coords = {"metric": list(values), "component": list(components), "replacement": list(replacement), "stratum": names}
    axes = ("component", "replacement", "problem", "read")
    labels = {axis: coords[axis] for axis in axes[:2]}
    table = xr.Dataset(data, coords=coords)
    below, above = table.value_high < table.value_random_low, table.value_low > table.value_random_high
    apart = xr.where(table["drop"] > 0, below, above) | table.value_random.isnull()
    unit = SHARE if all(each.dtype == bool for each in clean.values()) else ""
    found = ComponentAblation(
        "", table.assign(has_effect=((table.drop_low > 0) | (table.drop_high < 0)) & apart), provenance, KEYS,
        (Measure("drop", unit), Measure("value", unit, ("random",))),
        values={metric: xr.DataArray(v, dims=axes, coords=labels) for metric, v in values.items()},
    )  # fmt: skip
    return found.saying(found._finding(model, left_out))


def _columns(name: str) -> list[str]:
    return [name, f"{name}_low", f"{name}_high"]


def _averages(seed: int) -> Any:
    return lambda values, mask: bootstrap_ratio(values, mask, seed)


def _heads_resampled(model: Any, task: Any, n: int, seed: int) -> dict[str, Any]:
    common = {"unchanged": "keep", "control": False}
    return {"components": heads(model), "replacement": "resample", "n": min(n, 256)} | common


@probe(
    "What breaks without a head, a neuron, an attention edge?",
    summary=Summary(
        "tokens lost without one head",
        "share",
        largest("drop", metric=ACCURACY, replacement="resample", stratum=ALL),
        0.01,
        _heads_resampled,
        asked_by=("compare_models",),
    ),
)
def component_ablation(
    model: HookedModel,
    *,
    components: Component | Sequence[Component] | None = None,
    replacement: str | Sequence[str] = REPLACEMENTS,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    pairs: ProblemPairs | None = None,
    metrics: str | Metric | Sequence[str | Metric] | None = None,
    targets: Sequence[int] | None = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
    unchanged: str | None = None,
    control: bool = True,
) -> ComponentAblation:
    """Ablate components one by one (:class:`~interp.causal.ablation.components.Together` ablates several at once).

    Args:
        model: any model with TransformerLens hooks.
        components: default sublayers, heads and, if there are at most 64, neurons.
        replacement: one or more of "zero", "mean" and "resample", or doses of them: ``("mean:0", "mean:0.5", "mean")``
            is a sham, half of the way and the whole (:mod:`interp.causal.ablation.ablated_runs`).
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``, half of them rich in
            carries. ``seed`` also draws the resampling partners and the bootstrap.
        pairs: pairs of problems in place of ``problems``; their clean problems are run.
        metrics: "accuracy" (the default without pairs), with pairs also names of :mod:`interp.causal.metrics` (then
            "logit_diff" is the default), or Metric objects bound to the problems.
        targets: the targets that "accuracy" counts, default all.
        unchanged: "error" raises for an ablation that changes nothing, "keep" lists it (``changed`` is False). By
            default components that are named must change something, and those of the default sweep need not.
        control: also run a random change of the same length in place of every ablation.

    Cost: ``2 components x replacements + 4`` runs of the sample, about half without control.

    Raises:
        UserError: components, replacements, metrics or targets that do not exist; a hook that never fires; an ablation
            that changes nothing; a model in training mode; or one that gets no more than half of the answer tokens
            right (unless the metrics are your own or "kl", which compare the model with itself).
    """
    unchanged = ("keep" if components is None else "error") if unchanged is None else unchanged
    if unchanged not in ("error", "keep"):
        raise UserError(f"unchanged is 'error' or 'keep', not {unchanged!r}.")
    task = resolve_task(model, pairs.task if pairs is not None and task is None else task)
    if pairs is not None and problems is not None:
        raise UserError("Give problems or pairs of problems, not both.")
    given, beside = (problems, ()) if pairs is None else (pairs.clean, [pairs.corrupted])
    sample = draw(task, given, n, seed, 0.5, beside)
    provenance = sample.provenance
    if pairs is not None:
        if not torch.equal(sample.tokens, pairs.clean_tokens):
            raise UserError(f"The pairs are problems of {pairs.task.name}, which {task.name} writes in other tokens.")
        drawn = "" if pairs.seed is None else f" (drawn with seed {pairs.seed})"
        provenance = replace(provenance, source=f"clean problems of pairs that differ in {pairs.what}{drawn}")
    default = default_components(model)
    chosen = check_components(model, default if components is None else components, sample.tokens.shape[1])
    all_neurons = neurons(model) if components is None else []
    names, read = check_replacement(replacement), check_targets(task, targets)
    if not read:
        raise UserError("Accuracy needs at least one target.")
    found = metrics_asked(model, pairs, metrics)
    if pairs is not None:
        require_pairs_answered({"model": model, "pairs": pairs, "metrics": metrics or "logit_diff"})
    elif any(metric.name == ACCURACY for metric in found):
        require_answered(model, task, sample, read)
    masks = {metric.name: strata_of(task, sample.problems, pairs, metric, read) for metric in found}
    reader = MetricReader(task, sample.problems, found, read, len(chosen), len(names))
    runner = with_writable_stream(model, task, hooks_of(chosen))
    first = reader.first(sample.tokens.shape[1])
    changed = run_ablations(runner, sample.tokens, chosen, names, seed, reader.receive, unchanged, control, first)
    return compute_component_ablation(
        reader.values,
        reader.clean,
        masks,
        [component.label for component in chosen],
        names,
        np.array([[changed[i, j] for j in range(len(names))] for i in range(len(chosen))]),
        provenance,
        model_name(model),
        reader.controls if control else None,
        sum(unit not in chosen for unit in all_neurons),
    )


def default_components(model: HookedModel) -> list[Component]:
    """Sublayers and heads, and the neurons where there are at most 64."""
    units = neurons(model)
    return [*sublayers(model), *heads(model), *(units if len(units) <= _MOST_NEURONS else ())]


@drawing(ComponentAblation)
def component_view(result: ComponentAblation, metric: str | None = None) -> Picture:
    """Drop by component and stratum, one panel per replacement."""
    first = str(result.table.metric.values[0])
    rows = result.rows_at(metric=first if metric is None else metric).query("entries > 0")
    picture = table_view(replace(result, table=rows, measures=result.measures[:1]))
    views = [replace(view, x="", title=view.title.removesuffix(": drop")) for view in picture.views]
    views = [replace(view, colours="signed") if isinstance(view, Grid) else view for view in views]
    note = f"Drop in {spoken(metric or first)} without the component, on the same examples"
    title = "" if metric in (None, first) else f"Drop in {spoken(str(metric))} without a component"
    return Picture(views, 1, title, "; ".join(filter(None, (note, picture.note))), shared="x")
