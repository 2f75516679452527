"""Logits of some positions, and whether whole responses are right."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import UserError
from models.fast.layers import (
    QUERIES_AT_ONCE,
    Bias,
    attention_input,
    block_output,
    blocks_of,
    dropout,
    embed,
    finish_block,
    fire_bias,
    keys_and_values,
    unembed,
)
from models.lens.lens_contract import LensContract
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.transformer.parts.block import Block
from models.transformer.parts.positions import WindowBias
from models.transformer.parts.shapes import PositionIds, Stream, Tokens
from models.transformer.parts.weights import Weights
from models.transformer.unaltered import require_unaltered

SCORES_AT_ONCE = 2**21  # batch x head x query x key that stay in the processor's cache
FEWEST_QUERIES = 16  # a product for fewer rows costs just as much


def logits_from(
    model: LensContract,
    tokens: Tokens,
    first: int,
    weights: Weights,
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
    bias: Bias | None = None,
) -> Float[Tensor, "batch query d_vocab"]:
    """The model's logits at positions ``first``, ``first + 1``, ...

    Cost for one layer: keys and values at all positions, all else at the queries only.

    Args:
        position_ids: ids to use in place of the task's; one row serves a whole batch.
        bias: a :class:`FireBiasTable` that several calls share.
    """
    last, residual, bias = _before_last(model, tokens, weights, position_ids, bias)
    return unembed(model, block_output(last, residual, weights, bias, first), weights)


def _before_last(
    model: LensContract, tokens: Tensor, weights: Weights, position_ids: Tensor | None, bias: Bias | None
) -> tuple[Block, Stream, Bias | None]:
    """The last block, the stream that it reads, and FIRE's bias or the window's, if the model has one."""
    residual = dropout(model, embed(model, tokens, weights, position_ids))
    if bias is None and model.config.positional_embedding_type == "fire":
        bias = fire_bias(model, weights, tokens.shape[1])
    if bias is None:
        bias = model.window_bias(tokens, position_ids)
    *earlier, last = blocks_of(model)
    for block in earlier:
        residual = block_output(block, residual, weights, bias, 0)
    return last, residual, bias


@torch.no_grad()
def logits_at(
    model: LensContract,
    tokens: Tokens,
    rows: Int[Tensor, " row"],
    position_ids: PositionIds | None = None,
    scores_at_once: int = SCORES_AT_ONCE,
) -> Float[Tensor, "batch row d_vocab"]:
    """``model(tokens)[:, rows]`` for a one-layer model without norms, in blocks of queries.

    The whole forward keeps [head, query, key] for every pair of positions: 1.7 GB per head at 20,904 tokens. Here the
    model's own components compute the same bits for the queries asked for, a few at a time, with keys up to the last of
    them. Keys and values are computed again for each piece, which costs little compared with its scores.

    Args:
        rows: positions in ascending order.
        scores_at_once: how many attention scores to hold at a time, or those of 16 queries if that is more.

    Raises:
        UserError: a model with norms, several layers, FIRE or a window, or with hooks, which would see only pieces.
    """
    require_unaltered(model, "A block of queries")
    cfg = model.config
    biased = cfg.positional_embedding_type == "fire" or cfg.attn_window is not None
    whole = biased or cfg.layer_mix or cfg.final_gain
    if cfg.n_layers > 1 or cfg.normalization_type is not None or whole:
        raise UserError("Only one-layer models without norms, FIRE, window, gain and mix can be read so.")
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


def responses_right(
    model: LensContract,
    tokens: Tokens,
    targets: Tokens,
    mask: Bool[Tensor, "batch pos"],
    weights: Weights,
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
    bias: Bias | None = None,
) -> Bool[Tensor, " batch"]:
    """Whether a model predicts every masked target of each row; a NaN among the logits is wrong.

    The last layer goes through the queries from left to right and forgets a row at its first wrong token, after which
    nothing can make the response right again. Where a model fails early, little more than keys and values is computed.
    """
    last, residual, bias = _before_last(model, tokens, weights, position_ids, bias)
    normalized = attention_input(last, residual, weights)
    k, v = keys_and_values(last, normalized, weights)
    rows = torch.arange(len(tokens), device=tokens.device)  # still right
    first, stop = int(mask.long().argmax(1).min()), tokens.shape[1]
    for a in range(first, stop, QUERIES_AT_ONCE):
        b = min(a + QUERIES_AT_ONCE, stop)
        out = finish_block(last, residual[:, a:b], normalized[:, a:b], k[:, :b], v[:, :b], weights, bias)
        highest, predicted = unembed(model, out, weights).max(-1)  # max hands NaN on
        wrong = ((predicted != targets[:, a:b]) | highest.isnan()) & mask[:, a:b]
        right = ~wrong.any(1)
        if not right.all():
            rows, residual, normalized, k, v, targets, mask = (
                x[right] for x in (rows, residual, normalized, k, v, targets, mask)
            )
            bias = bias.of_rows(right) if isinstance(bias, WindowBias) else bias
        if not len(rows):
            break
    found = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    return found.index_fill(0, rows, True)


def exact_match(
    model: LensContract,
    task: SequenceTask,
    problems: Int[Tensor, "n operand column"],
    tokens_a_batch: int = 16_384,
) -> Bool[Tensor, " n"]:
    """Whether each problem's whole response (EOS included) is right, teacher-forced; the same as by greedy decoding.

    ``tokens_a_batch`` bounds the memory; for small models, a batch of the default size stays in a core's cache.
    """
    require_unaltered(model, "An exact match by the fast forward")
    sequences, found = task.sequences(problems), []
    rows = max(1, tokens_a_batch // sequences.tokens.shape[1])
    with torch.inference_mode():
        weights = model.effective_weights()
        for part in torch.arange(len(problems)).split(rows):
            inputs, targets, mask = (x[part] for x in (sequences.inputs, sequences.targets, sequences.mask))
            found.append(responses_right(model, inputs, targets, mask, weights))
    return torch.cat(found)
