"""The layers of a partial forward: fused attention, no patterns, no hooks, and only the positions asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from models.lens.lens_contract import LensContract
from models.transformer.config import TransformerConfig
from models.transformer.parts.attention import Attention
from models.transformer.parts.block import Block
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import rotate
from models.transformer.parts.shapes import PerKey, PerQuery, QueryStream, ScoreBias, Stream, Tokens
from models.transformer.parts.tropical import attend
from models.transformer.parts.weights import Weights
from models.transformer.unaltered import alterations

#: Queries of one problem at a time, on a CPU without gradients; 64 to 256 were equally fast.
QUERIES_AT_ONCE = 128

#: ``bias(start, stop)`` is what FIRE or a window adds to the scores of those queries, [..., stop - start, stop].
Bias = Callable[[int, int], Tensor]


def stands_for(model: object) -> TypeGuard[LensContract]:
    """Whether :func:`logits_from` returns what ``model(tokens)`` returns, without skipping any change to the model.

    This is for questions about a model as it is; training uses :func:`supports`, and has dropout here as well.
    """
    return isinstance(model, LensContract) and supports(model) and not alterations(model)


#: Switches of :data:`models.transformer.config.LATER` that the functions of one block here follow.
KNOWN = frozenset({"parallel_attn_mlp", "rotary_dim", "rotary_frequencies", "rotary_scaling_factor"})


def supports(model: LensContract) -> bool:
    """Whether :func:`logits_from` computes this config. It does not combine AddLM's scores or top-k with FIRE, a window
    or dropout, and lacks all parts that only public AdderBoard models have."""
    cfg = model.config
    if {*cfg.later_switches} - {"attn_window", *KNOWN}:
        return False
    return not _tropical(cfg) or (
        cfg.positional_embedding_type != "fire" and not cfg.dropout and cfg.attn_window is None
    )


def _tropical(cfg: TransformerConfig) -> bool:
    return cfg.attn_scores != "dot" or cfg.attn_top_k is not None


def blocks_of(model: LensContract) -> list[Block]:
    """The model's blocks, of which torch says only that they are modules."""
    return cast("list[Block]", [*model.blocks])


# ---- for positions from ``start`` on


def embed(
    model: LensContract,
    tokens: Tokens,
    weights: Weights,
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
    start: int = 0,
) -> Stream:
    """Token and position embeddings of tokens at positions ``start``, ``start + 1``, ..."""
    residual = model.embed.get(weights, "W_E")[tokens]
    kind = model.config.positional_embedding_type
    if kind == "standard":
        return residual + model.pos_embed.get(weights, "W_pos")[start : start + tokens.shape[1]]
    if kind == "coupled":
        ids = model.task.position_ids(tokens) if position_ids is None else position_ids
        return residual + model.pos_embed(tokens[: len(ids)], ids, weights)
    return residual


def attention_input(
    block: Block, resid_pre: Float[Tensor, "*batch pos d_model"], weights: Weights
) -> Float[Tensor, "*batch pos d_model"]:
    """What the heads read from the residual stream."""
    return norm_output(block.ln1, resid_pre, weights) if block.config.has_pre_norm else resid_pre


def keys_and_values(
    block: Block, normalized: Stream, weights: Weights, start: int = 0
) -> tuple[Float[Tensor, "batch pos head d_head"], Float[Tensor, "batch pos head d_head"]]:
    """What later queries attend to, from the (normalised) input of the block at positions from ``start`` on."""
    cfg = block.config
    k, v = (heads(block.attn, normalized, weights, letter) for letter in "KV")
    if cfg.positional_embedding_type == "rotary":
        places = torch.arange(start, start + k.shape[1], device=k.device)
        k = rotate(k, cfg, places)
    return k, v


def finish_block(
    block: Block,
    resid_pre: QueryStream,
    normalized: QueryStream,
    k: PerKey,
    v: PerKey,
    weights: Weights,
    bias: Bias | None,
) -> QueryStream:
    """The block's output for queries at the last positions of the keys: attention, MLP and the norms after them."""
    cfg, attn = block.config, block.attn
    n_query, n_key = resid_pre.shape[1], k.shape[1]
    start = n_key - n_query
    q = heads(attn, normalized, weights, "Q")
    if cfg.positional_embedding_type == "rotary":
        q = rotate(q, cfg, torch.arange(start, n_key, device=q.device))
    if _tropical(cfg):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        z = attend(q, k, v, cfg.attn_scores, cfg.score_scale, cfg.attn_top_k).transpose(1, 2)
    else:
        z = (_plain_attention if _trains_briefly(k) else _fused_attention)(block, q, k, v, bias)
    resid_mid = add_attention(block, resid_pre, heads_output(attn, z, weights), weights)
    return through_mlp(block, resid_pre, resid_mid, weights)


def heads_output(attn: Attention, z: Float[Tensor, "*batch query head d_head"], weights: Weights) -> QueryStream:
    """What all heads together write, ``hook_attn_out``."""
    w_o = attn.get(weights, "W_O").flatten(0, 1)  # [head * d_head, d_model]
    return attn.add_bias(z.flatten(-2) @ w_o, weights, "b_O")


def add_attention(block: Block, resid_pre: QueryStream, attn_out: QueryStream, weights: Weights) -> QueryStream:
    """The stream after attention, ``hook_resid_mid``."""
    resid = resid_pre + dropout(block, attn_out)
    return norm_output(block.ln1_post, resid, weights) if block.config.has_post_norm else resid


def mlp_input(block: Block, resid_pre: QueryStream, resid_mid: QueryStream, weights: Weights) -> QueryStream:
    """What the MLP reads from the residual stream: the stream after attention, or before it in a parallel block."""
    stream = resid_pre if block.config.parallel_attn_mlp else resid_mid
    return norm_output(block.ln2, stream, weights) if block.config.has_pre_norm else stream


def through_mlp(block: Block, resid_pre: QueryStream, resid_mid: QueryStream, weights: Weights) -> QueryStream:
    """The stream after the MLP, ``hook_resid_post``, from the streams before and after attention."""
    if not block.config.d_mlp:
        return resid_mid
    hidden = block.mlp.hidden(mlp_input(block, resid_pre, resid_mid, weights), weights)
    return add_mlp(block, resid_mid, dropout(block, block.mlp.write(hidden, weights)), weights)


def add_mlp(block: Block, resid_mid: QueryStream, mlp_out: QueryStream, weights: Weights) -> QueryStream:
    """The stream after an MLP that writes ``mlp_out``."""
    resid = resid_mid + mlp_out
    return norm_output(block.ln2_post, resid, weights) if block.config.has_post_norm else resid


def _fused_attention(block: Block, q: PerQuery, k: PerKey, v: PerKey, bias: Bias | None) -> PerQuery:
    """torch's attention, for queries at the last positions of the keys."""
    cfg, n_query, n_key = block.config, q.shape[1], k.shape[1]
    start = n_key - n_query
    mask: Tensor | None = None
    if bias is not None or (start and n_query > 1):
        # Make the mask of numbers: each call would convert booleans, which costs as much as some products.
        mask = _future(n_query, start, q)
        mask = mask if bias is None else (bias(start, n_key) + mask).to(q.dtype)
    return F.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)),
        attn_mask=mask,
        is_causal=mask is None and n_query > 1,
        scale=1 / cfg.score_scale,
        dropout_p=cfg.dropout if block.training else 0.0,
    ).transpose(1, 2)


def _trains_briefly(k: PerKey) -> bool:
    """Whether plain products are the fastest: on a CPU, with gradients, up to 256 keys.

    Measured on 32 x 4 heads of 128 keys, forward and backward: 10 ms in bfloat16 where torch's attention takes 26 or
    (fused) 44, and 21 ms in float32 for its 25.
    """
    return torch.is_grad_enabled() and k.device.type == "cpu" and k.shape[1] <= 256


def _plain_attention(block: Block, q: PerQuery, k: PerKey, v: PerKey, bias: Bias | None) -> PerQuery:
    """:func:`_fused_attention` by plain products, which keep the pattern for the backward pass."""
    (batch, n_query, n_heads, _), n_key, scale = q.shape, k.shape[1], block.config.score_scale
    start = n_key - n_query
    mask = _future(n_query, start, q)
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    if bias is None:
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / scale)
    else:
        scores = torch.bmm(q, k.transpose(1, 2)).unflatten(0, (batch, n_heads)) / scale
        scores = (scores + (bias(start, n_key) + mask).to(q.dtype)).flatten(0, 1)
    pattern = dropout(block, scores.softmax(-1))
    return torch.bmm(pattern, v).unflatten(0, (batch, n_heads)).transpose(1, 2)


def _future(n_query: int, start: int, like: Tensor) -> Float[Tensor, "query key"]:
    """What is added to the scores of queries at ``start``, ``start + 1``, ...: -inf at keys after them."""
    return torch.full((n_query, start + n_query), float("-inf"), dtype=like.dtype, device=like.device).triu(1 + start)


def dropout(component: LensContract | Block, x: Tensor) -> Tensor:
    """Dropout as the hooked forward has it: in training mode, on embeddings and on what sublayers write."""
    rate = component.config.dropout
    return F.dropout(x, rate) if rate and component.training else x


def unembed(model: LensContract, residual: Stream, weights: Weights) -> Float[Tensor, "batch pos d_vocab"]:
    """Logits, through the final norm if there is one."""
    if model.config.has_final_norm:
        residual = norm_output(model.ln_final, residual, weights)
    return model.unembed.add_bias(residual @ model.unembed.get(weights, "W_U"), weights, "b_U")


def norm_output(norm: Norm, x: Stream, weights: Weights) -> Stream:
    """The norm's output: LayerNorm by torch's fused kernel."""
    cfg = norm.config
    whole = x.dtype in (torch.float32, torch.float64)
    if cfg.norm_eps_outside or (cfg.normalization_type != "LN" and not whole):
        return norm(x, weights)
    gain, bias = norm.get(weights, "w"), weights.get(f"{norm.name}.b")
    if cfg.normalization_type != "LN":  # the module's own formula, without its hook points
        return x / (x.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * gain
    return F.layer_norm(x, (cfg.d_model,), gain, bias, norm.eps)


def block_output(block: Block, resid_pre: Tensor, weights: Weights, bias: Bias | None, start: int) -> QueryStream:
    """The block's output at positions from ``start`` on."""
    normalized = attention_input(block, resid_pre, weights)
    k, v = keys_and_values(block, normalized, weights)
    stop = resid_pre.shape[1]
    if torch.is_grad_enabled() or resid_pre.device.type != "cpu":  # no loop: torch.compile would fix its lengths
        return finish_block(block, resid_pre[:, start:], normalized[:, start:], k, v, weights, bias)
    step = stop - start
    step = -(-step // -(-step // QUERIES_AT_ONCE))  # equal parts of at most this many
    parts = [
        finish_block(block, resid_pre[:, a:b], normalized[:, a:b], k[:, :b], v[:, :b], weights, bias)
        for a, b in ((a, min(a + step, stop)) for a in range(start, stop, step))
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def heads(attn: Attention, x: Tensor, weights: Weights, letter: str) -> Float[Tensor, "batch pos head d_head"]:
    """Queries, keys or values of all heads by one matrix product."""
    w = attn.get(weights, f"W_{letter}")  # [head, d_model, d_head]
    n_heads, d_model, d_head = w.shape
    out = (x @ w.transpose(0, 1).reshape(d_model, n_heads * d_head)).unflatten(-1, (n_heads, d_head))
    return attn.add_bias(out, weights, f"b_{letter}")


# ---- FIRE


class FireBiasTable:
    """FIRE's bias for many batches and layers: computed once, and again when longer sequences come.

    The hooked forward's [query, key, 32] would take half a gigabyte at 2,013 tokens; rows are taken a few at a time.
    """

    def __init__(self, model: LensContract, weights: Weights):
        self.model, self.weights = model, weights
        self.table: Tensor | None = None  # [head, pos, pos]

    def __call__(self, start: int, stop: int) -> ScoreBias:
        if self.table is None or self.table.shape[1] < stop:
            n = stop if self.table is None else max(stop, self.table.shape[1] * 3 // 2)
            rows = max(1, 2**17 // n)
            parts = [self.model.fire.rows(a, min(a + rows, n), n, self.weights) for a in range(0, n, rows)]
            self.table = torch.cat(parts, 1)
        return self.table[:, start:stop, :stop]


def fire_bias(model: LensContract, weights: Weights, n_pos: int) -> Bias:
    """FIRE's bias for one sequence length; differentiable where gradients are on."""
    if not torch.is_grad_enabled():
        return FireBiasTable(model, weights)
    whole = model.fire(n_pos, weights)
    return lambda start, stop: whole[:, start:stop, :stop]
