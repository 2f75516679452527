"""What AddLM's heads attend to and are needed for: effective keys, what the top-k cut drops, ablation.

For one head and query, with scores before the cut (``hook_attn_scores``), the mask (``hook_top_k_mask``) and the
pattern (``hook_pattern``):

* effective keys, ``exp(-sum_j p_j log p_j)``, at most the number of keys that take part;
* dropped mass, ``1 - sum_{j in mask} softmax(scores)_j``: what a softmax over all earlier keys would have given to the
  keys that the cut leaves out.

Both are averaged over the queries that have more earlier keys than top_k, for which there is something to choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core.results import Provenance, Result
from interp.core.stats import mean_interval
from models.errors import UserError
from models.transformer import ArithmeticTransformer

ABLATIONS = ("zero", "mean")
_AT_ONCE = 16  # windows


@dataclass(frozen=True, eq=False)
class HeadTable(Result):
    """One row a head. Means over windows (each window's own mean first) with Student-t intervals over windows:
    ``effective_keys``, ``dropped_mass``, ``previous`` (weight on the query's own character and the one before it), and
    the rise of the loss (nats a character) when the head's z is set to ``zero`` or to its ``mean``."""

    model: str
    loss: float
    rows: pd.DataFrame
    provenance: Provenance

    def sentence(self) -> str:
        worst = self.rows.loc[self.rows["mean"].idxmax()]
        keys = self.rows["effective_keys"]
        return (
            f"The heads of {self.model} attend to {keys.min():.1f} to {keys.max():.1f} effective keys; the cut drops "
            f"{self.rows['dropped_mass'].mean():.1%} of the mass on average, and {worst['head']} is needed most "
            f"(mean-ablated, the loss rises by {worst['mean']:.3f} from {self.loss:.3f})."
        )

    def to_dataframe(self) -> pd.DataFrame:
        return self.rows


def window_losses(
    model: ArithmeticTransformer, tokens: Int[Tensor, "window pos"], targets: Int[Tensor, "window pos"], hooks: list
) -> Float[Tensor, " window"]:
    """Mean cross-entropy of each window, in nats a character, with hooks attached."""
    with torch.no_grad():
        parts = []
        for rows, right in zip(tokens.split(_AT_ONCE), targets.split(_AT_ONCE), strict=True):
            logits = model.run_with_hooks(rows, fwd_hooks=hooks)
            parts.append(F.cross_entropy(logits.transpose(1, 2), right, reduction="none").mean(1))
        return torch.cat(parts)


def key_measures(
    scores: Float[Tensor, "batch head query key"],
    pattern: Float[Tensor, "batch head query key"],
    top_k: int | None,
) -> dict[str, Float[Tensor, "batch head"]]:
    """Effective keys, dropped mass and weight on the last two characters, means over queries with more than top_k keys.

    Args:
        scores: before the cut, -inf where masked.
        top_k: None for a model that keeps all keys (its dropped mass is 0); the same queries as for 16 are used.

    Raises:
        UserError: no query has more keys than top_k.
    """
    first = 16 if top_k is None else top_k
    if scores.shape[-2] <= first:
        raise UserError(f"No query of {scores.shape[-2]} has more than {first} earlier keys.")
    entropy = -torch.special.xlogy(pattern, pattern).sum(-1)
    dropped = (scores.softmax(-1) * (pattern == 0)).sum(-1)  # the sum of the small part: 1 - kept would be rounding
    near = pattern.diagonal(dim1=-2, dim2=-1).clone()
    near[..., 1:] += pattern.diagonal(-1, -2, -1)
    measures = {"effective_keys": entropy.exp(), "dropped_mass": dropped, "previous": near}
    return {name: value[..., first:].mean(-1) for name, value in measures.items()}


def head_table(
    model: ArithmeticTransformer, tokens: Int[Tensor, "window pos"], targets: Int[Tensor, "window pos"], source: str
) -> HeadTable:
    """Measures of every head on windows of text. Cost: two ablations a head, so 2 L H + 1 forward passes.

    Args:
        tokens, targets: the windows and, for each position, the character that follows.
        source: what the windows are, for the record ("windows of the validation part").
    """
    cfg = model.config
    clean = window_losses(model, tokens, targets, [])
    found = _keys(model, tokens)
    means = _means(model, tokens)
    rows = []
    for layer in range(cfg.n_layers):
        for head in range(cfg.n_heads):
            row: dict[str, Any] = {"head": f"L{layer}H{head}"}
            for name, values in found.items():
                row[name], row[f"{name}_low"], row[f"{name}_high"] = mean_interval(values[:, layer, head].numpy())
            for kind in ABLATIONS:
                value = torch.zeros_like(means[layer, head]) if kind == "zero" else means[layer, head]
                hook = (f"blocks.{layer}.attn.hook_z", _set_head(head, value))
                change = window_losses(model, tokens, targets, [hook]) - clean
                row[kind], row[f"{kind}_low"], row[f"{kind}_high"] = mean_interval(change.double().numpy())
            rows.append(row)
    provenance = Provenance(len(tokens), None, source)
    name = model.name_or_path or "a model"
    return HeadTable(name, float(clean.mean()), pd.DataFrame(rows), provenance)


def _keys(model: ArithmeticTransformer, tokens: Tensor) -> dict[str, Float[Tensor, "window layer head"]]:
    cfg, parts = model.config, []
    for rows in tokens.split(_AT_ONCE):
        with torch.no_grad():
            _, cache = model.run_with_cache(rows, names_filter=lambda n: n.endswith(("attn_scores", "pattern")))
        layers = [
            key_measures(
                cache[f"blocks.{i}.attn.hook_attn_scores"], cache[f"blocks.{i}.attn.hook_pattern"], cfg.attn_top_k
            )
            for i in range(cfg.n_layers)
        ]
        parts.append({name: torch.stack([layer[name] for layer in layers], 1) for name in layers[0]})
    return {name: torch.cat([part[name] for part in parts]).double() for name in parts[0]}


def _means(model: ArithmeticTransformer, tokens: Tensor) -> Float[Tensor, "layer head d_head"]:
    """Mean z of every head over all windows and positions."""
    sums = []
    for rows in tokens.split(_AT_ONCE):
        with torch.no_grad():
            _, cache = model.run_with_cache(rows, names_filter=lambda n: n.endswith("hook_z"))
        sums.append(torch.stack([cache["z", i].sum((0, 1)) for i in range(model.config.n_layers)]))
    return torch.stack(sums).sum(0) / tokens.numel()


def _set_head(head: int, value: Float[Tensor, " d_head"]) -> Callable[..., Tensor]:
    def hook(z: Tensor, hook: Any) -> Tensor:
        mine = torch.arange(z.shape[2]) == head
        return torch.where(mine[:, None], value, z)

    return hook
