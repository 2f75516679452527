"""A forward pass in NumPy, of its own: float64 or float32, written from the definition of each part.

It shares no code with the models or the proofs, so that a plant is held against something else than what is tried.
Scores are products; FIRE, windows and mixed layers are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import erf

Dtype = type[np.float64] | type[np.float32]
Array = np.ndarray


def logits(config: Any, weights: Mapping[str, Any], tokens: Any, ids: Any, dtype: Dtype) -> Array:
    """Logits [n, position, token] of tokens [n, position], whose position ids [n, position, level] a task gives.

    ``config`` is a model's, ``weights`` its effective weights; all is computed in ``dtype``.
    """
    w = {name: np.asarray(value.detach().cpu().numpy(), dtype) for name, value in weights.items()}
    tokens, ids = np.asarray(tokens), np.asarray(ids)
    unknown = config.layer_mix or config.norm_groups > 1 or config.attn_scores != "dot"
    if unknown or config.attn_window is not None or config.positional_embedding_type == "fire":
        raise NotImplementedError("a switch that this forward pass does not have")
    with np.errstate(all="ignore"):
        x = w["embed.W_E"][tokens]
        if config.positional_embedding_type == "standard":
            x = x + w["pos_embed.W_pos"][: tokens.shape[1]]
        elif config.positional_embedding_type == "coupled":
            x = x + sum(table[ids[..., level]] for level, table in enumerate(w["pos_embed.W_pos"]))
        for layer in range(config.n_layers):
            x = _block(config, w, f"blocks.{layer}", x, dtype)
        if config.final_gain:
            x = x * w["ln_final.w"]
        elif config.final_norm and config.normalization_type is not None:
            x = normed(config, w, "ln_final", x, dtype)
        return x @ w["unembed.W_U"] + w.get("unembed.b_U", dtype(0))


def leads(logits: Array, targets: Any, queries: Any) -> Array:
    """The right token's logit minus the best other one's, [n, target]; NaN where that is not a number."""
    at, right = logits[:, list(queries)], np.asarray(targets)[..., None]
    own = np.take_along_axis(at, right, -1)[..., 0]
    others = at.copy()
    np.put_along_axis(others, right, -np.inf, -1)
    with np.errstate(invalid="ignore"):
        found = own - others.max(-1)
    return np.where(np.isnan(at).any(-1), np.nan, found)


def normed(config: Any, w: Mapping[str, Array], name: str, x: Array, dtype: Dtype) -> Array:
    """A norm of the config's kind, with this name's gain and bias."""
    if config.normalization_type == "LN":
        x = x - x.mean(-1, keepdims=True, dtype=dtype)
    square, eps = (x * x).mean(-1, keepdims=True, dtype=dtype), dtype(config.eps)
    scale = np.sqrt(square) + eps if config.norm_eps_outside else np.sqrt(square + eps)
    return x / scale * w[f"{name}.w"] + w.get(f"{name}.b", dtype(0))


def _block(config: Any, w: Mapping[str, Array], name: str, x: Array, dtype: Dtype) -> Array:
    norms = config.normalization_type is not None
    pre, post = (norms and config.norm_placement in (one, "both") for one in ("pre", "post"))
    before, read = x, normed(config, w, f"{name}.ln1", x, dtype) if pre else x
    x = x + _attention(config, w, f"{name}.attn", read, dtype)
    if post:
        x = normed(config, w, f"{name}.ln1_post", x, dtype)
    if not config.d_mlp:
        return x
    of = before if config.parallel_attn_mlp else x
    x = x + _mlp(config, w, f"{name}.mlp", normed(config, w, f"{name}.ln2", of, dtype) if pre else of, dtype)
    return normed(config, w, f"{name}.ln2_post", x, dtype) if post else x


def _attention(config: Any, w: Mapping[str, Array], name: str, x: Array, dtype: Dtype) -> Array:
    zero = {letter: np.zeros((config.n_heads, config.d_head), dtype) for letter in "QKV"}
    q, k, v = (
        np.einsum("npd,hde->nhpe", x, w[f"{name}.W_{letter}"])
        + w.get(f"{name}.b_{letter}", zero[letter])[None, :, None]
        for letter in "QKV"
    )
    if config.use_qk_norm:
        q, k = (_rms(config, part, w[f"{name}.{letter}_norm.w"], dtype) for part, letter in ((q, "q"), (k, "k")))
    if config.positional_embedding_type == "rotary":
        q, k = _turned(config, q, dtype), _turned(config, k, dtype)
    scores = np.einsum("nhqe,nhke->nhqk", q, k) / dtype(config.score_scale)
    n = scores.shape[-1]
    if config.attn_bias:
        scores = scores + w[f"{name}.bias"][:, :n, :n]
    scores = np.where(np.triu(np.ones((n, n), bool), 1), dtype(-np.inf), scores)
    if config.attn_top_k is not None:
        least = np.sort(scores, -1)[..., -min(config.attn_top_k, n)][..., None]
        scores = np.where(scores >= least, scores, dtype(-np.inf))
    most = scores.max(-1, keepdims=True)
    if config.attn_softmax == "softmax1":
        most = np.maximum(most, dtype(0))
    e = np.exp(scores - most)
    total = e.sum(-1, keepdims=True, dtype=dtype) + (np.exp(-most) if config.attn_softmax == "softmax1" else dtype(0))
    pattern = e / total
    pattern = np.where(np.isnan(pattern), dtype(0), pattern)
    z = np.einsum("nhqk,nhke->nhqe", pattern, v)
    # Entry by entry, so that 0 times infinity is not left out.
    out = np.einsum("nhqe,hed->nqd", z, w[f"{name}.W_O"], optimize=False)
    return out + w.get(f"{name}.b_O", dtype(0))


def _rms(config: Any, x: Array, gain: Array, dtype: Dtype) -> Array:
    square, eps = (x * x).mean(-1, keepdims=True, dtype=dtype), dtype(config.eps)
    return x / (np.sqrt(square) + eps if config.norm_eps_outside else np.sqrt(square + eps)) * gain


def _turned(config: Any, x: Array, dtype: Dtype) -> Array:
    n = config.d_head if config.rotary_dim is None else config.rotary_dim
    half = n // 2
    frequency = config.rotary_frequencies
    if frequency is None:
        frequency = dtype(config.rotary_base) ** (-np.arange(half, dtype=dtype) * 2 / n) / config.rotary_scaling_factor
    angle = np.arange(x.shape[2], dtype=dtype)[:, None] * np.asarray(frequency, dtype)
    cos, sin, found = np.cos(angle), np.sin(angle), x.copy()
    parts = (slice(0, n, 2), slice(1, n, 2)) if config.rotary_adjacent_pairs else (slice(0, half), slice(half, n))
    first, second = x[..., parts[0]], x[..., parts[1]]
    found[..., parts[0]], found[..., parts[1]] = first * cos - second * sin, first * sin + second * cos
    return found


def _mlp(config: Any, w: Mapping[str, Array], name: str, x: Array, dtype: Dtype) -> Array:
    bias = w.get(f"{name}.b_in", dtype(0))
    if config.gated_mlp:
        hidden = _activation(config.act_fn, x @ w[f"{name}.W_gate"], dtype) * (x @ w[f"{name}.W_in"]) + bias
    else:
        hidden = _activation(config.act_fn, x @ w[f"{name}.W_in"] + bias, dtype)
    return hidden @ w[f"{name}.W_out"] + w.get(f"{name}.b_out", dtype(0))


def _activation(kind: str, x: Array, dtype: Dtype) -> Array:
    if kind == "relu":
        return np.maximum(x, dtype(0))
    if kind == "gelu":
        return x * ((dtype(1) + erf(x / dtype(np.sqrt(2)))) / dtype(2))
    if kind == "gelu_new":
        return x * (dtype(1) + np.tanh(dtype(np.sqrt(2 / np.pi)) * (x + dtype(0.044715) * x**3))) / dtype(2)
    return x / (dtype(1) + np.exp(-x))
