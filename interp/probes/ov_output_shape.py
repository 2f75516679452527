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
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float, Int

from interp.core.controls import NO_CONTROL, untrained_models
from interp.core.drawings import drawing
from interp.core.estimate import Estimate
from interp.core.probe import Scalar, digits, probe
from interp.core.results import Provenance, Result
from interp.core.runs import passes
from interp.core.samples import N_PROBLEMS, draw
from interp.core.significance import permutation_p
from interp.core.task_checks import resolve_task
from interp.core.views import Curves, Line, Picture, Series
from models.calls.argument_kinds import Count, GivenProblems, Seed
from models.errors import UserError
from models.number_format import in_percent, p_value
from models.tasks import Task, TaskLike
from models.transformer import HookedModel, head_name, in_block, require_unaltered

UNTRAINED = 2  # copies
_NOTHING = 1e-5  # size below which a head writes no digit (float32 rounding)


@dataclass(frozen=True, eq=False)
class OvOutputShape(Result):
    """Digit effects. ``table`` is a Dataset over (layer, head): ``size``, ``linear``, ``line``, ``shuffled_high``,
    ``p_value``, ``untrained`` (mean of the copies' ``linear``). ``line_of`` [layer, head, digit]: coordinate of each
    digit along the first principal direction, in units of its standard deviation, rising with the digit.
    ``copies``: how many untrained copies there were."""

    table: xr.Dataset
    line_of: xr.DataArray
    provenance: Provenance
    copies: int = 0

    def sentence(self) -> str:
        texts = []
        for layer in self.table.layer.values.tolist():
            for head in self.table["head"].values.tolist():
                cell = self.table.sel(layer=layer, head=head)
                if np.isnan(cell.linear):
                    texts.append(f"{head_name(layer, head)} writes nothing about the digit")
                    continue
                texts.append(
                    f"what {head_name(layer, head)} writes for a digit is {in_percent(float(cell.linear))} linear in "
                    f"its value (permuted digits reach {in_percent(float(cell.shuffled_high))}, "
                    f"{p_value(float(cell.p_value))})"
                )
        control = float(self.table.untrained)
        blank = "untrained heads write nothing about the digit" if self.copies else NO_CONTROL
        if len(texts) > 4:
            texts = [*texts[:4], f"{len(texts) - 4} more heads in .to_dataframe()"]
        texts.append(blank if np.isnan(control) else f"untrained heads reach {in_percent(control)}")
        said = "; ".join(texts)
        return said[:1].upper() + said[1:] + "."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer and head."""
        return super().to_dataframe().assign(n=self.provenance.n)


def compute_ov_output_shape(
    effect: Float[np.ndarray, "layer head base d_model"],
    provenance: Provenance,
    untrained: float = float("nan"),
    resamples: int = 999,
    copies: int = 0,
) -> OvOutputShape:
    """Shape of the digits' effects.

    Args:
        effect: what each head writes for each digit; the mean over digits is removed here.
        provenance: where the digits come from; its seed draws the permutations.
        untrained: mean ``linear`` of the ``copies`` control models.
    """
    rng = np.random.default_rng(provenance.resampling_seed)
    layers, heads, base = effect.shape[:3]
    if base < 3:
        raise UserError(f"Any {base} digits lie on a line; this needs a base of 3 or more.")
    centred = effect - effect.mean(2, keepdims=True)
    size = np.sqrt((centred**2).sum(-1).mean(-1))
    digit = (np.arange(base) - (base - 1) / 2) / np.sqrt((base**2 - 1) / 12)
    orders = np.stack([rng.permutation(base) for _ in range(resamples)])
    names = ("linear", "line", "shuffled_high", "p_value")
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
    table["untrained"] = untrained
    lines = xr.DataArray(line_of, dims=(*axes, "digit"), coords=coords | {"digit": np.arange(base)})
    return OvOutputShape(table, lines, provenance, copies)


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


def _most_linear(found: OvOutputShape) -> Estimate:
    cells = found.table.linear.stack(of=("layer", "head")).dropna("of")
    if not cells.size:
        raise UserError("No head writes anything about the digit.")
    parts = [
        Estimate(float(value), name=head_name(int(layer), int(head)))
        for (layer, head), value in zip(cells.of.values.tolist(), cells.values, strict=True)
    ]
    best = max(parts, key=lambda part: part.value)
    return Estimate(best.value, note=best.name, parts=tuple(parts))


@probe(
    "Do heads write a digit linearly in its value?",
    needs=[digits],
    scalar=Scalar("most linear head", "share", _most_linear, 0.01, asked_by=()),
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
    task = resolve_task(model, task)
    sample = draw(task, problems, n, seed)
    control = [
        compute_ov_output_shape(
            digit_effects(copy, sample.tokens, task), sample.provenance, resamples=1
        ).table.linear.values
        for copy in untrained_models(model, UNTRAINED, seed)
    ]
    known = np.array(control)[~np.isnan(control)]  # NaN: a copy's head that writes nothing
    expected = float(known.mean()) if len(known) else float("nan")
    effects = digit_effects(model, sample.tokens, task)
    return compute_ov_output_shape(effects, sample.provenance, expected, copies=len(control))


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
    kept = result.table.linear.values[~np.isnan(result.table.linear.values)]
    least, most = (in_percent(end, 0) for end in (kept.min(), kept.max()))
    note = "Along each head's first principal direction; percentages are of the whole variance over the digits"
    title = f"What heads write for a digit is {least} to {most} linear in its value"
    return Picture(views, min(4, len(views)), title, note, "y")
