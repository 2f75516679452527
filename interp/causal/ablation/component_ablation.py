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
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float

from interp.causal.ablation.ablated_runs import REPLACEMENTS, check_replacement, in_words, run_ablations
from interp.causal.ablation.carry_strata import ALL
from interp.causal.ablation.components import Component, check_components, heads, hooks_of, neurons, sublayers
from interp.causal.ablation.metrics_per_example import ACCURACY, MetricReader, metrics_asked, strata_of
from interp.causal.metrics import Metric, require_answered, require_pairs_answered, spoken
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.frames import as_frame
from interp.core.model_checks import with_writable_stream
from interp.core.probe import Scalar, probe
from interp.core.results import Provenance, Result
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import bootstrap_ratio, masked_proportions
from interp.core.task_checks import check_targets, resolve_task
from interp.core.views import Grid, Picture
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError, known_name
from models.number_format import in_percent_with
from models.tasks import ProblemPairs, TaskLike
from models.transformer import HookedModel, model_name

_MOST_NEURONS = 64  # that a default sweep ablates one by one


@dataclass(frozen=True, eq=False)
class ComponentAblation(Result):
    """``table`` is a Dataset over (metric, component, replacement, stratum), with the replacements "zero", "mean" and
    "resample", or doses of them such as "zero:0.5":

    * ``value``, ``low``, ``high`` with the component ablated; ``drop``, ``drop_low``, ``drop_high``
    * ``control``, ``control_low``, ``control_high``: value after a random change of the same length; NaN without it
    * ``clean``, ``clean_low``, ``clean_high`` [metric, stratum] of the whole model; ``n`` entries and ``problems``
    * ``changed`` [component, replacement]: whether the ablation moved any activation at all

    ``values[metric]`` [component, replacement, problem, read] holds the metric of every example (read: the answer
    tokens, or one entry). ``left_out``: neurons that a default sweep did not ablate, as there are more than it takes.
    """

    model: str
    table: xr.Dataset
    values: Mapping[str, xr.DataArray]
    provenance: Provenance
    left_out: int = 0

    def _choose(self, axis: str, name: str | None) -> str:
        names = [str(value) for value in self.table[axis].values]
        if name is None:
            return names[0]
        return known_name(axis, name, names)

    def worst(self, metric: str | None = None, replacement: str | None = None, stratum: str = ALL) -> xr.Dataset:
        """The row with the largest absolute drop. Raises UserError for a name that the table does not have."""
        row = self.table.sel(
            metric=self._choose("metric", metric),
            replacement=self._choose("replacement", replacement),
            stratum=self._choose("stratum", stratum),
        )
        return row.isel(component=int(np.abs(row["drop"].fillna(0).values).argmax()))

    def named(self, metric: str | None = None, replacement: str | None = None) -> xr.Dataset | None:
        """The row with the largest absolute drop of those that count and exceed their control
        (:func:`exceeds_control`); None if there is none. Raises UserError as :meth:`worst`."""
        worst = self.worst(metric, replacement)
        rows = self.table.sel({axis: worst[axis].item() for axis in ("metric", "replacement", "stratum")})
        each = [rows.isel(component=i) for i in range(rows.sizes["component"])]
        beyond = [row for row in each if counts(row) and exceeds_control(row)]
        return max(beyond, key=lambda row: abs(float(row["drop"])), default=None)

    def sentence(self) -> str:
        metric = self._choose("metric", None)
        leaves, idle, say = [], [], partial(value_text, metric)
        for replacement in self.table.replacement.values.tolist():
            worst, row = self.worst(metric, replacement), self.named(metric, replacement)
            if not counts(worst):
                idle.append(f"{in_words(replacement)}, {largest_change(worst, metric, self.table.sizes['component'])}")
                continue
            if row is None:
                idle.append(
                    f"{in_words(replacement)}, no component has an effect that a random change of its length lacks: "
                    f"{worst.component.item()}, with the largest, leaves {say(worst.value, worst.low, worst.high)}, "
                    f"the random change {say(worst.control, worst.control_low, worst.control_high)}"
                )
                continue
            leaves.append(
                f"{say(row.value, row.low, row.high)} with {row.component.item()} {in_words(replacement)}"
                + ("" if bool(row.control.isnull()) else f" (random change of that length: {say(row.control)})")
            )
        whole = self.table.sel(metric=metric, stratum=ALL)
        controlled = not bool(whole.control.isnull().all())
        found = [f"{_which(self.table.sizes['component'], controlled)} leaves {', '.join(leaves)}"] if leaves else []
        text = (
            f"{self.model}: {metric} {say(whole.clean)} over {_what(metric, int(whole.n))} of "
            f"{int(whole.problems):,} problems; {'; '.join([*found, *idle])}"
        )
        left_out = f"; {self.left_out:,} neurons were not ablated" if self.left_out else ""
        return text + self._strata_text(metric) + self._unchanged_text() + f"{left_out}."

    def _strata_hurt(self, metric: str | None = None) -> tuple[xr.Dataset, xr.Dataset] | None:
        """The strata on which the first replacement's named component hurts most and least; None if all are alike, or
        no component is named.

        Raises:
            UserError: the metric was not measured.
        """
        metric = self._choose("metric", metric)
        row = self.named(metric)
        if row is None:
            return None
        rows = self.table.sel(metric=metric, component=row.component.item(), replacement=row.replacement.item())
        rows = rows.isel(stratum=np.nonzero((rows.stratum != ALL).values & rows["drop"].notnull().values)[0])
        if rows.sizes["stratum"] < 2:
            return None
        most, least = (rows.isel(stratum=int(pick(rows["drop"].values))) for pick in (np.argmax, np.argmin))
        return (most, least) if float(most["drop"]) != float(least["drop"]) else None

    def _strata_text(self, metric: str) -> str:
        found = self._strata_hurt(metric)
        if found is None:
            return ""
        (most, least), say = found, partial(value_text, metric)
        return (
            f"; {in_words(str(most.replacement.item()))}, it leaves {say(most.value)} on {most.stratum.item()} "
            f"(n = {int(most.n):,}) and {say(least.value)} on {least.stratum.item()} (n = {int(least.n):,})"
        )

    def _unchanged_text(self) -> str:
        unchanged = int((~self.table.changed).sum())
        return f"; {unchanged} of {self.table.changed.size} ablations changed no activation" if unchanged else ""

    def to_dataframe(self) -> pd.DataFrame:
        """One row per metric, component, replacement and stratum."""
        frame = as_frame(self.table, ("metric", "component", "replacement", "stratum"))
        return frame.sort_values("metric", kind="stable").reset_index(drop=True)


def counts(row: xr.Dataset) -> bool:
    """Whether a component's drop has an interval without 0."""
    return bool(row.drop_low > 0) or bool(row.drop_high < 0)


def exceeds_control(row: xr.Dataset) -> bool:
    """Whether a component's value lies beyond that of a random change of the same length, on the side of its effect and
    with both intervals apart; yes without a control."""
    if bool(row.control.isnull()):
        return True
    if float(row["drop"]) > 0:
        return bool(row.high < row.control_low)
    return bool(row.low > row.control_high)


def largest_change(row: xr.Dataset, metric: str, components: int) -> str:
    """What to say of the largest drop where it does not count. Smaller ones are not ruled out by its interval."""
    change = value_text(metric, row["drop"], row.drop_low, row.drop_high)
    which = "the change" if components == 1 else f"the largest of {components} changes"
    return f"{which}, by {change}, is within chance"


def value_text(metric: str, value: Any, low: Any = np.nan, high: Any = np.nan) -> str:
    """A value of a metric with its interval, accuracy in percent."""
    if metric == ACCURACY:
        return in_percent_with(float(value), float(low), float(high))
    return f"{float(value):.3f}" + ("" if np.isnan(low) else f" [{float(low):.3f}, {float(high):.3f}]")


def _what(metric: str, n: int) -> str:
    return f"{n:,} answer tokens" if metric == ACCURACY else f"{n:,} values"


def _which(components: int, controlled: bool) -> str:
    most = "with the largest effect" + " beyond its control" * controlled
    return "the one component" if components == 1 else f"of {components} components, the one {most}"


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
) -> ComponentAblation:
    """The result, from the metric of every example. Boolean values are counted, others averaged.

    ``controls`` are the values after random changes of the same length, in the shape of ``values``. ``strata[metric]``
    are masks by name; a stratum that a metric lacks is NaN there.
    """
    names = list(dict.fromkeys(name for masks in strata.values() for name in masks))
    seed = provenance.resampling_seed
    full, whole = ("metric", "component", "replacement", "stratum"), ("metric", "stratum")
    shape = (len(values), len(components), len(replacement), len(names))
    kinds = ("value", "drop", "control")
    parts: dict[str, np.ndarray] = {k: np.full(shape, np.nan) for kind in kinds for k in _ends(kind)}
    parts |= {k: np.full((shape[0], shape[3]), np.nan) for k in _ends("clean")}
    counts = {k: np.zeros((shape[0], shape[3]), dtype=np.int64) for k in ("n", "problems")}
    for i, (metric, ablated) in enumerate(values.items()):
        before = clean[metric]
        estimate = masked_proportions if before.dtype == bool else _averages(seed)
        for name, mask in strata[metric].items():
            j = names.index(name)
            for kind, found in (
                ("value", estimate(ablated, mask)),
                ("drop", bootstrap_ratio(ablated, mask, seed, before)),
                ("clean", estimate(before, mask)),
                *([] if controls is None else [("control", estimate(controls[metric], mask))]),
            ):
                for k, key in enumerate(_ends(kind)):
                    parts[key][i, ..., j] = found[..., k]
            counts["n"][i, j], counts["problems"][i, j] = mask.sum(), mask.any(1).sum()
    data: dict[str, Any] = {k: (full if v.ndim == 4 else whole, v) for k, v in parts.items()}
    data |= {k: (whole, v) for k, v in counts.items()} | {"changed": (full[1:3], changed)}
    coords = {"metric": list(values), "component": list(components), "replacement": list(replacement), "stratum": names}
    axes = ("component", "replacement", "problem", "read")
    labels = {axis: coords[axis] for axis in axes[:2]}
    return ComponentAblation(
        model,
        xr.Dataset(data, coords=coords),
        {metric: xr.DataArray(v, dims=axes, coords=labels) for metric, v in values.items()},
        provenance,
    )


def _ends(kind: str) -> list[str]:
    return ["value", "low", "high"] if kind == "value" else [kind, f"{kind}_low", f"{kind}_high"]


def _averages(seed: int) -> Any:
    return lambda values, mask: bootstrap_ratio(values, mask, seed)


def _main_head(found: ComponentAblation) -> Estimate:
    """The largest loss of answer tokens without one head, with those of all heads as parts."""
    rows = found.table.isel(metric=0, replacement=0).sel(stratum=ALL)
    parts = [
        Estimate(float(row["drop"]), float(row.drop_low), float(row.drop_high), name=str(label))
        for label, row in ((str(label), rows.sel(component=label)) for label in rows.component.values)
    ]
    worst = max(parts, key=lambda part: part.value)
    return Estimate(worst.value, worst.low, worst.high, note=f"without {worst.name}", parts=tuple(parts))


def _heads_resampled(model: Any, task: Any, n: int, seed: int) -> dict[str, Any]:
    common = {"unchanged": "keep", "control": False}
    return {"components": heads(model), "replacement": "resample", "n": min(n, 256)} | common


@probe(
    "What breaks without a head, a neuron, an attention edge?",
    scalar=Scalar(
        "tokens lost without one head", "share", _main_head, 0.01, _heads_resampled, asked_by=("compare_models",)
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
    result = compute_component_ablation(
        reader.values,
        reader.clean,
        masks,
        [component.label for component in chosen],
        names,
        np.array([[changed[i, j] for j in range(len(names))] for i in range(len(chosen))]),
        provenance,
        model_name(model),
        reader.controls if control else None,
    )
    return replace(result, left_out=sum(unit not in chosen for unit in all_neurons))


def default_components(model: HookedModel) -> list[Component]:
    """Sublayers and heads, and the neurons where there are at most 64."""
    units = neurons(model)
    return [*sublayers(model), *heads(model), *(units if len(units) <= _MOST_NEURONS else ())]


@drawing(ComponentAblation)
def component_view(result: ComponentAblation, metric: str | None = None, most: int = 24) -> Picture:
    """Drop by component and stratum, one panel per replacement, for the ``most`` components with the largest drops."""
    metric = result._choose("metric", metric)
    table = result.table.sel(metric=metric)
    size = np.nan_to_num(np.abs(table["drop"].sel(stratum=ALL).values)).max(1)
    table = table.isel(component=np.sort(np.argsort(-size, kind="stable")[:most]))
    table = table.sel(stratum=[name for name in table.stratum.values if int(table.n.sel(stratum=name))])
    strata = [f"{name}<br>n = {int(table.n.sel(stratum=name)):,}" for name in table.stratum.values]
    views, reach = [], float(np.nanmax(np.abs(table["drop"].values)))
    for method in table.replacement.values.tolist():
        part = table.sel(replacement=method)
        left = [f"{v:.4g} [{low:.4g}, {high:.4g}]" for v, low, high in zip(*_flat(part), strict=True)]
        said = {"leaves": np.reshape(left, part["drop"].shape), "a random change as long": part.control.values}
        at = "", "component", in_words(method), part["drop"].values, table.component.values.tolist(), strata
        views.append(Grid(*at, f"drop in {spoken(metric)}", "signed", reach or None, said=said))
    shown, known = table.sizes["component"], result.table.sizes["component"]
    note = f"The {shown} components that count most, of {known}. " if shown < known else ""
    note += f"Drop in {spoken(metric)} without the component, on the same examples"
    other = metric != result._choose("metric", None)
    title = f"{result.model}: drop in {spoken(metric)} without a component" if other else ""
    return Picture(views, 1, title, note, shared="x")


def _flat(part: xr.Dataset) -> list[np.ndarray]:
    return [part[name].values.ravel() for name in ("value", "low", "high")]
