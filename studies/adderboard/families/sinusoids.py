"""Sinusoidal positions of period 11 in the residual stream, two heads, no norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from studies.adderboard.families.parts import Read, family, per_head
from studies.adderboard.reading import Submission


def _config(width: int, heads: int, act: str) -> dict[str, Any]:
    return {
        "d_model": width,
        "n_heads": heads,
        "d_head": width // heads,
        "d_mlp": 4,
        "act_fn": act,
        "normalization_type": None,
    }


def _positions(s: Submission, n_ctx: int) -> Tensor:
    return s.call("generate_pe", n_ctx, "cpu")


@family("sinusoids, directions", "digit_values", "embed_dir", "K_proj", "q_angles", "accum_dir")
def directions(s: Submission, like: Tensor, n_ctx: int) -> Read:
    direction, keys, out = s.get("embed_dir"), s.get("K_proj"), s.get("accum_dir")
    angles = s.get("q_angles")
    c, n = angles.cos(), angles.sin()
    turn = torch.stack((torch.stack((-c, n), -1), torch.stack((n, c), -1)), -2)  # [head, 2, 2]
    zero = torch.zeros_like(direction)
    heads = len(angles)
    carry, wrap = s.get("carry_dir"), s.get("wrap_dir")
    b, w = s.get("carry_bias"), s.get("wrap_bias")
    d = torch.arange(s.constant("VOCAB")).to(like)
    return _config(len(direction), heads, "relu"), {
        "embed.W_E": s.get("digit_values") * direction,
        "pos_embed.W_pos": _positions(s, n_ctx).to(like),
        "blocks.0.attn.W_Q": keys.T @ turn,
        "blocks.0.attn.W_K": keys.T.expand(heads, -1, -1),
        "blocks.0.attn.W_V": torch.stack((direction, zero), -1).expand(heads, -1, -1),
        "blocks.0.attn.W_O": torch.stack((s.get("o_dir"), torch.zeros_like(s.get("o_dir"))), 1),
        "blocks.0.mlp.W_in": torch.stack((carry, carry, wrap, wrap), -1),
        "blocks.0.mlp.b_in": torch.stack((b[0], b[1], w[1], w[0])),
        "blocks.0.mlp.W_out": torch.stack((out, -out, out, -out)),
        "unembed.W_U": out[:, None] * (s.get("head_lin") * d),
        "unembed.b_U": s.get("head_quad") * d * d,
    }


@family("sinusoids, nanoGPT", "transformer.h.0.attn.c_attn", "transformer.wte", "generate_pe")
def nano(s: Submission, like: Tensor, n_ctx: int) -> Read:
    block, heads, d = "transformer.h.0", s.get("config.n_head"), s.get("config.n_embd")
    q, k, v = s.matrix(f"{block}.attn.c_attn", d, like).split(d, 1)
    bias = s.get("lm_head.bias")
    found = {f"blocks.0.attn.W_{x}": per_head(w, heads) for x, w in zip("QKV", (q, k, v), strict=True)}
    act = type(s.get(f"{block}.mlp.gelu")).__name__.lower()
    return _config(d, heads, act), found | {
        "embed.W_E": s.call("transformer.wte", torch.arange(s.get("config.vocab_size"))[None])[0],
        "pos_embed.W_pos": _positions(s, n_ctx).to(like),
        "blocks.0.attn.W_O": s.matrix(f"{block}.attn.c_proj", d, like).reshape(heads, -1, d),
        "blocks.0.mlp.W_in": s.get(f"{block}.mlp.c_fc.weight").T,
        "blocks.0.mlp.b_in": s.get(f"{block}.mlp.c_fc.bias"),
        "blocks.0.mlp.W_out": s.matrix(f"{block}.mlp.c_proj", s.get("config.mlp_hidden"), like),
        "unembed.W_U": s.matrix("lm_head", d, like) - bias,
        "unembed.b_U": bias,
    }
