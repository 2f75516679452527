"""Logits of some positions, and whether whole responses are right."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from models.errors import UserError
from models.lens.lens_contract import LensContract
from models.run.blocks import before_last, logits_by_formulas, of_queries
from models.run.formulas import QUERIES_AT_ONCE, Formulas, has_run
from models.tasks.named.position_coupling.sequence_task import SequenceTask
from models.transformer.parts.shapes import PositionIds, Tokens
from models.transformer.parts.weights import Weights
from models.transformer.unaltered import require_unaltered

SCORES_AT_ONCE = 2**21  # batch x head x query x key that stay in the processor's cache
FEWEST_QUERIES = 16  # a product for fewer rows costs just as much


def logits_from(
    model: LensContract,
    tokens: Tokens,
    first: int,
    weights: Weights | None = None,
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
) -> Float[Tensor, "batch query d_vocab"]:
    """The model's logits at positions ``first``, ``first + 1``, ..., without hooks and patterns where it has a run.

    Cost for one layer: keys and values at all positions, all else at the queries only. Calls with one
    :class:`models.run.Formulas` share FIRE's bias: :func:`models.run.blocks.logits_by_formulas`.

    Args:
        weights: effective weights to use instead of the model's own.
        position_ids: ids to use in place of the task's; one row serves a whole batch.
    """
    if has_run(model):
        return logits_by_formulas(Formulas(model, weights), tokens, first, position_ids)
    return hooked_logits(model, tokens, first, weights, position_ids)


def hooked_logits(
    model: LensContract,
    tokens: Tokens,
    first: int,
    weights: Weights | None = None,
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
) -> Float[Tensor, "batch query d_vocab"]:
    """The same by the hooked forward."""
    given: dict[str, Any] = {} if weights is None else {"weights": weights}
    if position_ids is not None:
        given["position_ids"] = position_ids.expand(len(tokens), -1, -1)
    return model(tokens, **given)[:, first:]


@torch.no_grad()
def logits_at(
    model: LensContract,
    tokens: Tokens,
    rows: Int[Tensor, " row"],
    position_ids: PositionIds | None = None,
    scores_at_once: int = SCORES_AT_ONCE,
) -> Float[Tensor, "batch row d_vocab"]:
    """``model(tokens)[:, rows]`` for a one-layer model without norms, in blocks of queries, bit for bit.

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
    f: Formulas,
    tokens: Tokens,
    targets: Tokens,
    mask: Bool[Tensor, "batch pos"],
    position_ids: Int[Tensor, "#batch pos level"] | None = None,
) -> Bool[Tensor, " batch"]:
    """Whether a model predicts every masked target of each row; a NaN among the logits is wrong.

    The last layer goes through the queries from left to right and forgets a row at its first wrong token, after which
    nothing can make the response right again. Where a model fails early, little more than keys and values is computed:
    so this is a loop of its own around the layer's formulas.
    """
    (x, window), last = before_last(f, tokens, position_ids), f.cfg.n_layers - 1
    normalized = f.attn_in(last, x)
    k, v = f.keys_and_values(last, normalized)
    rows = torch.arange(len(tokens), device=tokens.device)  # still right
    first, stop = int(mask.long().argmax(1).min()), tokens.shape[1]
    for a in range(first, stop, QUERIES_AT_ONCE):
        b = min(a + QUERIES_AT_ONCE, stop)
        out = of_queries(f, last, x[:, a:b], normalized[:, a:b], k[:, :b], v[:, :b], window)
        highest, predicted = f.logits(out).max(-1)  # max hands NaN on
        wrong = ((predicted != targets[:, a:b]) | highest.isnan()) & mask[:, a:b]
        right = ~wrong.any(1)
        if not right.all():
            rows, x, normalized, k, v, targets, mask = (
                each[right] for each in (rows, x, normalized, k, v, targets, mask)
            )
            window = None if window is None else window.of_rows(right)
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
    sequences, found = task.sequences(problems), []
    rows = max(1, tokens_a_batch // sequences.tokens.shape[1])
    with torch.inference_mode():
        f = Formulas(model, model.effective_weights()) if has_run(model) else None
        for part in torch.arange(len(problems)).split(rows):
            inputs, targets, mask = (x[part] for x in (sequences.inputs, sequences.targets, sequences.mask))
            if f is not None:
                found.append(responses_right(f, inputs, targets, mask))
                continue
            highest, predicted = model(inputs).max(-1)
            found.append(~(((predicted != targets) | highest.isnan()) & mask).any(1))
    return torch.cat(found)
