"""A whole layer by its formulas: at the rows asked for, after earlier keys and values, or with every site seen."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from models.run.formulas import QUERIES_AT_ONCE, At, Formulas
from models.run.score_bias import Window
from models.transformer.config import TransformerConfig
from models.transformer.parts.shapes import PerKey, QueryStream, Stream, Tokens
from models.transformer.parts.tropical import attend

#: Keys and values [batch, pos, head, d_head] of the positions before a stream's first row.
Before = tuple[Tensor, Tensor]


def block(
    f: Formulas,
    layer: int,
    x: Stream,
    rows: slice | None = None,
    start: int = 0,
    before: Before | None = None,
    window: Window | None = None,
) -> QueryStream:
    """The layer's output at ``rows`` of ``x`` (default: all), [batch, row, d_model].

    Args:
        x: the stream before the layer at positions ``start``, ``start + 1``, ...
        before: keys and values of the positions before ``start``.
        window: what hides keys of these problems.
    """
    normalized = f.attn_in(layer, x)
    k, v = f.keys_and_values(layer, normalized, start)
    if before is not None and before[0].shape[1]:
        k, v = torch.cat((before[0], k), 1), torch.cat((before[1], v), 1)
    if rows is None and torch.is_grad_enabled():  # no loop, for which torch.compile would fix its lengths
        return of_queries(f, layer, x, normalized, k, v, window)
    whole = slice(0, x.shape[1])
    rows, found = whole if rows is None else rows, []
    in_pieces = not torch.is_grad_enabled() and x.device.type == "cpu" and rows.stop - rows.start > QUERIES_AT_ONCE
    for piece in _pieces(rows) if in_pieces else [rows]:
        stop = start + piece.stop
        seen = (k, v) if stop == k.shape[1] else (k[:, :stop], v[:, :stop])
        mine = (x, normalized) if piece == whole else (x[:, piece], normalized[:, piece])
        found.append(of_queries(f, layer, *mine, *seen, window))
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _pieces(rows: slice) -> list[slice]:
    """Rows in equal parts of at most :data:`QUERIES_AT_ONCE`."""
    n = rows.stop - rows.start
    step = -(-n // -(-n // QUERIES_AT_ONCE))
    return [slice(a, min(a + step, rows.stop)) for a in range(rows.start, rows.stop, step)]


def of_queries(
    f: Formulas,
    layer: int,
    pre: QueryStream,
    normalized: QueryStream,
    k: PerKey,
    v: PerKey,
    window: Window | None,
) -> QueryStream:
    """The layer's output for queries at the last positions of the (turned) keys: attention, MLP and the norms after.

    ``normalized`` is what attention reads of ``pre``.
    """
    stop = k.shape[1]
    start = stop - pre.shape[1]
    q = f.turned(layer, "Q", f.project(layer, "Q", normalized), start)
    if f.has_kernel and window is None:
        cfg = f.cfg
        by_head = (x.transpose(1, 2) for x in (q, k, v))
        z = attend(*by_head, cfg.attn_scores, cfg.score_scale, cfg.attn_top_k).transpose(1, 2)
    elif f.plain and start == 0 and stop > 1 and f.fire is None and window is None:
        z = f.attend(q, k, v, None, causal=True)
    else:
        z = f.attend(q, k, v, f.added(layer, slice(start, stop), stop, window, q))
    return f.after_attention(layer, pre, f.attn_out(layer, z))


def seen_block(f: Formulas, layer: int, x: Stream, window: Window | None, at: At) -> Stream:
    """The layer's output at all positions, with every activation that has a hook of its own seen, and perhaps changed,
    by ``at``; those of the norms are not."""
    see = lambda name, value: at(name, layer, value)  # noqa: E731
    pre = see("hook_resid_pre", x)
    normalized = f.attn_in(layer, pre)
    q, k, v = (f.project(layer, c, normalized) for c in "QKV")
    q, k, v = see("attn.hook_q", q), see("attn.hook_k", k), see("attn.hook_v", v)
    q, k = f.turned(layer, "Q", q, 0), f.turned(layer, "K", k, 0)
    if f.kind == "rotary":
        q, k = see("attn.hook_rot_q", q), see("attn.hook_rot_k", k)
    added = f.added(layer, slice(0, x.shape[1]), x.shape[1], window, q)
    z = see("attn.hook_z", f.attend(q, k, v, added, at, layer))
    mid = f.add_attention(layer, pre, see("hook_attn_out", f.attn_out(layer, z)))
    mlp_out = None
    if f.cfg.d_mlp:
        mid = see("hook_resid_mid", mid)
        neurons = see("mlp.hook_post", f.neurons(layer, f.mlp_in(layer, pre, mid), at))
        mlp_out = see("hook_mlp_out", f.written(layer, neurons))
    return see("hook_resid_post", f.add_mlp(layer, pre, mid, mlp_out))


def seen_hooks(cfg: TransformerConfig) -> list[str]:
    """The hooks in a block that :func:`seen_block` sees, by their names in it."""
    found = ["hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_v"]
    found += ["attn.hook_rot_q", "attn.hook_rot_k"] if cfg.positional_embedding_type == "rotary" else []
    found += ["attn.hook_attn_scores", "attn.hook_pattern", "attn.hook_z", "hook_attn_out"]
    if cfg.d_mlp:
        found += ["hook_resid_mid", "mlp.hook_pre", *(["mlp.hook_pre_linear"] if cfg.gated_mlp else [])]
        found += ["mlp.hook_post", "hook_mlp_out"]
    return [*found, "hook_resid_post"]


def before_last(
    f: Formulas, tokens: Tokens, ids: Int[Tensor, "#batch pos level"] | None
) -> tuple[Stream, Window | None]:
    """The stream that the last layer reads, and the window of these problems, if the model has one."""
    window = f.model.window_bias(tokens, ids) if f.cfg.attn_window is not None else None
    x = f.embed(tokens, ids)
    for layer in range(f.cfg.n_layers - 1):
        x = block(f, layer, x, window=window)
    return x, window


def logits_by_formulas(
    f: Formulas, tokens: Tokens, first: int, ids: Int[Tensor, "#batch pos level"] | None = None
) -> Float[Tensor, "batch query d_vocab"]:
    """Logits at positions ``first``, ``first + 1``, ..., with gradients where they are on.

    No activation is kept, so that the next layer uses its memory again. Cost for one layer: keys and values at all
    positions, all else at the queries only.
    """
    (x, window), last = before_last(f, tokens, ids), f.cfg.n_layers - 1
    if not torch.is_grad_enabled():
        return f.logits(block(f, last, x, slice(first, tokens.shape[1]), window=window))
    normalized = f.attn_in(last, x)
    k, v = f.keys_and_values(last, normalized)
    return f.logits(of_queries(f, last, x[:, first:], normalized[:, first:], k, v, window))
