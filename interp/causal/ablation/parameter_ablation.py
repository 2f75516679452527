"""Ablation of every free parameter of a small model, and of every pair of them, in one stacked run.

A parameter is set to zero or to its *initial value*. There is no mean or resample ablation of a parameter, since it
does not vary between inputs.

    drop[i]          = accuracy - accuracy without i                           single
    drop[i, j]       = accuracy - accuracy without i and j                     pair
    interaction      = drop[i, j] - drop[i] - drop[j]                          > 0: worse together than one by one

These are computed for the accuracy of single answer tokens, for the loss (as its rise) and for the logit of the
accuracy, ``ln((k + 1/2) / (n - k + 1/2))``. On the accuracy itself the sum of two large drops exceeds what there is to
lose, so most interactions of important parameters are negative: this is a floor effect, not redundancy. The loss has no
floor, but grows with how confident a broken model is; the logit is bounded by ``ln(2 n + 1)`` either way.

The control moves the whole parameter vector as far as the single replacement does, in random directions. If zeroing a
parameter costs no more than that, only the size of the step matters.

Limits. Sampled and teacher forced. Zero is a special value for a norm gain or an angle, but not for the start of an
arc: the numbers say what the model does without this number's training, not what the number "is for".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.causal.ablation.parameter_variants import (
    CONTROLS,
    MOST_VARIANTS,
    flat_parameters,
    initial_values,
    make_variants,
    run_variants,
)
from interp.causal.metrics import require_answered
from interp.core.answer_columns import answer_columns
from interp.core.drawings import drawing
from interp.core.estimate import SHARE, Estimate
from interp.core.probe import Summary, parameters, probe
from interp.core.results import Provenance
from interp.core.samples import prepare
from interp.core.stats import Bounds, bootstrap_interval, masked_proportions
from interp.core.table_result import Measure, TableResult
from interp.core.views import Grid, Picture, Points, Series, View
from models import ArithmeticTransformer
from models.calls import Count, GivenProblems, Seed
from models.errors import UserError
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name

SCALES = ("accuracy", "loss", "logit")


MEASURES = (
    Measure("drop", SHARE, ("random",), "drop in accuracy"),
    Measure("rise", "nats", ("random",), "rise of the loss"),
    Measure("accuracy", SHARE),
    Measure("exact", SHARE, title="whole answers right"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class ParameterAblation(TableResult):
    """What breaks without each parameter and pair. ``table`` is a Dataset over ``parameter``:

    * ``trained`` and ``replaced_by``: its values; ``changed``: whether they differ
    * ``accuracy`` of single answer tokens and ``exact`` of whole answers with ``_low`` and ``_high``; ``loss`` in
      nats per token; ``drop`` and ``rise`` (of the loss) with ``_low`` and ``_high``
    * ``drop_random``, ``rise_random``: mean drop and rise of the control's random directions; ``most_random``: the
      largest drop

    ``pairs``, a Dataset over (parameter, other), symmetric, NaN on the diagonal: ``accuracy``, ``loss``, ``drop``,
    ``rise`` and ``interaction_accuracy``, ``interaction_loss`` (each with ``_low`` and ``_high``) and
    ``interaction_logit``. Without pairs it is empty.

    ``right`` [variant, problem, target] and ``losses`` [variant, problem] are the values of every example, with
    variants in the order clean, singles, pairs (row by row), controls.
    """

    pairs: xr.Dataset
    right: Bool[np.ndarray, "variant n target"]
    losses: Float[np.ndarray, "variant n"]

    def ranked(self) -> pd.DataFrame:
        """Single parameters, the one that costs most accuracy first."""
        return self.to_dataframe().sort_values("drop", ascending=False, ignore_index=True)

    def above_control(self) -> pd.DataFrame:
        """The rows of :meth:`ranked` that cost accuracy, and more than each of their random steps."""
        ranked = self.ranked()
        return ranked[ranked["drop"] > ranked["most_random"].clip(lower=0)]

    def _finding(self, model: str, replacement: str) -> str:
        ranked, above, names = self.ranked(), self.above_control(), len(self.table.parameter)
        row = (ranked if above.empty else above).iloc[0].to_dict()
        accuracy, whole = self.measure("accuracy").estimate(row), Estimate(float(self.right[0].mean()), unit=SHARE)
        random, most = (Estimate(float(row[end]), unit=SHARE) for end in ("drop_random", "most_random"))
        text = f"accuracy falls from {whole} to {accuracy} with {row['parameter']} {replacement} (random steps of its "
        text += f"size cost {random} on average)"
        if names > 1:
            text += f", the most of {len(above):,} of {names:,} free parameters that cost more than any of {CONTROLS} "
            text += "random steps"
        if above.empty:
            text = f"no parameter {replacement} costs more than each of {CONTROLS} random steps of its size do: with "
            text += f"{row['parameter']}, accuracy goes from {whole} to {accuracy}, and such a step costs up to {most}"
        diverged = int((~np.isfinite(self.losses)).any(1).sum())
        return f"{model}: {text}." + (f" {diverged:,} of {len(self.right):,} variants diverged." if diverged else "")


def check_scale(scale: str) -> str:
    """The scale. Raises UserError unless it is one of accuracy, loss and logit."""
    if scale not in SCALES:
        raise UserError(f"An interaction is taken on {', '.join(SCALES)}, not {scale!r}.")
    return scale


def compute_parameter_ablation(
    right: Bool[np.ndarray, "variant n target"],
    losses: Float[np.ndarray, "variant n"],
    names: Sequence[str],
    trained: Float[np.ndarray, " parameter"],
    replaced_by: Float[np.ndarray, " parameter"],
    pairs: Int[np.ndarray, "2 pair"],
    provenance: Provenance,
    model: str = "the model",
    replacement: str = "replaced",
) -> ParameterAblation:
    """Drops and interactions, from what every variant gets right; variants are in the order of the result.

    Cost: bootstraps of [pair, n] values, a second or two for 1,596 pairs and 512 problems.
    """
    p, q, seed = len(names), pairs.shape[1], provenance.resampling_seed
    share = right.mean(2, dtype=np.float64)  # [variant, n]
    lost, risen = share[:1] - share, losses.astype(np.float64) - losses[:1]
    single, paired = slice(1, 1 + p), slice(1 + p, 1 + p + q)
    controlled = slice(1 + p + q, None)
    everything = np.ones(right.shape[1:], dtype=bool)
    whole = np.expand_dims(right[single].all(2), 2)
    found: dict[str, np.ndarray] = {"trained": trained, "replaced_by": replaced_by, "changed": trained != replaced_by}
    for name, values, mask in (
        ("accuracy", right[single], everything),
        ("exact", whole, everything[:, :1]),
    ):
        found |= dict(zip((name, f"{name}_low", f"{name}_high"), masked_proportions(values, mask).T, strict=True))
    found["loss"] = losses[single].mean(1)
    for name, values in (("drop", lost[single]), ("rise", risen[single])):
        found |= _with_interval(name, values, seed, (-1.0, 1.0) if name == "drop" else None)
    drops, rises = (x[controlled].mean(1).reshape(p, -1) for x in (lost, risen))
    found |= {"drop_random": drops.mean(1), "rise_random": rises.mean(1), "most_random": drops.max(1)}
    coords = {"parameter": list(names), "other": list(names)}
    both: dict[str, np.ndarray] = {}
    if q:
        i, j = pairs
        both = {"accuracy": share[paired].mean(1), "loss": losses[paired].mean(1)}
        for name, values, kind in (("drop", lost, "accuracy"), ("rise", risen, "loss")):
            both |= _with_interval(name, values[paired], seed, (-1.0, 1.0) if name == "drop" else None)
            together = values[paired] - values[single][i] - values[single][j]
            both |= _with_interval(f"interaction_{kind}", together, seed)
        logit = _logit(right)
        both["interaction_logit"] = logit[single][i] + logit[single][j] - logit[paired] - logit[0]
        both = {name: _square(values, i, j, p) for name, values in both.items()}
    table = xr.Dataset({k: ("parameter", v) for k, v in found.items()}, coords={"parameter": list(names)})
    pairs_found = xr.Dataset({k: (("parameter", "other"), v) for k, v in both.items()}, coords=coords)
    result = ParameterAblation(
        "", table, provenance, ("parameter",), MEASURES, pairs=pairs_found, right=right, losses=losses
    )
    return result.saying(result._finding(model, replacement))


def _with_interval(
    name: str, values: Float[np.ndarray, "cell n"], seed: int, bounds: Bounds | None = None
) -> dict[str, np.ndarray]:
    low, high = bootstrap_interval(values, seed, bounds=bounds)
    return {name: values.mean(1), f"{name}_low": low, f"{name}_high": high}


def _logit(right: Bool[np.ndarray, "variant n target"]) -> Float[np.ndarray, " variant"]:
    k, n = right.sum((1, 2)), right[0].size
    return np.log((k + 0.5) / (n - k + 0.5))


def _square(values: np.ndarray, i: np.ndarray, j: np.ndarray, p: int) -> np.ndarray:
    found = np.full((p, p), np.nan)
    found[i, j] = found[j, i] = values
    return found


def _few(model: HookedModel, task: Any) -> str:
    """All parameters, their pairs and their controls must fit into one call."""
    count = sum(parameter.numel() for parameter in model.parameters())
    variants = 1 + count * (1 + CONTROLS) + count * (count - 1) // 2
    return "" if variants <= MOST_VARIANTS else f"{count:,} parameters have too many pairs: pass pairs=False or only="


def _main_parameter(found: ParameterAblation) -> Estimate:
    worst = found.largest("drop")
    return replace(worst, note=f"without {worst.name}", parts=())


@probe(
    "What breaks without a parameter, or two?",
    needs=[parameters],
    by_default=[_few],
    summary=Summary(
        "tokens lost without one parameter", "share", _main_parameter, 0.01, lambda *_: {"pairs": False}, asked_by=()
    ),
)
def parameter_ablation(
    model: HookedModel,
    *,
    replacement: str | Float[Tensor, " parameter"] = "zero",
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = 512,
    seed: Seed = 0,
    only: str | Sequence[str] | None = None,
    pairs: bool = True,
) -> ParameterAblation:
    """Replace every free parameter, and every pair, of a small model.

    Args:
        model: this project's, or a stock TransformerLens model (its free parameters are then its whole weights).
        replacement: "zero", "initial" (what :func:`models.build` draws with ``seed``), or a value for each parameter,
            such as :func:`interp.causal.ablation.parameter_variants.initial_values` of its training's seed.
        task, problems, n, seed: as in :func:`interp.causal.ablation.component_ablation`; only answer
            digits count.
        only: names of parameters ("W_qk", or single numbers "W_qk[0,1]") to replace only these.

    Cost: ``1 + 5 P + P (P - 1) / 2`` runs, 4 P of them controls, stacked: MicroAdder's 57 parameters, 1,596 pairs
    and 228 controls on 512 problems, the default, take about 3 s on one thread, the bootstraps two more.

    Raises:
        UserError: a model that gets no more than half of the answer tokens right; no free parameters, an unknown
            replacement or parameter name, a replacement that changes nothing, too many variants, or a model in training
            mode.
    """
    from models.importers import from_transformer_lens

    sample = prepare(model, task, problems, n, seed, carry_heavy=0.5)
    task = sample.task
    require_answered(model, task, sample)
    name, model = model_name(model), from_transformer_lens(model, task)
    values, words = _replacement(model, replacement, seed)
    variants = make_variants(model, values, only, pairs, seed)
    targets = answer_columns(task, with_operands=False).targets or list(range(len(task.query_positions)))
    right, losses, _ = run_variants(model, task, sample.problems, variants.theta, targets)
    return compute_parameter_ablation(
        right.numpy(),
        losses.double().numpy(),
        variants.names,
        variants.trained[variants.chosen].double().numpy(),
        values[variants.chosen].double().numpy(),
        variants.pairs.numpy(),
        sample.provenance,
        name,
        words,
    )


def _replacement(model: ArithmeticTransformer, replacement: Any, seed: int) -> tuple[Tensor, str]:
    """The values, and the words for what is done to a parameter."""
    if not list(model.weight_map.parameters()):
        raise UserError("This model has no free parameters: its weights are constants, so there is none to ablate.")
    trained = flat_parameters(model)
    if isinstance(replacement, Tensor):
        return replacement.detach().to(trained), "replaced"
    if replacement == "zero":
        return torch.zeros_like(trained), "set to zero"
    if replacement == "initial":
        return initial_values(model, seed).to(trained), f"set to the initial value of seed {seed}"
    raise UserError(f"A parameter is set to 'zero', to 'initial' or to values, not {replacement!r}; it has no mean.")


_UNITS = {"loss": "nats", "accuracy": "share", "logit": "logits"}


@drawing(ParameterAblation)
def parameter_view(result: ParameterAblation, scale: str = "loss") -> Picture:
    """The drop of each parameter, then of each pair of them, and how they interact; colours end at the 95% quantile."""
    check_scale(scale)
    table = result.to_dataframe()
    said, ends = ("trained", "replaced_by", "loss"), ("drop_low", "drop_high")
    bars = [Series.of(table, "parameter", "drop", "this parameter", ends, said)]
    bars.append(Series.of(table, "parameter", "drop_random", "a random step of its size", control=True))
    views: list[View] = [Points("", "drop in accuracy", "one parameter", bars, "share", across=True)]
    if result.pairs.data_vars:
        names, interaction = table["parameter"].tolist(), result.pairs[f"interaction_{scale}"].values
        limit = float(np.nanquantile(np.abs(interaction), 0.95)) or 1.0
        title = "what a pair costs beyond its two parameters"
        unit = f"interaction, {_UNITS[scale]}"
        views += [
            Grid("", "", "a pair of them", result.pairs["drop"].values, names, names, "drop in accuracy"),
            Grid("", "", title, interaction, names, names, unit, "signed", limit),
        ]
    return Picture(
        views, 1, note="Intervals: 95% bootstrap. Controls: mean of steps of the same size in random directions"
    )
