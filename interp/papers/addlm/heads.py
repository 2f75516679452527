"""What AddLM's heads attend to and what they are needed for: effective keys, what the top-k cut drops, ablation.

For one head and query, with scores before the cut (``hook_attn_scores``), the mask (``hook_top_k_mask``) and the
pattern (``hook_pattern``):

* effective keys, ``exp(-sum_j p_j log p_j)``, at most the number of keys that take part;
* dropped mass, ``1 - sum_{j in mask} softmax(scores)_j``: what a softmax over all earlier keys would have given to the
  keys that the cut leaves out.

Both are averaged over the queries with more than top_k earlier keys, as the others have nothing to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.causal.ablation.runs import mean_activations
from interp.core import runs
from interp.core.results import Provenance, Result
from interp.core.sites import Edit, Site, model_name
from interp.core.stats import mean_interval
from models.errors import UserError
from models.transformer import ArithmeticTransformer

ABLATIONS = ("zero", "mean")


@dataclass(frozen=True, eq=False)
class HeadTable(Result):
    """One row per head. Means over windows (each window's own mean first) with Student-t intervals over windows:
    ``effective_keys``, ``dropped_mass``, ``previous`` (weight on the query's own character and the one before it), and
    the rise of the loss (nats per character) when the head's z is set to ``zero`` or to its ``mean``."""

    model: str
    loss: float
    table: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        worst = self.table.loc[self.table["mean"].idxmax()]
        keys = self.table["effective_keys"]
        return (
            f"The heads of {self.model} attend to {keys.min():.1f} to {keys.max():.1f} effective keys; the cut drops "
            f"{self.table['dropped_mass'].mean():.1%} of the mass on average, and {worst['head']} is needed most "
            f"(mean-ablated, the loss rises by {worst['mean']:.3f} from {self.loss:.3f})."
        )


def window_losses(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "window pos"],
    targets: Int[Tensor, "window pos"],
    edits: Sequence[Edit] = (),
) -> Float[Tensor, " window"]:
    """The mean cross-entropy of each window, in nats per character, under edits (:mod:`interp.core.runs`)."""
    found = runs.passes(model, tokens, edits)
    return torch.cat([mean_losses(logits, targets[rows]) for rows, logits, _ in found])


def mean_losses(
    logits: Float[Tensor, "window pos d_vocab"], targets: Int[Tensor, "window pos"]
) -> Float[Tensor, " window"]:
    """Mean cross-entropy of each window."""
    return F.cross_entropy(logits.transpose(1, 2), targets.to(logits.device), reduction="none").mean(1)


def key_measures(
    scores: Float[Tensor, "batch head query key"],
    pattern: Float[Tensor, "batch head query key"],
    top_k: int | None,
) -> dict[str, Float[Tensor, "batch head"]]:
    """Effective keys, dropped mass and weight on the last two characters, means over queries with more than top_k keys.

    Args:
        scores: the scores before the cut, -inf where masked.
        top_k: None for a model that keeps all keys (its dropped mass is 0); the same queries as for 16 are used.

    Raises:
        UserError: no query has more keys than top_k.
    """
    first = 16 if top_k is None else top_k
    if scores.shape[-2] <= first:
        raise UserError(f"No query of {scores.shape[-2]} has more than {first} earlier keys.")
    entropy = -torch.special.xlogy(pattern, pattern).sum(-1)
    dropped = (scores.softmax(-1) * (pattern == 0)).sum(-1)  # sum the small part, as 1 - kept would be mostly rounding
    near = pattern.diagonal(dim1=-2, dim2=-1).clone()
    near[..., 1:] += pattern.diagonal(-1, -2, -1)
    measures = {"effective_keys": entropy.exp(), "dropped_mass": dropped, "previous": near}
    return {name: value[..., first:].mean(-1) for name, value in measures.items()}


def head_table(
    model: ArithmeticTransformer, tokens: Int[Tensor, "window pos"], targets: Int[Tensor, "window pos"], source: str
) -> HeadTable:
    """Measure every head on windows of text. Cost: two ablations per head, so 2 L H + 1 forward passes.

    Args:
        tokens, targets: the windows and, for each position, the next character.
        source: a description of the windows for the provenance ("windows of the validation part").
    """
    cfg = model.config
    clean = window_losses(model, tokens, targets)
    found = _keys(model, tokens)
    hooks = [f"blocks.{layer}.attn.hook_z" for layer in range(cfg.n_layers)]
    means = mean_activations(model, tokens, hooks)
    rows = []
    for layer in range(cfg.n_layers):
        for head in range(cfg.n_heads):
            row: dict[str, Any] = {"head": f"L{layer}H{head}"}
            for name, values in found.items():
                row[name], row[f"{name}_low"], row[f"{name}_high"] = mean_interval(values[:, layer, head].numpy())
            for kind in ABLATIONS:
                edit = Site(hooks[layer], None, head).put(means[hooks[layer]].mean(0)[head] if kind == "mean" else 0.0)
                change = window_losses(model, tokens, targets, [edit]) - clean
                row[kind], row[f"{kind}_low"], row[f"{kind}_high"] = mean_interval(change.double().numpy())
            rows.append(row)
    provenance = Provenance(len(tokens), None, source)
    name = model_name(model)
    return HeadTable(name, float(clean.mean()), pd.DataFrame(rows), provenance)


def _keys(model: ArithmeticTransformer, tokens: Tensor) -> dict[str, Float[Tensor, "window layer head"]]:
    cfg, parts = model.config, []
    hooks = [[f"blocks.{i}.attn.hook_{name}" for name in ("attn_scores", "pattern")] for i in range(cfg.n_layers)]
    for _, _, kept in runs.passes(model, tokens, keep=[name for pair in hooks for name in pair]):
        layers = [key_measures(kept[scores], kept[pattern], cfg.attn_top_k) for scores, pattern in hooks]
        parts.append({name: torch.stack([layer[name] for layer in layers], 1) for name in layers[0]})
    return {name: torch.cat([part[name] for part in parts]).double() for name in parts[0]}
