"""Logits of chosen positions of a long sequence, without the square attention pattern.

The whole forward keeps [head, query, key] for every pair of positions: 1.7 GB a head at 20,904 tokens. Here the model's
own components compute the queries asked for, a few at a time, and keys end at the last of them. Keys and values are
made anew for each piece, which is little beside its scores.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.errors import UserError
from models.transformer import ArithmeticTransformer
from models.unaltered import require_unaltered

SCORES_AT_ONCE = 2**21  # batch x head x query x key: what stays in the processor's cache
FEWEST_QUERIES = 16  # a product for fewer rows costs as much


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
        UserError: a model with norms, several layers or FIRE, or with hooks or the like, which would see pieces.
    """
    require_unaltered(model, "A block of queries")
    cfg = model.config
    if cfg.n_layers > 1 or cfg.normalization_type is not None or cfg.positional_embedding_type == "fire":
        raise UserError("Only one-layer models without norms and without FIRE can be read so.")
    weights = model.effective_weights()
    block: Any = model.blocks[0]
    residual = model.embed_tokens(tokens, weights, position_ids)
    step = max(FEWEST_QUERIES, scores_at_once // (len(tokens) * cfg.n_heads * tokens.shape[1]))
    logits = []
    for chunk in rows.split(step):
        stream, seen = residual[:, chunk], residual[:, : int(chunk[-1]) + 1]
        stream = stream + block.attn(stream, seen, seen, weights, query_positions=chunk)
        if cfg.d_mlp:
            stream = stream + block.mlp(stream, weights)
        logits.append(model.unembed(stream, weights))
    return torch.cat(logits, 1)
