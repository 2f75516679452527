"""A decoder block by block in numpy float64, one head, query and key at a time: the oracle for every switch.

Formulas from the papers and from RoFormer, FIRE and AdderNet; no code is shared with the model. Weights are given by
HookedTransformer's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from scipy.special import erf

from models.transformer.config import TransformerConfig

Weights = Mapping[str, np.ndarray]
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def norm(cfg: TransformerConfig, x: np.ndarray, gain: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """LayerNorm or RMSNorm of rows, with eps inside the root or outside."""
    if cfg.normalization_type == "LN":
        x = x - x.mean(-1, keepdims=True)
    mean_square = (x**2).mean(-1, keepdims=True)
    scale = np.sqrt(mean_square) + cfg.eps if cfg.norm_eps_outside else np.sqrt(mean_square + cfg.eps)
    return x / scale * gain + (0 if bias is None else bias)


def rotated(x: np.ndarray, position: int, base: float, neighbours: bool) -> np.ndarray:
    """RoFormer: pair i of a vector of length d at position t, as a complex number, times exp(1j t base^(-2i/d))."""
    d = len(x)
    pairs = [(2 * i, 2 * i + 1) if neighbours else (i, i + d // 2) for i in range(d // 2)]
    out = np.empty(d)
    for i, (first, second) in enumerate(pairs):
        turned = complex(x[first], x[second]) * np.exp(1j * position * base ** (-2 * i / d))
        out[first], out[second] = turned.real, turned.imag
    return out


def all_rotated(cfg: TransformerConfig, rows: np.ndarray) -> list[np.ndarray]:
    """The first ``rotary_dim`` dimensions of every row turned by its position, the others as they are."""
    n = cfg.rotary_dim or cfg.d_head
    turned = [rotated(row[:n], t, cfg.rotary_base, cfg.rotary_adjacent_pairs) for t, row in enumerate(rows)]
    return [np.concatenate((first, row[n:])) for first, row in zip(turned, rows, strict=True)]


def fire_bias(cfg: TransformerConfig, w: Weights, i: int, j: int) -> np.ndarray:
    """FIRE: f(psi(i - j) / psi(max(L, i))) with psi(x) = log(c x + 1), one number a head."""
    psi = lambda x: np.log(cfg.fire_c * x + 1)  # noqa: E731
    limit = max(cfg.fire_L0, i) if cfg.fire_normaliser == "max" else min(cfg.fire_L0, i)
    ratio = psi(i - j) / max(psi(limit), 1e-6)
    hidden = np.maximum(ratio * w["fire.W_in"][0] + w["fire.b_in"], 0)
    hidden = np.maximum(hidden @ w["fire.W_mid"] + w["fire.b_mid"], 0)
    return hidden @ w["fire.W_out"] + w["fire.b_out"]


def attention(cfg: TransformerConfig, w: Weights, block: str, x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Causal attention over normalised rows [pos, d_model] with position ids [pos, level]."""
    scale = cfg.attn_scale if cfg.attn_scale is not None else np.sqrt(cfg.d_head)
    out = np.tile(w[f"{block}.attn.b_O"], (len(x), 1))
    for head in range(cfg.n_heads):
        q, k, v = (x @ w[f"{block}.attn.W_{m}"][head] + w[f"{block}.attn.b_{m}"][head] for m in "QKV")
        if cfg.positional_embedding_type == "rotary":
            q, k = (all_rotated(cfg, rows) for rows in (q, k))
        for i in range(len(x)):
            scores = np.empty(i + 1)
            for j in range(i + 1):
                similarity = {"neg_l1": -np.abs(q[i] - k[j]).sum(), "max_plus": (q[i] + k[j]).max(), "dot": q[i] @ k[j]}
                scores[j] = similarity[cfg.attn_scores] / scale
                if cfg.positional_embedding_type == "fire":
                    scores[j] += fire_bias(cfg, w, i, j)[head]
            kept = np.ones(i + 1, dtype=bool)
            if cfg.attn_top_k is not None and i + 1 > cfg.attn_top_k:
                kept = scores >= np.sort(scores)[-cfg.attn_top_k]
            if cfg.attn_window is not None:
                away = [tuple(int(b) - int(a) for a, b in zip(ids[i], key, strict=True)) for key in ids[: i + 1]]
                if isinstance(cfg.attn_window, int):
                    kept &= np.array([max(map(abs, offset)) for offset in away]) <= cfg.attn_window
                else:
                    kept &= np.array([offset in cfg.attn_window for offset in away])
                kept |= (ids[: i + 1] == 0).all(1)
            weights = np.where(kept, np.exp(scores - scores.max()), 0.0)
            out[i] += (weights / weights.sum()) @ v[: i + 1] @ w[f"{block}.attn.W_O"][head]
    return out


def mlp(cfg: TransformerConfig, w: Weights, block: str, x: np.ndarray) -> np.ndarray:
    act, linear = ACTIVATIONS[cfg.act_fn], x @ w[f"{block}.mlp.W_in"]
    if cfg.gated_mlp:
        hidden = act(x @ w[f"{block}.mlp.W_gate"]) * linear + w[f"{block}.mlp.b_in"]
    else:
        hidden = act(linear + w[f"{block}.mlp.b_in"])
    return hidden @ w[f"{block}.mlp.W_out"] + w[f"{block}.mlp.b_out"]


def logits(cfg: TransformerConfig, w: Weights, tokens: np.ndarray, position_ids: np.ndarray) -> np.ndarray:
    """Logits [pos, d_vocab] of one sequence; ``position_ids`` [pos, level] are read by coupled positions."""

    def normed(rows: np.ndarray, name: str, wanted: tuple[str, ...]) -> np.ndarray:
        if cfg.normalization_type is None or cfg.norm_placement not in wanted:
            return rows
        return norm(cfg, rows, w[f"{name}.w"], w.get(f"{name}.b"))

    x = w["embed.W_E"][tokens]
    if cfg.positional_embedding_type == "standard":
        x = x + w["pos_embed.W_pos"][: len(tokens)]
    if cfg.positional_embedding_type == "coupled":
        for level in range(cfg.n_position_levels):
            x = x + w["pos_embed.W_pos"][level][position_ids[:, level]]
    for layer in range(cfg.n_layers):
        block, before = f"blocks.{layer}", x
        x = x + attention(cfg, w, block, normed(x, f"{block}.ln1", ("pre", "both")), position_ids)
        x = normed(x, f"{block}.ln1_post", ("post", "both"))
        if cfg.d_mlp:
            read = before if cfg.parallel_attn_mlp else x
            x = x + mlp(cfg, w, block, normed(read, f"{block}.ln2", ("pre", "both")))
            x = normed(x, f"{block}.ln2_post", ("post", "both"))
    if cfg.final_norm:
        x = normed(x, "ln_final", (cfg.norm_placement,))
    return x @ w["unembed.W_U"] + w["unembed.b_U"]
