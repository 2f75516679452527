"""Where a head looks while it adds many numbers: the paper's Figure 7, and the numbers behind the picture.

These are measured on problems of T_A(digits, operands), with the right response in place, for every layer and head:

    share       attention on the two tokens whose digits are added ("sum": a_i[k], b_{i-1}[k]), and on the two that
                decide the carry ("carry": digit k-1 of both), averaged over problems and the targets that have them
    agreement   how often the two heaviest keys, without BOS, are exactly those two
    keys        tokens attended to in one prediction, without BOS: weights above 0.01, and exp(entropy)

Averages mislead: a head that chooses between the two digits by their value has the same mean picture as one that gives
each a weight of one half. So every mean has its spread over problems next to it: quantiles of ``share``, and
``choice``, the standard deviation over problems of the weight on the operand's token (0 for the construction, 0.5 for a
head that picks one of the two at even odds).

Controls: ``shuffled``, the share of random key sets with as many tokens of the query and of the response (its 97.5%
quantile and a p-value over draws, of the mean pattern), and ``untrained``, the share in freshly initialised copies.

Limits: sampled; teacher-forced; position ids start at 1. The interval is Student's over problems, after averaging over
the targets of each. Attention is not information flow; :mod:`interp.papers.position_coupling.causal` shows what a
pattern is good for.

Source: Position Coupling (ICLR 2025), section 4.4, Figure 7, and appendix D.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from interp.core.controls import untrained_models
from interp.core.frames import select
from interp.core.model import HookedModel
from interp.core.probe import OnPage, probe, task_of
from interp.core.results import Provenance, Result
from interp.core.stats import mean_intervals, permutation_p
from interp.papers.position_coupling.keys import NEEDED, KeysOf, sample_of
from interp.probes.key_sets import KeySets, Patterns, known_mean, measure_rows, read_patterns
from models.errors import UserError
from models.tasks.multi_addition import MultiOperandAddition

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class NeededAttention(Result):
    """Attention on the tokens that the algorithm needs.

    ``table`` is a Dataset over (layer, head, role):

    * ``share``, ``low``, ``high``: mean over problems and targets, 95% interval over problems; ``quantiles``
      [..., quantile] of single rows (a problem and target each)
    * ``off_bos``: the share of the attention that is not on BOS
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
    shape: tuple[int, ...]  # operands, digits; () of other tasks
    provenance: Provenance

    def head_sentence(self, layer: int, head: int) -> str:
        """One head in words."""
        row, counts = self.row(layer, head)
        role = str(row.role.values[int(np.nanargmax(row.share.values))])
        cell = row.sel(role=role)
        return (
            f"L{layer}H{head} puts {float(cell.share):.3f} [{float(cell.low):.3f}, {float(cell.high):.3f}] of its "
            f"attention on the tokens of the {'digits to be added' if role == 'sum' else role} (shuffled tokens "
            f"{float(cell.shuffled):.3f}), {float(counts.bos):.3f} on BOS; its heaviest keys are exactly those in "
            f"{float(cell.agreement):.1%} of rows, the weight of the operand's varies by {float(cell.choice):.2f} over "
            f"problems, and {float(counts['keys']):.1f} tokens weigh more than 0.01"
        )

    def row(self, layer: int, head: int) -> tuple[xr.Dataset, xr.Dataset]:
        """(``table``, ``heads``) of one head. Raises UserError if it does not exist."""
        return select(self.table, layer=layer, head=head), select(self.heads, layer=layer, head=head)

    def strongest(self, count: int) -> list[tuple[int, int]]:
        """(layer, head) of the heads with the largest share on either pair of tokens."""
        share = self.table.share.max("role")
        order = np.argsort(-share.values.ravel(), kind="stable")[:count]
        return [divmod(int(i), share.sizes["head"]) for i in order]

    def sentence(self) -> str:
        heads = sorted(self.strongest(4))
        return "; ".join(self.head_sentence(*head) for head in heads) + "."

    def to_dataframe(self) -> pd.DataFrame:
        """One row per layer, head and role."""
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
    shape: tuple[int, ...],
    provenance: Provenance,
    untrained: Float[np.ndarray, "copy layer head role"] | None = None,
    draws: int = 199,
) -> NeededAttention:
    """The measures from whole patterns.

    Args:
        patterns: chunks of problems, whose rows sum to 1; queries and keys are the task's input positions.
        keys: the key sets of the task's shape.
        shape: (operands, digits), for titles; () for other tasks.
        provenance: what the problems are.
        untrained: mean shares in control models.
        draws: how many shuffled key sets to draw.

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
    shuffled = keys.shuffled(draws, provenance.seed or 0)
    by_role: dict[str, list[np.ndarray]] = {}
    for role in range(len(keys.roles)):
        measured = _of_role(found, keys, role) | _of_shuffled(mean[:, :, list(keys.queries)], keys, role, shuffled)
        for name, value in measured.items():
            by_role.setdefault(name, []).append(value)
    axes: dict[str, Any] = {"layer": np.arange(mean.shape[0]), "head": np.arange(mean.shape[1])}
    dims = ("layer", "head")
    table = xr.Dataset(
        {
            name: ((*dims, "role", *(["quantile"] if name == "quantiles" else [])), np.stack(values, 2))
            for name, values in by_role.items()
        },
        coords=axes | {"role": list(keys.roles), "quantile": list(QUANTILES)},
    )
    control = np.full((1, 1, 1, len(keys.roles)), np.nan) if untrained is None else untrained
    table["untrained"] = ("role", control.mean((0, 1, 2)))
    table["untrained_max"] = ("role", control.max((0, 1, 2)))
    counts: dict[str, Any] = {}
    for name in ("bos", "keys", "effective"):
        values = found[name][..., keys.defined[0]]
        intervals = mean_intervals(known_mean(values.astype(np.float64)))
        counts |= dict(zip((name, f"{name}_low", f"{name}_high"), intervals, strict=True))
        counts[f"{name}_std"] = _nanstd(values).mean(-1)
    with_target, with_role = (*dims, "target"), (*dims, "target", "role")
    targets: dict[str, Any] = {name: (with_target, found[name].mean(0)) for name in ("bos", "keys")}
    targets |= {"share": (with_role, found["share"].mean(0)), "share_std": (with_role, found["share"].std(0))}
    targets["agreement"] = (with_role, found["top"].mean(0))
    place = np.arange(len(keys.key_labels))
    grid = axes | {"query": place, "key": place, "label": ("key", list(keys.key_labels))}
    return NeededAttention(
        table,
        xr.Dataset({name: (dims, value) for name, value in counts.items()}, coords=axes),
        xr.Dataset(targets, coords=axes | {"target": list(keys.target_labels), "role": list(keys.roles)}),
        xr.DataArray(mean, dims=(*dims, "query", "key"), coords=grid),
        xr.DataArray(std, dims=(*dims, "query", "key"), coords=grid),
        shape,
        provenance,
    )


def _nanstd(values: np.ndarray) -> np.ndarray:
    kept = ~np.isnan(values)
    count = np.maximum(kept.sum(0), 1)
    mean = np.where(kept, values, 0).sum(0) / count
    return np.sqrt((np.where(kept, values - mean, 0) ** 2).sum(0) / count)


def _of_role(found: dict[str, np.ndarray], keys: KeySets, role: int) -> dict[str, np.ndarray]:
    """The measures of one role's keys [layer, head], and the quantiles of their share [layer, head, quantile]."""
    where = keys.defined[role]
    share, top, first, single = (found[name][..., where, role] for name in ("share", "top", "first", "operand"))
    both_sides = (keys.member[role] & ~keys.in_query).any()
    mean, low, high = mean_intervals(known_mean(share.astype(np.float64)))
    agreement, agreement_low, agreement_high = mean_intervals(known_mean(top.astype(np.float64)))
    return {
        "share": mean,
        "low": low,
        "high": high,
        "off_bos": mean / np.maximum(1 - found["bos"][..., where].mean((0, -1)), 1e-9),
        "agreement": agreement,
        "agreement_low": agreement_low.clip(0, 1),
        "agreement_high": agreement_high.clip(0, 1),
        "first": first.mean((0, -1)),
        "choice": (single if both_sides else share).std(0).mean(-1),
        "quantiles": np.moveaxis(np.quantile(share, QUANTILES, axis=(0, 3)), 0, -1),
    }


def _of_shuffled(
    mean: Float[np.ndarray, "layer head target key"], keys: KeySets, role: int, shuffled: np.ndarray
) -> dict[str, np.ndarray]:
    """Mean and 97.5% quantile of the share of shuffled key sets, and how often one matches the role's."""
    where = keys.defined[role]
    rows, drawn = mean[:, :, where], shuffled[:, role, where].astype(float)
    null = np.einsum("lhtk,dtk->dlh", rows, drawn, optimize=True) / where.sum()
    observed = np.einsum("lhtk,tk->lh", rows, keys.member[role, where].astype(float)) / where.sum()
    high = np.quantile(null, 0.975, axis=0)
    return {"shuffled": null.mean(0), "shuffled_high": high, "p_value": permutation_p(observed, null)}


def mean_shares(model: HookedModel, tokens: Any, keys: KeySets) -> Float[np.ndarray, "layer head role"]:
    """The mean share on the keys of each role, for control models."""
    share = np.concatenate([measure_rows(rows, keys)["share"] for rows in read_patterns(model, tokens, keys.queries)])
    return np.stack([share[..., where, role].mean((0, -1)) for role, where in enumerate(keys.defined)], -1)


@probe(
    "Do heads look at the tokens that the answer needs?",
    by_default=[task_of(MultiOperandAddition)],
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
    keys: KeysOf | None = None,
) -> NeededAttention:
    """The attention picture of a hooked model on multi-operand addition; see the module.

    Args:
        model: any model with TransformerLens hooks; only ``cfg`` and ``attn.hook_pattern`` are used.
        task: the task in the shape to use, for example ``model.task.at(11, 11)`` (operands, digits).
        problems: the problems to use; by default ``n`` are drawn from T_A with ``seed``.
        untrained: control models; by default four freshly initialised copies, none if the model has no parameters.
        keys: the key sets of a task, for other tasks and roles (:func:`interp.probes.key_sets.keys_by_role`).

    Raises:
        UserError: another task without ``keys``, ids beyond the model's tables, fewer than 2 problems, a model that
            diverged.
    """
    task, sample, sets = sample_of(model, task, keys, problems, n, seed)
    if keys is None:
        sets = sets.only(NEEDED)
    few = sample.tokens[:64]
    shares = [mean_shares(control, few, sets) for control in untrained_models(model, untrained, 4, seed)]
    return compute_needed_attention(
        read_patterns(model, sample.tokens),
        sets,
        () if keys else task.shape,
        sample.provenance,
        np.stack(shares) if shares else None,
    )
