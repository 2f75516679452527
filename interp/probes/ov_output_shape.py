"""What a head writes about the digit that it attends to: the shape of its output over the digits.

A head that adds writes the digit's value, so its outputs lie on a line. For any head, with v the value vector at a
digit's token (after the model's own norm),

    v(token)   = position effect + digit effect, by least squares over all tokens that hold a digit
    effect[d]  = W_O^T (digit effect of d)                                                     [base, d_model]
    linear     = share of effect's variance over the digits that is linear in d
    line       = share of the variance along the first principal direction

``size`` is the root mean square length of ``effect``, in units of the residual stream that the head writes into.

The controls are permuted digits (expected share 1 / (base - 1), with its 97.5% quantile and a p-value) and untrained
copies.

Limits. Directions and sizes cannot be compared between models: bases differ, and norms after the attention rescale the
sum of all heads (in a post-norm model what is written is not what arrives). Means over positions hide writing that
depends on where the digit stands. A head that writes nothing about the digit has size 0 and no shape (NaN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int

from interp.core.controls import untrained_models
from interp.core.drawings import drawing
from interp.core.probe import Scalar, digits, probe
from interp.core.results import Provenance
from interp.core.runs import passes
from interp.core.samples import N_PROBLEMS, prepare
from interp.core.significance import permutation_p
from interp.core.table_result import Measure, TableResult, largest
from interp.core.views import Curves, Line, Picture, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import counted, in_percent, p_value
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, head_name, in_block, require_unaltered

UNTRAINED = 2  # copies
MEASURES = (Measure("linear", "share", ("shuffled", "untrained"), "linear in the digit"), Measure("size"))
_NOTHING = 1e-5  # size below which a head writes no digit (float32 rounding)


@dataclass(frozen=True, eq=False, kw_only=True)
class OvOutputShape(TableResult):
    """Digit effects of every head. ``table`` is a Dataset over (layer, head): ``size``, ``linear``, ``line``,
    ``linear_shuffled`` (the 97.5% quantile of permuted digits), ``p_value``, ``linear_untrained`` (the mean of
    untrained copies). ``line_of`` [layer, head, digit]: coordinate of each digit along the first principal direction,
    in units of its standard deviation, rising with the digit."""

    line_of: xr.DataArray


def compute_ov_output_shape(
    effect: Float[np.ndarray, "layer head base d_model"],
    provenance: Provenance,
    untrained: float = float("nan"),
    resamples: int = 999,
) -> OvOutputShape:
    """Shape of the digits' effects.

    Args:
        effect: what each head writes for each digit; the mean over digits is removed here.
        provenance: where the digits come from; its seed draws the permutations.
        untrained: mean ``linear`` of untrained copies.
    """
    rng = np.random.default_rng(provenance.resampling_seed)
    layers, heads, base = effect.shape[:3]
    if base < 3:
        raise UserError(f"Any {base} digits lie on a line; this needs a base of 3 or more.")
    centred = effect - effect.mean(2, keepdims=True)
    size = np.sqrt((centred**2).sum(-1).mean(-1))
    digit = (np.arange(base) - (base - 1) / 2) / np.sqrt((base**2 - 1) / 12)
    orders = np.stack([rng.permutation(base) for _ in range(resamples)])
    names = ("linear", "line", "linear_shuffled", "p_value")
    data = {name: np.full((layers, heads), np.nan) for name in names}
    line_of = np.full((layers, heads, base), np.nan)
    for place in np.ndindex(layers, heads):
        if size[place] < _NOTHING:
            continue
        rows = centred[place]
        linear = linear_share(rows, digit[None])[0]
        null = linear_share(rows, digit[orders])
        u, s, _ = np.linalg.svd(rows, full_matrices=False)
        rising = np.sign(u[:, 0] @ digit) or 1.0
        line_of[place] = rising * u[:, 0] * np.sqrt(base)
        values = (linear, s[0] ** 2 / (s**2).sum(), np.quantile(null, 0.975), permutation_p(linear, null))
        for name, value in zip(names, values, strict=True):
            data[name][place] = value
    coords: dict[str, Any] = {"layer": np.arange(layers), "head": np.arange(heads)}
    axes = ("layer", "head")
    table = xr.Dataset({name: (axes, value) for name, value in (data | {"size": size}).items()}, coords=coords)
    table["linear_untrained"] = untrained
    lines = xr.DataArray(line_of, dims=(*axes, "digit"), coords=coords | {"digit": np.arange(base)})
    found = OvOutputShape("", table, provenance, axes, MEASURES, line_of=lines)
    if np.isnan(data["linear"]).all():
        return found.saying("No head writes anything about the digit.")
    best = found.largest("linear")
    among = f", the most of {counted(len(best.parts), 'head')} that write about it" if len(best.parts) > 1 else ""
    p = p_value(float(table.p_value.values.ravel()[np.nanargmax(data["linear"])]))
    return found.saying(
        f"What {best.name} writes for a digit is {best} linear in its value{among} (permuted digits reach "
        f"{in_percent(best.control or 0.0)}, {p})."
    )


def linear_share(
    rows: Float[np.ndarray, "base d_model"], digit: Float[np.ndarray, "draw base"]
) -> Float[np.ndarray, " draw"]:
    """Share of the variance of centred rows that a multiple of ``digit`` (mean 0, variance 1) explains."""
    return ((digit @ rows / len(rows)) ** 2).sum(-1) / ((rows**2).sum() / len(rows))


def digit_effects(
    model: HookedModel, tokens: Int[torch.Tensor, "n pos"], task: Task
) -> Float[np.ndarray, "layer head base d_model"]:
    """Output of each head for each digit at the key: least squares of position plus digit effects on the values."""
    cfg, written, base = model.cfg, task.digit_values(tokens), task.domain.base
    names = [in_block(layer, "attn.hook_v") for layer in range(cfg.n_layers)]
    values: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for _, _, kept in passes(model, tokens, keep=names):
        for name in names:
            values[name].append(kept[name].float().cpu())
    digits = (written >= 0).all(0) & (written != written[0]).any(0)  # positions that hold various digits
    one_hot = torch.nn.functional.one_hot(written[:, digits], base).double()
    indicator = (one_hot - one_hot.mean(0)).flatten(0, 1)  # [token, digit]
    solve = torch.linalg.pinv(indicator.T @ indicator) @ indicator.T
    result = []
    for name, W_O in zip(names, model.W_O.detach().double().cpu(), strict=True):
        v = torch.cat(values[name])[:, digits].double()
        v = (v - v.mean(0)).flatten(0, 1)  # [token, head, d_head]
        effect = torch.einsum("ct,thd->hcd", solve, v)
        result.append(torch.einsum("hcd,hdm->hcm", effect, W_O))
    return torch.stack(result).numpy()


@probe(
    "Do heads write a digit linearly in its value?",
    needs=[digits],
    scalar=Scalar("most linear head", "share", largest("linear"), 0.01, asked_by=()),
)
def ov_output_shape(
    model: HookedModel,
    *,
    task: TaskLike | None = None,
    problems: GivenProblems = None,
    n: Count = N_PROBLEMS,
    seed: Seed = 0,
) -> OvOutputShape:
    """What every head of a hooked model writes about the digit it attends to; see the module.

    Controls are two freshly initialised copies, or none where nothing is drawn at random.

    Args:
        model: any model with TransformerLens hooks and ``W_O``; every head must have values of its own.
        task: what its tokens mean, in the shape to look at; default ``model.task``.
        problems: problems to look at; by default ``n`` are drawn with ``seed``.

    Raises:
        UserError: a task without digits, ids beyond the model's tables, fewer than 2 problems, or an altered model
            (with hooks, for example), whose heads may not write what ``W_O`` says.
    """
    require_unaltered(model, "What heads write")
    sample = prepare(model, task, problems, n, seed)
    control = [
        compute_ov_output_shape(
            digit_effects(copy, sample.tokens, sample.task), sample.provenance, resamples=1
        ).table.linear.values
        for copy in untrained_models(model, UNTRAINED, seed)
    ]
    known = np.array(control)[~np.isnan(control)]  # NaN: a copy's head that writes nothing
    expected = float(known.mean()) if len(known) else float("nan")
    effects = digit_effects(model, sample.tokens, sample.task)
    return compute_ov_output_shape(effects, sample.provenance, expected)


@drawing(OvOutputShape)
def writes_view(result: OvOutputShape) -> Picture:
    """Coordinates of the digits along each head's main direction, and how linear they are."""
    heads = [(i, h) for i in result.table.layer.values.tolist() for h in result.table["head"].values.tolist()][:8]
    views = []
    for i, h in heads:
        row = result.table.sel(layer=i, head=h)
        linear = float(row.linear)
        said = "no digit written" if np.isnan(linear) else f"{in_percent(linear, 0)} linear"
        series = Series("", result.line_of.digit.values, result.line_of.sel(layer=i, head=h).values)
        y = "" if len(views) % 4 else "main direction, sd"
        views.append(Curves("digit attended to", y, f"{head_name(i, h)}: {said}", [series], lines=(Line(0),)))
    note = "Along each head's first principal direction; percentages are of the whole variance over the digits"
    return Picture(views, min(4, len(views)), note=note, shared="y")
