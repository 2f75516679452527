"""Logits of chosen positions of a long sequence, without the square attention pattern and without hooks.

The hooked forward keeps [head, query, key] for every pair of positions: 1.7 GB a head at 20,904 tokens. Here the
queries are those asked for, a few at a time, and keys end at the last of them. Same formulas, same weights, one layer.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import UserError
from models.transformer import ArithmeticTransformer

SCORES_AT_ONCE = 2**21  # batch x head x query x key: what stays in the processor's cache
FEWEST_QUERIES = 16  # all keys are read again for each block of queries


@torch.no_grad()
def logits_at(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "batch pos"],
    rows: Int[Tensor, " row"],
    position_ids: Int[Tensor, "batch pos level"] | None = None,
    scores_at_once: int = SCORES_AT_ONCE,
) -> Float[Tensor, "batch row d_vocab"]:
    """``model(tokens)[:, rows]`` for a one-layer model without norms, in blocks of queries.

    Args:
        rows: positions in ascending order.
        scores_at_once: how many attention scores to hold at a time, or those of 16 queries if that is more.

    Raises:
        UserError: a model with norms, several layers, or another score than the dot product over all keys.
    """
    cfg = model.config
    plain = cfg.n_layers == 1 and cfg.normalization_type is None and cfg.attn_scores == "dot" and not cfg.attn_top_k
    if not plain or cfg.positional_embedding_type not in ("standard", "coupled", "none"):
        raise UserError("Only one-layer models without norms, with dot-product scores over all keys, can be read so.")
    weights = model.effective_weights()
    block: Any = model.blocks[0]
    attn = block.attn
    residual = model.embed_tokens(tokens, weights, position_ids)
    project = lambda x, name: attn._project(x, weights, name).transpose(1, 2)  # noqa: E731  [batch, head, pos, d_head]
    k, v = project(residual, "K").contiguous(), project(residual, "V").contiguous()
    n_batch, n_pos = tokens.shape
    step = max(FEWEST_QUERIES, scores_at_once // (n_batch * cfg.n_heads * n_pos))
    logits = []
    for chunk in rows.split(step):
        stream = residual[:, chunk]
        seen = int(chunk[-1]) + 1
        scores = project(stream, "Q") @ k[:, :, :seen].transpose(-1, -2) / cfg.score_scale
        future = torch.arange(seen, device=scores.device) > chunk[:, None]
        pattern = scores.masked_fill(future, float("-inf")).softmax(-1)
        z = (pattern @ v[:, :, :seen]).transpose(1, 2)
        out = torch.einsum("bphe,hed->bpd", z, attn.get(weights, "W_O"))
        stream = stream + attn.add_bias(out, weights, "b_O")
        if cfg.d_mlp:
            stream = stream + block.mlp(stream, weights)
        logits.append(model.unembed(stream, weights))
    return torch.cat(logits, 1)
