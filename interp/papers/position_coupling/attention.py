"""Where a head looks while it adds many numbers: the paper's Figure 7, and the numbers that the picture stands for.

Over problems of T_A(digits, operands), with the right response in place, for every layer and head:

    share       attention on the two tokens whose digits are added ("sum": a_i[k], b_{i-1}[k]), and on the two that
                decide the carry ("carry": digit k-1 of both), averaged over problems and the targets that have them
    agreement   how often the two heaviest keys, BOS apart, are exactly those two
    keys        tokens attended to in one prediction, BOS apart: weights above 0.01, and exp(entropy)

Averages mislead: a head that chooses between the two digits by their value has the same mean picture as one that
weighs both one half. So the spread over problems stands beside every mean: quantiles of ``share``, and ``choice``, the
standard deviation over problems of the weight on the operand's token (0 for the construction, 0.5 for a head that
picks one of the two at even odds).

Controls: ``shuffled``, the share of random key sets with as many tokens of the query and of the response (its 97.5%
quantile and a p-value over draws, of the mean pattern), and ``untrained``, the share in freshly initialised copies.

Limits. Sampled; teacher-forced; position ids start at 1. The interval is Student's over problems, with targets averaged
within each first. Attention is not information flow: see :mod:`interp.papers.position_coupling.causal` for what a
pattern is good for.

Source: Position Coupling (ICLR 2025), section 4.4, Figure 7, and appendix D.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.core.controls import untrained_models
from interp.core.model import HookedModel
from interp.core.probe import OnPage, probe, task_of
from interp.core.results import Provenance, Result
from interp.core.stats import mean_interval, permutation_p
from interp.papers.position_coupling.keys import KeySets, draw_coupled, key_sets, resolve_coupled_task
from interp.papers.position_coupling.patterns import Patterns, measure_rows, read_patterns
from models.errors import UserError
from models.tasks.multi_addition import MultiOperandAddition

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class NeededAttention(Result):
    """Attention on the tokens that the algorithm needs.

    ``table`` is a Dataset over (layer, head, role):

    * ``share``, ``low``, ``high``: mean over problems and targets, 95% interval over problems; ``quantiles``
      [..., quantile] of single rows (a problem and target each)
    * ``off_bos``: the share of what is not on BOS
    * ``agreement``, ``agreement_low``, ``agreement_high``; ``first``: how often the heaviest key is one of the set
    * ``choice``: standard deviation over problems of the weight on the operand's token, mean over targets (without the
      scratchpad: of the share)
    * ``shuffled``, ``shuffled_high``, ``p_value``; ``untrained`` and ``untrained_max`` over copies and heads (or NaN)

    ``heads`` over (layer, head): ``bos``, ``keys``, ``effective`` with ``_low``, ``_high`` and ``_std``, at the targets
    that have a "sum". ``targets`` over (layer, head, target[, role]): means and standard deviations over problems.
    ``pattern`` [layer, head, query, key] is the mean over problems of the whole pattern, ``pattern_std`` its spread.
    """

    table: xr.Dataset
    heads: xr.Dataset
    targets: xr.Dataset
    pattern: xr.DataArray
    pattern_std: xr.DataArray
    shape: tuple[int, int]  # operands, digits
    provenance: Provenance

    def head_sentence(self, layer: int, head: int) -> str:
        """One head in words."""
        row, counts = self.row(layer, head)
        role = str(row.role.values[int(np.nanargmax(row.share.values))])
        cell = row.sel(role=role)
        return (
            f"L{layer}H{head} puts {float(cell.share):.3f} [{float(cell.low):.3f}, {float(cell.high):.3f}] of its "
            f"attention on the tokens of the {'digits to be added' if role == 'sum' else 'carry'} (shuffled tokens "
            f"{float(cell.shuffled):.3f}), {float(counts.bos):.3f} on BOS; its heaviest keys are exactly those in "
            f"{float(cell.agreement):.1%} of rows, the weight of the operand's varies by {float(cell.choice):.2f} over "
            f"problems, and {float(counts['keys']):.1f} tokens weigh more than 0.01"
        )

    def row(self, layer: int, head: int) -> tuple[xr.Dataset, xr.Dataset]:
        """(``table``, ``heads``) of one head. Raises UserError if there is none such."""
        for name, value in (("layer", layer), ("head", head)):
            if value not in self.table[name].values:
                raise UserError(f"There is no {name} {value}; there are {self.table.sizes[name]}, counted from 0.")
        return self.table.sel(layer=layer, head=head), self.heads.sel(layer=layer, head=head)

    def strongest(self, count: int) -> list[tuple[int, int]]:
        """(layer, head) of those with the largest share on either pair of tokens."""
        share = self.table.share.max("role")
        order = np.argsort(-share.values.ravel(), kind="stable")[:count]
        return [divmod(int(i), share.sizes["head"]) for i in order]

    def sentence(self) -> str:
        heads = sorted(self.strongest(4))
        return "; ".join(self.head_sentence(*head) for head in heads) + "."

    def to_dataframe(self) -> pd.DataFrame:
        """A row a layer, head and role."""
        flat = self.table.drop_dims("quantile")
        for quantile in QUANTILES:
            values = self.table.quantiles.sel(quantile=quantile, drop=True)
            flat[f"q{round(100 * quantile):02d}"] = values
        frame = flat.to_dataframe().reset_index()
        frame = frame.merge(self.heads[["bos", "keys", "effective"]].to_dataframe().reset_index())
        return frame.assign(n=self.provenance.n)


def compute_needed_attention(
    patterns: Iterable[Patterns],
    keys: KeySets,
    shape: tuple[int, int],
    provenance: Provenance,
    untrained: Float[np.ndarray, "copy layer head role"] | None = None,
    draws: int = 199,
) -> NeededAttention:
    """The measures from whole patterns.

    Args:
        patterns: chunks of problems, rows sum to 1; queries and keys are the task's input positions.
        keys: the key sets of the task's shape.
        shape: (operands, digits), for titles.
        provenance: what the problems are.
        untrained: mean shares in control models.
        draws: of the shuffled key sets.

    Raises:
        UserError: no problem, or patterns of another shape.
    """
    collected: dict[str, list[np.ndarray]] = {}
    total: np.ndarray | float = 0.0
    squares: np.ndarray | float = 0.0
    n = 0
    for chunk in patterns:
        if chunk.shape[-1] != len(keys.key_labels) or chunk.shape[-2] != chunk.shape[-1]:
            raise UserError(f"Patterns of {chunk.shape[-2:]} do not fit a sequence of {len(keys.key_labels)} tokens.")
        for name, values in measure_rows(chunk[:, :, :, list(keys.queries)], keys).items():
            collected.setdefault(name, []).append(values)
        total = total + chunk.sum(0, dtype=np.float64)
        squares = squares + np.einsum("nlhqk,nlhqk->lhqk", chunk, chunk, dtype=np.float64)
        n += len(chunk)
    if not n:
        raise UserError("There is no attention pattern to average.")
    found = {name: np.concatenate(values) for name, values in collected.items()}
    mean = np.asarray(total) / n
    std = np.sqrt(np.maximum(np.asarray(squares) / n - mean**2, 0.0))
    layers, heads = mean.shape[:2]
    roles = [role for role in keys.roles if role in ("sum", "carry")]
    axes: dict[str, Any] = {"layer": np.arange(layers), "head": np.arange(heads)}
    table = xr.Dataset(_shares(found, keys, roles), coords=axes | {"role": roles, "quantile": list(QUANTILES)})
    table = table.assign(_shuffled(mean[:, :, list(keys.queries)], keys, roles, draws, provenance.seed or 0))
    control = np.full((1, layers, heads, len(roles)), np.nan) if untrained is None else untrained
    table["untrained"] = ("role", control.mean((0, 1, 2)))
    table["untrained_max"] = ("role", control.max((0, 1, 2)))
    where = keys.defined[0]
    counts: dict[str, Any] = {}
    for name in ("bos", "keys", "effective"):
        values = found[name][..., where]
        counts[name], counts[f"{name}_low"], counts[f"{name}_high"] = _over_problems(values)
        counts[f"{name}_std"] = _nanstd(values).mean(-1)
    per_target = {name: (("layer", "head", "target"), found[name].mean(0)) for name in ("bos", "keys")}
    with_role = ("layer", "head", "target", "role")
    share = found["share"][..., : len(roles)]
    per_target |= {"share": (with_role, share.mean(0)), "share_std": (with_role, share.std(0))}
    per_target["agreement"] = (with_role, found["top"][..., : len(roles)].mean(0))
    length = len(keys.key_labels)
    grid = axes | {"query": np.arange(length), "key": np.arange(length), "label": ("key", list(keys.key_labels))}
    dims = ("layer", "head", "query", "key")
    return NeededAttention(
        table,
        xr.Dataset({name: (("layer", "head"), value) for name, value in counts.items()}, coords=axes),
        xr.Dataset(per_target, coords=axes | {"target": list(keys.target_labels), "role": roles}),
        xr.DataArray(mean, dims=dims, coords=grid),
        xr.DataArray(std, dims=dims, coords=grid),
        shape,
        provenance,
    )


def _over_problems(values: Float[np.ndarray, "n layer head target"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and interval [layer, head] over problems of the mean over targets; NaN rows are left out."""
    kept = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means = np.where(kept, values, 0).sum(-1, dtype=np.float64) / kept.sum(-1)
    result = np.full((3, *values.shape[1:3]), np.nan)
    for place in np.ndindex(*values.shape[1:3]):
        column = means[(slice(None), *place)]
        column = column[~np.isnan(column)]
        if len(column):
            result[(slice(None), *place)] = mean_interval(column)
    return result[0], result[1], result[2]


def _nanstd(values: np.ndarray) -> np.ndarray:
    kept = ~np.isnan(values)
    count = np.maximum(kept.sum(0), 1)
    mean = np.where(kept, values, 0).sum(0) / count
    return np.sqrt((np.where(kept, values - mean, 0) ** 2).sum(0) / count)


def _shares(found: dict[str, np.ndarray], keys: KeySets, roles: list[str]) -> dict[str, Any]:
    parts: dict[str, list[np.ndarray]] = {}
    for index in range(len(roles)):
        where = keys.defined[index]
        share = found["share"][..., where, index]
        single = found["operand"][..., where, index]
        both_sides = (keys.member[index] & ~keys.in_query).any()
        mean, low, high = _over_problems(share)
        agreement, agreement_low, agreement_high = _over_problems(found["top"][..., where, index])
        values = {
            "share": mean,
            "low": low,
            "high": high,
            "off_bos": mean / np.maximum(1 - found["bos"][..., where].mean((0, -1)), 1e-9),
            "agreement": agreement,
            "agreement_low": agreement_low.clip(0, 1),
            "agreement_high": agreement_high.clip(0, 1),
            "first": found["first"][..., where, index].mean((0, -1)),
            "choice": (single if both_sides else share).std(0).mean(-1),
            "quantiles": np.moveaxis(np.quantile(share, QUANTILES, axis=(0, 3)), 0, -1),
        }
        for name, value in values.items():
            parts.setdefault(name, []).append(value)
    axes = ("layer", "head", "role")
    return {
        name: ((*axes, "quantile"), np.stack(values, 2)) if name == "quantiles" else (axes, np.stack(values, -1))
        for name, values in parts.items()
    }


def _shuffled(
    mean: Float[np.ndarray, "layer head target key"], keys: KeySets, roles: list[str], draws: int, seed: int
) -> dict[str, Any]:
    """Mean and 97.5% quantile of the share of shuffled key sets, and how often one does as well as the needed."""
    shuffled = keys.shuffled(draws, seed)
    nulls, ps = [], []
    for index in range(len(roles)):
        where = keys.defined[index]
        rows = mean[:, :, where]
        null = np.einsum("lhtk,dtk->dlh", rows, shuffled[:, index, where].astype(float), optimize=True) / where.sum()
        observed = np.einsum("lhtk,tk->lh", rows, keys.member[index, where].astype(float)) / where.sum()
        nulls.append(null)
        ps.append([[permutation_p(value, null[:, i, j]) for j, value in enumerate(r)] for i, r in enumerate(observed)])
    null = np.stack(nulls, -1)
    axes = ("layer", "head", "role")
    return {
        "shuffled": (axes, null.mean(0)),
        "shuffled_high": (axes, np.quantile(null, 0.975, axis=0)),
        "p_value": (axes, np.moveaxis(np.array(ps), 0, -1)),
    }


def mean_shares(model: HookedModel, tokens: Any, keys: KeySets) -> Float[np.ndarray, "layer head role"]:
    """Mean share on the "sum" and "carry" tokens, for control models."""
    kept = [measure_rows(rows, keys)["share"] for rows in read_patterns(model, tokens, keys.queries)]
    share = np.concatenate(kept)[..., :2]
    return np.stack([share[..., keys.defined[i], i].mean((0, -1)) for i in range(2)], -1)


@probe(
    "Do heads look at the tokens that the answer needs?",
    needs=[task_of(MultiOperandAddition)],
    page=OnPage({"n": 64}, ("", "shares")),
)
def needed_attention(
    model: HookedModel,
    *,
    task: Any = None,
    problems: Any = None,
    n: int = 1_000,
    seed: int = 0,
    untrained: Sequence[HookedModel] | None = None,
) -> NeededAttention:
    """The attention picture of a hooked model on multi-operand addition; see the module.

    Args:
        model: any model with TransformerLens hooks; only ``cfg`` and ``attn.hook_pattern`` are used.
        task: in the shape to look at, for example ``model.task.at(11, 11)`` (operands, digits).
        problems: problems to look at; otherwise ``n`` are drawn from T_A with ``seed``.
        untrained: control models; four freshly initialised copies unless given, none if the model has no parameters.

    Raises:
        UserError: another task, ids beyond the model's tables, fewer than 2 problems, a model that diverged.
    """
    task = resolve_coupled_task(model, task)
    sample, keys = draw_coupled(task, problems, n, seed), key_sets(task)
    controls = untrained_models(model, untrained, 4, seed)
    few = sample.tokens[: math.ceil(min(len(sample.tokens), 64))]
    shares = np.stack([mean_shares(control, few, keys) for control in controls]) if controls else None
    return compute_needed_attention(read_patterns(model, sample.tokens), keys, task.shape, sample.provenance, shares)
