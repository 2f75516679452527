"""Logits at some positions, without hooks: the same function as the model's forward, at a fraction of its cost.

For scoring and training on long sequences. What is saved: patterns are not kept (fused attention), and the last layer
computes queries, MLP and head only where logits are wanted, half of the tokens of a sum with its scratchpad. The
hooked forward is the definition; the tests hold this one to it, gradients included.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from models.parts.positions import rotate
from models.parts.weights import Weights
from models.tasks.sequences import SequenceTask
from models.transformer import ArithmeticTransformer, Block


def supports(model: ArithmeticTransformer) -> bool:
    """Whether :func:`logits_from` computes this model; it leaves out what only AddLM has, and dropout."""
    cfg = model.config
    return cfg.attn_scores == "dot" and cfg.attn_top_k is None and not cfg.dropout


def logits_from(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "batch pos"],
    first: int,
    weights: Weights,
    position_ids: Int[Tensor, "batch pos level"] | None = None,
) -> Float[Tensor, "batch query d_vocab"]:
    """The model's logits at positions ``first``, ``first + 1``, ... Hooks do not fire.

    Cost for one layer: keys and values at all positions, all else at the queries only.
    """
    cfg = model.config
    residual = model.embed.get(weights, "W_E")[tokens]
    if cfg.positional_embedding_type in ("standard", "coupled"):
        residual = residual + model.pos_embed(tokens, position_ids, weights)
    bias = model.fire(tokens.shape[1], weights) if cfg.positional_embedding_type == "fire" else None
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        start = first if layer == cfg.n_layers - 1 else 0
        residual = _block(block, residual, weights, bias, start)
    if cfg.has_final_norm:
        residual = model.ln_final(residual, weights)
    return model.unembed.add_bias(residual @ model.unembed.get(weights, "W_U"), weights, "b_U")


def _block(
    block: Block, resid_pre: Tensor, weights: Weights, bias: Float[Tensor, "head key key"] | None, start: int
) -> Float[Tensor, "batch query d_model"]:
    """The block's output at positions from ``start`` on."""
    cfg, attn = block.config, block.attn
    normalized = block.ln1(resid_pre, weights) if cfg.has_pre_norm else resid_pre
    resid = resid_pre[:, start:]
    q = _heads(attn, normalized[:, start:], weights, "Q")
    k, v = (_heads(attn, normalized, weights, letter) for letter in "KV")
    if cfg.positional_embedding_type == "rotary":
        q = rotate(q, cfg.rotary_base, cfg.rotary_adjacent_pairs, start)
        k = rotate(k, cfg.rotary_base, cfg.rotary_adjacent_pairs)
    n_query, n_key = q.shape[1], k.shape[1]
    mask: Tensor | None = None
    if bias is not None or start:
        allowed = torch.ones(n_query, n_key, dtype=torch.bool, device=q.device).tril(start)
        mask = allowed if bias is None else bias[:, start:].masked_fill(~allowed, float("-inf")).to(q.dtype)
    z = F.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask, is_causal=mask is None, scale=1 / cfg.score_scale
    )
    w_o = attn.get(weights, "W_O").flatten(0, 1)  # [head * d_head, d_model]
    attn_out = attn.add_bias(z.transpose(1, 2).flatten(2) @ w_o, weights, "b_O")
    resid = resid + attn_out
    if cfg.has_post_norm:
        resid = block.ln1_post(resid, weights)
    if not cfg.d_mlp:
        return resid
    mlp_in = block.ln2(resid, weights) if cfg.has_pre_norm else resid
    resid = resid + block.mlp(mlp_in, weights)
    return block.ln2_post(resid, weights) if cfg.has_post_norm else resid


def _heads(attn: torch.nn.Module, x: Tensor, weights: Weights, letter: str) -> Float[Tensor, "batch pos head d_head"]:
    """Queries, keys or values of all heads by one matrix product."""
    w = attn.get(weights, f"W_{letter}")  # [head, d_model, d_head]
    heads, d_model, d_head = w.shape
    out = (x @ w.transpose(0, 1).reshape(d_model, heads * d_head)).unflatten(-1, (heads, d_head))
    return attn.add_bias(out, weights, f"b_{letter}")


def exact_match(
    model: ArithmeticTransformer,
    task: SequenceTask,
    problems: Int[Tensor, "n operand column"],
    position_offset: int = 0,
    tokens_a_batch: int = 16_384,
) -> Bool[Tensor, " n"]:
    """Whether each problem's whole response (EOS included) is right, teacher-forced; the same as by greedy decoding.

    Args:
        position_offset: added to all ids but 0; the ids then start at ``1 + position_offset``.
        tokens_a_batch: bounds the memory; a batch this size stays in a core's cache for small models.
    """
    sequences, found = task.sequences(problems), []
    rows = max(1, tokens_a_batch // sequences.tokens.shape[1])
    with torch.inference_mode():
        weights = model.effective_weights()
        for part in torch.arange(len(problems)).split(rows):
            tokens, mask = sequences.inputs[part], sequences.mask[part]
            ids = None
            if position_offset:
                ids = task.position_ids(tokens)
                ids = torch.where(ids > 0, ids + position_offset, 0)
            first = int(mask.long().argmax(1).min())
            predicted = logits_from(model, tokens, first, weights, ids).argmax(-1)
            wrong = (predicted != sequences.targets[part, first:]) & mask[:, first:]
            found.append(~wrong.any(1))
    return torch.cat(found)
