"""The score of a query for a key, split by what wrote the query's and the key's residual stream.

Everything here is linear in what was written once the scales of the norms are held at their values, so that the split
of every score is exact; see :mod:`interp.probes.lens.attention_attribution`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from interp.core.batches import chunks
from models import ArithmeticTransformer
from models.errors import UserError
from models.transformer import head_name, in_block, layer_part, rotate

BIAS, SCORE_BIAS = "bias", "score bias"
#: Problems whose parts are held at once.
_AT_ONCE = 64


def sources_of(model: ArithmeticTransformer, layer: int) -> list[str]:
    """What writes to the stream before a layer, in order: embeddings, heads and MLPs of earlier layers, all biases."""
    cfg = model.config
    found = ["embed", *(["pos_embed"] if hasattr(model, "pos_embed") else [])]
    for before in range(layer):
        found += [head_name(before, head) for head in range(cfg.n_heads)]
        found += [layer_part(before, "mlp")] * bool(cfg.d_mlp)
    return [*found, BIAS, *([SCORE_BIAS] if has_score_bias(model) else [])]


def has_score_bias(model: ArithmeticTransformer) -> bool:
    """Whether numbers that no stream writes are added to the scores."""
    cfg = model.config
    return cfg.positional_embedding_type == "fire" or cfg.attn_bias or cfg.attn_window is not None


def score_parts(
    model: ArithmeticTransformer,
    tokens: Int[Tensor, "n pos"],
    queries: Sequence[int],
    layer: int,
    keys: Float[Tensor, "head query key"],
) -> tuple[Float[Tensor, "head query source source n"], Float[Tensor, "head query n"]]:
    """(parts by source of the query and of the key, the model's own) of weighted sums of a layer's scores.

    Sources are those of :func:`sources_of`; the last one is what is added to the scores by position, if anything is.
    ``keys`` are the weights of the sums, 0 at every key that a query cannot see.

    Raises:
        UserError: scores that are not products of queries and keys, or a key that the model hides.
    """
    cfg = model.config
    if cfg.attn_scores != "dot":
        raise UserError(f"Scores of the kind {cfg.attn_scores!r} are no products, so that they have no parts.")
    wide = torch.promote_types(model.dtype, torch.float32)  # half precision is the model's, not the sums'
    weights = {name: value.to(wide) for name, value in model.all_weights().items()}
    found: list[tuple[Tensor, Tensor]] = []
    for batch in chunks(tokens, model, _AT_ONCE):
        _, cache = model.run_with_cache(batch, return_cache_object=False)
        cache = {name: value.to(wide) if value.is_floating_point() else value for name, value in cache.items()}
        streams = _written(model, layer, cache, weights)
        q, k = (_projected(model, layer, streams, cache, weights, letter) for letter in "QK")
        of_keys = torch.einsum("sbphd,hqp->sbqhd", k, keys.to(k))
        parts = torch.einsum("sbqhd,ubqhd->hqsub", q[:, :, list(queries)], of_keys) / cfg.score_scale
        scores = cache[in_block(layer, "attn.hook_attn_scores")][:, :, list(queries)]
        if has_score_bias(model):
            added = _score_bias(model, layer, weights, batch).to(scores)[:, :, list(queries)]
            more = _summed(added.expand_as(scores), keys)[:, :, None, None]
            parts = torch.cat((F.pad(parts, (0, 0, 0, 1)), F.pad(more, (0, 0, parts.shape[3], 0))), 2)
        found.append((parts.cpu(), _summed(scores, keys).cpu()))
    parts, own = (torch.cat(each, -1) for each in zip(*found, strict=True))
    if not torch.isfinite(own).all():
        raise UserError("A score is not finite: the model hides keys before the query, or has diverged.")
    return parts, own


def _written(
    model: ArithmeticTransformer, layer: int, cache: Mapping[str, Tensor], weights: Mapping[str, Tensor]
) -> Float[Tensor, "source batch pos d_model"]:
    """What every source writes to the stream before a layer."""
    written = [cache[name] for name in ("hook_embed", "hook_pos_embed") if name in cache]
    constant = torch.zeros_like(written[0])
    for before in range(layer):
        z, w_o = cache[in_block(before, "attn.hook_z")], weights[in_block(before, "attn.W_O")]
        written += [*torch.einsum("bphe,hed->hbpd", z, w_o)]
        of_attention, of_mlp = (weights.get(in_block(before, name)) for name in ("attn.b_O", "mlp.b_out"))
        if model.config.d_mlp:
            out = cache[in_block(before, "hook_mlp_out")]
            written.append(out if of_mlp is None else out - of_mlp)
        for bias in (of_attention, of_mlp):
            constant = constant if bias is None else constant + bias
    return torch.stack([*written, constant])


def _score_bias(
    model: ArithmeticTransformer, layer: int, weights: dict[str, Tensor], tokens: Int[Tensor, "batch pos"]
) -> Float[Tensor, "#batch #head pos pos"]:
    """What is added to a layer's scores by position."""
    n = tokens.shape[1]
    added = model.score_bias(n, weights, tokens)
    own = weights[in_block(layer, "attn.bias")][None, :, :n, :n] if model.config.attn_bias else None
    found = [each if each.ndim == 4 else each[None] for each in (added, own) if each is not None]
    return found[0] if len(found) == 1 else found[0] + found[1]


def _summed(
    scores: Float[Tensor, "batch head query key"], keys: Float[Tensor, "head query key"]
) -> Float[Tensor, "head query batch"]:
    """Weighted sums over keys; what is hidden may be -inf where its weight is 0."""
    keys = keys.to(scores)
    return torch.einsum("bhqk,hqk->hqb", torch.where(keys != 0, scores, torch.zeros_like(scores)), keys)


def _projected(
    model: ArithmeticTransformer,
    layer: int,
    streams: Float[Tensor, "source batch pos d_model"],
    cache: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
    letter: str,
) -> Float[Tensor, "source batch pos head d_head"]:
    """Each source's share of the queries or keys, as the scores take them; biases belong to the last source."""
    cfg, attn = model.config, in_block(layer, "attn")
    if cfg.has_pre_norm:
        ln = in_block(layer, "ln1")
        if cfg.normalization_type == "LN":
            streams = streams - streams.mean(-1, keepdim=True)
        streams = streams / cache[f"{ln}.hook_scale"] * weights[f"{ln}.w"]
        streams = _added_to_last(streams, weights.get(f"{ln}.b"))
    shares = torch.einsum("sbpm,hmd->sbphd", streams, weights[f"{attn}.W_{letter}"])
    shares = _added_to_last(shares, weights.get(f"{attn}.b_{letter}"))
    if cfg.use_qk_norm:
        norm = f"{attn}.{letter.lower()}_norm"
        shares = shares / cache[f"{norm}.hook_scale"] * weights[f"{norm}.w"]
    if cfg.positional_embedding_type == "rotary":  # a turn of each position is linear, too
        shares = rotate(shares.flatten(0, 1), cfg).unflatten(0, shares.shape[:2])
    return shares


def _added_to_last(x: Float[Tensor, "source *rest"], value: Tensor | None) -> Float[Tensor, "source *rest"]:
    return x if value is None else torch.cat((x[:-1], x[-1:] + value))
