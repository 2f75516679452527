"""Direct logit attribution: what each part contributes directly to a digit's lead over its rival.

With the scale s of the final norm frozen at its value, a logit difference is linear in the last residual stream, which
is the sum of everything written to it:

    lead = logit[right] - mean logit[rivals] = sum over parts of  part . u
    u    = centred(g * W_U (e_right - mean e_rivals)) / s

(g: the norm's gain; centred for LayerNorm only, which subtracts the mean). The parts at a query:

    embed, pos              the query's own token and position
    L0H1 own operands       head 1 of layer 0 through the keys of one role: sum_k pattern[q, k] v[k] W_O; roles are
                            relative to the target (``task.relative_roles``)
    L0N3                    a neuron: its activation times its row of W_out
    L0.b_O, L0.b_out        biases;  constant: b_U and the bias of the final norm

They add up to the lead exactly; the largest deviation found is stated. Rivals: "others" (mean of the other digits:
nine, or one for bits), "carry" (the digit that the other carry in would give), "all" (mean of all tokens: the centred
logit), or given tokens.

Limits. Only *direct* effects count: what a head passes to a later MLP counts for the MLP. A part that adds the same to
the right digit and its rival reads as zero. Freezing the scale hides that a part also changes the norm of the stream.
Source: Elhage et al. (2021), "A Mathematical Framework for Transformer Circuits". On a model with folded norms, this
equals TransformerLens' ``ActivationCache.logit_attrs``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float

from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.key_roles import target_labels
from interp.core.probe import Scalar, probe, sums
from interp.core.results import Provenance, Result
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, draw
from interp.core.stats import bootstrap_interval
from interp.core.task_checks import resolve_task
from interp.core.views import Grid, Line, Picture, Points, Series, View
from interp.probes.lens.residual_contributions import PARTS_AXES, attributed, choose_rivals
from interp.probes.lens.residual_points import digit_targets
from models.calls import Count, GivenProblems, Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.number_format import small
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name, neuron_name

#: How far the parts' sum may be from the model's own lead, as a share of the largest; float32 rounding is far below.
TOLERANCE = 1e-3


@dataclass(frozen=True, eq=False)
class DirectLogitAttribution(Result):
    """``parts``: Dataset over (part, target) with ``mean``, ``spread`` over problems and bootstrap ``low``, ``high``,
    in logits; each part's ``kind`` ("embed", "pos", "head", "mlp", "bias"), ``layer``, ``head`` (-1: none) and ``role``
    are coordinates. An MLP is one part, the sum of its units. NaN where a role has no position for a target.

    ``units``: the same over (layer, unit, target), or None for a model without MLPs. ``values`` [part, target, example]
    keeps every problem's value. ``lead`` [target]: mean of the whole difference. ``rival``: over what the right digit
    leads. ``worst``: the largest deviation of the sum of a problem's parts from its lead.
    """

    name: str
    parts: xr.Dataset
    units: xr.Dataset | None
    values: xr.DataArray
    lead: xr.DataArray
    rival: str
    worst: float
    provenance: Provenance

    def _by_kind(self) -> pd.Series:
        """What each kind of part contributes, averaged over targets."""
        total = self.parts["mean"].fillna(0.0).mean("target")
        return total.to_series().groupby(self.parts.kind.values).sum().sort_values(ascending=False)

    def _units_needed(self, share: float = 0.9) -> int:
        """The fewest neurons whose absolute mean contributions over targets make up this share of all neurons'.

        Raises:
            UserError: the model has no MLPs.
        """
        if self.units is None:
            raise UserError(f"{self.name} has no MLPs, so that it has no neurons.")
        size = np.sort(np.abs(self.units["mean"].mean("target").values).ravel())[::-1]
        return int(np.searchsorted(np.cumsum(size), share * size.sum()) + 1)

    def sentence(self) -> str:
        units = ""
        if self.units is not None:
            by_unit = self.units["mean"].mean("target")
            layer, unit = np.unravel_index(int(np.abs(by_unit.values).argmax()), by_unit.shape)
            units = (
                f" The largest neuron is {neuron_name(layer, unit)} ({by_unit.values[layer, unit]:+.2f}), and "
                f"{self._units_needed():,} of {by_unit.size:,} neurons make up 90% of the sum of absolute means."
            )
        off = small(self.worst, 1)
        return f"{self.headline()}{units} The parts add up to each problem's lead within {off} logits."

    def headline(self) -> str:
        """A sentence with the lead and its three largest parts."""
        mean = self.parts["mean"].fillna(0.0).mean("target")
        order = np.argsort(-np.abs(mean.values), kind="stable")[:3]
        told = ", ".join(f"{mean.part.values[i]} {mean.values[i]:+.2f}" for i in order)
        return (
            f"{self.name}: the right digit leads {self.rival} by {float(self.lead.mean()):.2f} logits, averaged over "
            f"targets. The largest direct contributions come from {told}."
        )

    def to_dataframe(self) -> pd.DataFrame:
        """One row per part and target, followed by one per unit and target."""
        frame = self.parts.to_dataframe().reset_index().dropna(subset=["mean"])
        if self.units is None:
            return frame
        units = self.units.to_dataframe().reset_index()
        units["part"] = [neuron_name(layer, unit) for layer, unit in zip(units.layer, units.unit, strict=True)]
        return pd.concat((frame, units.assign(kind="unit", head=-1, role="")), ignore_index=True)


def compute_direct_logit_attribution(
    values: Float[np.ndarray, "part target n"],
    parts: pd.DataFrame,
    units: Float[np.ndarray, "layer unit target n"] | None,
    lead: Float[np.ndarray, "target n"],
    targets: list[str],
    name: str,
    rival: str,
    provenance: Provenance,
) -> DirectLogitAttribution:
    """Means, spreads and intervals of attributed logits.

    Args:
        values: every part's logits; NaN where a part does not exist for a target.
        parts: one row per part with :data:`interp.probes.lens.residual_contributions.PARTS_AXES`.
        units: logits of the MLPs' units; their sums are among the parts already.
        lead: the model's own difference, to which a problem's parts must add up.

    Raises:
        UserError: the parts do not add up to the lead, or a lead is not finite.
    """
    require_finite({"the logit difference": lead})
    worst = float(np.abs(np.nansum(values, 0, dtype=np.float64) - lead).max())
    if not worst <= TOLERANCE * max(1.0, float(np.abs(lead).max())):  # "not <=" also refuses NaN
        raise UserError(
            f"The parts do not add up to the logit difference (by {small(worst)} logits): the model has a part that "
            "this attribution does not know, or rounds to half precision, which model.to(torch.float32) does not."
        )
    coords = {axis: ("part", parts[axis].to_numpy()) for axis in PARTS_AXES[1:]}
    coords |= {"part": parts.part.to_numpy(), "target": targets}
    axes = ("part", "target")
    return DirectLogitAttribution(
        name,
        _moments(values, axes, provenance.resampling_seed).assign_coords(coords),
        None
        if units is None
        else _moments(units, ("layer", "unit", "target"), provenance.resampling_seed).assign_coords(
            layer=np.arange(len(units)), unit=np.arange(units.shape[1]), target=targets
        ),
        xr.DataArray(values, dims=(*axes, "example"), coords=coords),
        xr.DataArray(lead.mean(-1), dims=("target",), coords={"target": targets}),
        rival,
        worst,
        provenance,
    )


def moments(values: Float[np.ndarray, "*cell n"], seed: int, resamples: int = 1000) -> dict[str, np.ndarray]:
    """The mean of each cell over problems with its bootstrap interval, and its standard deviation."""
    low, high = bootstrap_interval(values, seed, resamples)
    return {"mean": values.mean(-1), "spread": values.std(-1), "low": low, "high": high}


def _moments(values: Float[np.ndarray, "*cell n"], axes: tuple[str, ...], seed: int) -> xr.Dataset:
    return xr.Dataset({name: (axes, value) for name, value in moments(values, seed).items()})


def _by_neurons(found: DirectLogitAttribution) -> Estimate:
    kinds = found._by_kind()
    lead = float(found.lead.mean())
    if not lead > 0:
        raise UserError("The right digit has no lead to attribute.")
    parts = tuple(Estimate(float(value) / lead, name=str(kind)) for kind, value in kinds.items())
    return Estimate(float(kinds.iloc[0]) / lead, note=f"written by {kinds.index[0]}", parts=parts)


@probe(
    "Who writes the answer, by role and neuron?",
    needs=[sums],
    scalar=Scalar("largest direct part of the lead", "ratio", _by_neurons, 0.05, asked_by=()),
)
def direct_logit_attribution(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    rival: Any = "others",
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> DirectLogitAttribution:
    """Direct logit attribution of every answer digit by role and by unit; see the module.

    Args:
        model: this project's, or a stock one that :func:`models.importers.stock.from_transformer_lens` can express.
        task: what its tokens mean; default ``model.task``.
        problems: problems to look at; by default ``n`` uniform ones, drawn with ``seed``.
        rival: "others", "carry" or "all", or one token per example and digit target [n, target].

    Cost: one pass and one product [n target, d_model] by [d_model, d_mlp] per layer; the intervals of many units take
    longest.

    Raises:
        UserError: post-norm (the parts do not add up), training mode, an unknown rival, or a rival that is the right
        digit.
    """
    task = resolve_task(model, task)
    name, model = model_name(model), from_transformer_lens(model, task)
    sample = draw(task, problems, n, seed)
    targets = digit_targets(task, columns=isinstance(rival, str) and rival == "carry")
    right = task.targets(sample.problems)[:, targets]
    coefficients, over = choose_rivals(task, sample.problems, targets, right, rival, model.config.n_logits)
    with torch.no_grad():
        values, parts, units, lead = attributed(model, task, sample.tokens, targets, coefficients)
    labels = target_labels(task, targets)
    return compute_direct_logit_attribution(values, parts, units, lead, labels, name, over, sample.provenance)


_MOST = 24  # parts and units that are shown; the table has all


@drawing(DirectLogitAttribution)
def attribution_view(result: DirectLogitAttribution) -> Picture:
    """Mean contribution of the largest parts to every target's lead, and the largest units next to it."""
    size = np.nan_to_num(np.abs(result.parts["mean"].values)).max(1)
    largest = np.sort(np.argsort(-size, kind="stable")[: min(_MOST, int((size > 0).sum()))])  # in model order
    table = result.parts.isel(part=largest)
    title = f"parts: {len(largest)} of {len(size)}, mean over problems (logits)"
    at = "target", "", title, table["mean"].values, table.part.values, table.target.values, " ", "signed"
    views: list[View] = [Grid(*at, low=table.low.values, high=table.high.values)]
    if result.units is not None:
        by_target = result.units["mean"].values.reshape(-1, result.units.sizes["target"])
        mean = by_target.mean(1)
        order = np.argsort(-np.abs(mean), kind="stable")[:_MOST]
        names = [
            neuron_name(i, j) for i, j in zip(*np.unravel_index(order, result.units["mean"].shape[:2]), strict=True)
        ]
        series = Series("", names, mean[order], by_target[order].min(1), by_target[order].max(1))
        title = f"units: {len(order)} of {len(mean):,}"
        views.append(Points("", "mean over targets (interval: range)", title, [series], lines=(Line(0),), across=True))
    note = f"Direct effects on the lead over {result.rival}; the norm's scale is frozen; blank: no such position"
    return Picture(views, title=result.headline(), note=note)
