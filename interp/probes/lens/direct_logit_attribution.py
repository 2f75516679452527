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

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from interp.core.estimate import Estimate
from interp.core.key_roles import ALL_TARGETS, target_labels
from interp.core.probe import Summary, probe, sums
from interp.core.results import Provenance
from interp.core.runs import require_finite
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.stats import bootstrap_interval
from interp.core.table_result import Measure, TableResult
from interp.core.task_checks import resolve_task
from interp.probes.lens.residual_contributions import attributed, choose_rivals
from interp.probes.lens.residual_points import digit_targets
from models.calls import Count, GivenProblems, Seed
from models.errors import UserError
from models.importers import from_transformer_lens
from models.number_format import number, small
from models.tasks.task_definitions import TaskLike
from models.transformer import HookedModel, model_name, neuron_name

#: How far the parts' sum may be from the model's own lead, as a share of the largest; float32 rounding is far below.
TOLERANCE = 1e-3

KEYS = ("of", "part", "target")
PARTS, NEURONS = "parts", "neurons"


def compute_direct_logit_attribution(
    values: Float[np.ndarray, "part target n"],
    parts: pd.DataFrame,
    units: Float[np.ndarray, "layer unit target n"] | None,
    lead: Float[np.ndarray, "target n"],
    targets: list[str],
    name: str,
    rival: str,
    provenance: Provenance,
) -> TableResult:
    """Means, spreads and intervals of attributed logits; see :func:`direct_logit_attribution`.

    Args:
        values: every part's logits; NaN where a part does not exist for a target.
        parts: one row per part with :data:`interp.probes.lens.residual_contributions.PARTS_AXES`.
        units: logits of the MLPs' units; their sums are among the parts already.
        lead: the model's own difference, to which a problem's parts must add up.

    Raises:
        UserError: the parts do not add up to the lead, or a lead is not finite.
    """
    require_finite({"the logit difference": lead})
    off = np.abs(np.nansum(values, 0, dtype=np.float64) - lead).max(-1)
    if not off.max() <= TOLERANCE * max(1.0, float(np.abs(lead).max())):  # "not <=" also refuses NaN
        raise UserError(
            f"The parts do not add up to the logit difference (by {small(float(off.max()))} logits): the model has a "
            "part that this attribution does not know, or rounds to half precision, which model.to(torch.float32) does "
            "not."
        )
    tables = [_rows(values, parts.assign(of=PARTS), targets, provenance.resampling_seed)]
    if units is not None:
        layer, unit = np.indices(units.shape[:2]).reshape(2, -1)
        names = [neuron_name(*at) for at in zip(layer, unit, strict=True)]
        about = pd.DataFrame({"part": names, "kind": "unit", "layer": layer, "head": -1, "role": "", "of": NEURONS})
        tables.append(_rows(units, about, targets, provenance.resampling_seed))
    table = pd.concat(tables, ignore_index=True)
    leads = dict(zip(targets, lead.mean(-1), strict=True)) | {ALL_TARGETS: lead.mean(-1).mean()}
    deviations = dict(zip(targets, off, strict=True)) | {ALL_TARGETS: off.max()}
    table = table.assign(lead=table["target"].map(leads), deviation=table["target"].map(deviations))
    measure = Measure("contribution", "logits", title=f"part of the lead over {rival}")
    found = TableResult("", table, provenance, KEYS, (measure,))
    whole = table[(table["of"] == PARTS) & (table["target"] == ALL_TARGETS)]
    top = whole.loc[whole["contribution"].abs().idxmax()]
    part, average = measure.estimate(top.to_dict()), leads[ALL_TARGETS]
    place = f"leads {rival} by {number(average)}" if average >= 0 else f"lies below {rival} by {number(-average)}"
    largest = "most" if (whole["contribution"] >= 0).all() else "largest in size"
    return found.saying(
        f"{name}: the right digit {place} logits on average over the answer; {top['part']} contributes {part} to that, "
        f"the {largest} of {len(whole)} parts."
    )


def moments(values: Float[np.ndarray, "*cell n"], name: str, seed: int, resamples: int = 1000) -> dict[str, np.ndarray]:
    """Columns of a measure: the mean over problems with its bootstrap interval, and the standard deviation."""
    low, high = bootstrap_interval(values, seed, resamples)
    return {name: values.mean(-1), f"{name}_low": low, f"{name}_high": high, "spread": values.std(-1)}


def _rows(values: Float[np.ndarray, "*part target n"], about: pd.DataFrame, targets: list[str], seed: int) -> Any:
    """The rows of parts at each target, and averaged over all, where a part that does not exist counts as 0."""
    by_target = moments(values, "contribution", seed)
    over_all = moments(np.nan_to_num(values).mean(-2), "contribution", seed)
    over_all["contribution"] = np.nan_to_num(by_target["contribution"]).mean(-1)
    tables = []
    for columns, names in ((by_target, targets), (over_all, [ALL_TARGETS])):
        rows = about.loc[about.index.repeat(len(names))].assign(target=np.tile(names, len(about)))
        tables.append(rows.assign(**{name: column.ravel() for name, column in columns.items()}))
    return pd.concat(tables).dropna(subset=["contribution"])


def by_kind(found: TableResult) -> pd.Series:
    """What each kind of part contributes, averaged over targets."""
    rows = found.table[(found.table["of"] == PARTS) & (found.table["target"] == ALL_TARGETS)]
    return rows.groupby("kind")["contribution"].sum().sort_values(ascending=False)


def _share_by_kind(found: TableResult) -> Estimate:
    lead = float(found.table.loc[found.table["target"] == ALL_TARGETS, "lead"].iloc[0])
    if not lead > 0:
        raise UserError("The right digit has no lead to attribute.")
    parts = tuple(Estimate(float(value) / lead, name=str(kind)) for kind, value in by_kind(found).items())
    return replace(parts[0], note=f"written by {parts[0].name}", parts=parts)


@probe(
    "Who writes the answer, by role and neuron?",
    needs=[sums],
    summary=Summary("largest direct part of the lead", "ratio", _share_by_kind, 0.05, asked_by=()),
)
def direct_logit_attribution(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    rival: Any = "others",
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> TableResult:
    """Direct logit attribution of every answer digit by role and by unit; see the module.

    A row of the table has the mean ``contribution`` of one of the ``parts`` or ``neurons`` (``of``) to one target's
    lead, or to all of them on average, in logits, with its bootstrap interval and ``spread`` over problems; the part's
    ``kind`` ("embed", "pos", "head", "mlp", "bias", "unit"), ``layer``, ``head`` (-1: none) and ``role``; the target's
    mean ``lead``; and the largest ``deviation`` of the sum of a problem's parts from its lead. An MLP is one part, the
    sum of its neurons. A part without a position for a target has no row there.

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
    sample = prepare(model, task, problems, n, seed)
    targets = digit_targets(task, columns=isinstance(rival, str) and rival == "carry")
    right = sample.right[:, targets]
    coefficients, over = choose_rivals(task, sample.problems, targets, right, rival, model.config.n_logits)
    with torch.no_grad():
        values, parts, units, lead = attributed(model, task, sample.tokens, targets, coefficients)
    labels = target_labels(task, targets)
    return compute_direct_logit_attribution(values, parts, units, lead, labels, name, over, sample.provenance)
