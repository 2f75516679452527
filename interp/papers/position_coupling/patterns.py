"""Attention rows of a model on multi-operand addition, read in chunks that fit the memory, and what is said of a row.

For one row p (a head's weights over the keys of one prediction) and the role's key set S:

    share[S]    sum of p over S
    bos         p[BOS]
    keys        how many keys apart from BOS weigh more than 0.01 (the clipping of the paper's Figure 7)
    effective   exp(entropy) of p apart from BOS, renormalised; NaN where BOS has more than 0.99. 2 equal weights: 2
    top[S]      whether the |S| heaviest keys apart from BOS are exactly S
    first[S]    whether the heaviest key apart from BOS is in S
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.model import HookedModel
from interp.core.problems import chunks
from interp.papers.position_coupling.keys import KeySets
from models.errors import UserError

CLIP = 0.01
WEIGHTS_AT_ONCE = 2**24  # attention weights of a chunk, over all heads of a layer

# "_": chunks differ in size, and a check looks at one at random.
Patterns = Float[np.ndarray, "_ layer head query key"]


def read_patterns(
    model: HookedModel, tokens: Int[Tensor, "n pos"], rows: tuple[int, ...] | None = None
) -> Iterator[Float[np.ndarray, "chunk layer head query key"]]:
    """The patterns of every layer, chunk by chunk, of all query positions or only of ``rows``.

    Cost: one forward pass a chunk; memory a few times ``WEIGHTS_AT_ONCE`` weights.
    """
    cfg = model.cfg
    size = max(1, WEIGHTS_AT_ONCE // (cfg.n_heads * cfg.n_layers * tokens.shape[1] ** 2))
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(cfg.n_layers)]
    for batch in chunks(tokens, model, size):
        found: dict[str, np.ndarray] = {}

        def keep(pattern: Tensor, hook: Any, name: str, into: dict[str, np.ndarray]) -> None:
            into[name] = (pattern if rows is None else pattern[:, :, list(rows)]).float().cpu().numpy()

        hooks = [(name, partial(keep, name=name, into=found)) for name in names]
        with torch.no_grad():
            model.run_with_hooks(batch, return_type=None, fwd_hooks=hooks)
        stacked = np.stack([found[name] for name in names], 1)
        if not np.isfinite(stacked).all():
            raise UserError("The attention pattern holds NaN: the model has diverged.")
        yield stacked


def measure_rows(
    rows: Float[np.ndarray, "chunk layer head target key"], keys: KeySets
) -> dict[str, Float[np.ndarray, "chunk layer head target *role"]]:
    """The measures of the module's docstring: ``bos``, ``keys``, ``effective`` [..., target] and ``share``, ``top``,
    ``first``, ``operand`` [..., target, role]. ``operand`` is the share of the set's tokens before the response.
    Rows of roles that are not defined at a target are NaN."""
    if rows.shape[-2:] != keys.visible.shape:
        raise UserError(f"Patterns of {rows.shape[-2:]} (target, key) do not fit key sets of {keys.visible.shape}.")
    off = rows.copy()
    off[..., 0] = 0
    total = off.sum(-1)
    log = np.log(off, out=np.zeros_like(off), where=off > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = np.log(total) - (off * log).sum(-1) / total
    parts: dict[str, list[np.ndarray]] = {"share": [], "top": [], "first": [], "operand": []}
    for member in keys.member:
        defined = member.any(-1)
        least = np.where(member, off, np.inf).min(-1)
        most = np.where(member, off, -1.0).max(-1)
        other = np.where(member, -1.0, off).max(-1)
        values = {
            "share": np.einsum("nlhtk,tk->nlht", rows, member.astype(rows.dtype)),
            "operand": np.einsum("nlhtk,tk->nlht", rows, (member & keys.in_query).astype(rows.dtype)),
            "top": (least > other).astype(float),
            "first": (most > other).astype(float),
        }
        for name, value in values.items():
            parts[name].append(np.where(defined, value, np.nan))
    result = {name: np.stack(values, -1).astype(np.float32) for name, values in parts.items()}
    result["bos"] = rows[..., 0].astype(np.float32)
    result["keys"] = (off > CLIP).sum(-1).astype(np.float32)
    result["effective"] = np.where(total > CLIP, np.exp(entropy), np.nan).astype(np.float32)
    return result
