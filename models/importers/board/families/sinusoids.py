"""Sinusoidal positions of period 11 in the residual stream, two heads, no norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.importers.board.families.parts import family, per_head
from models.importers.board.reading import Submission
from models.parts.weights import Weights


def _sinus_config(s: Submission) -> dict[str, Any]:
    width = s.names.get("D_MODEL") or s.get("config.n_embd")
    heads = s.names.get("N_HEAD") or s.get("config.n_head")
    act = type(s.get("transformer.h.0.mlp.gelu")).__name__.lower() if s.has("transformer") else "relu"
    return {
        "d_model": width,
        "n_heads": heads,
        "d_head": width // heads,
        "d_mlp": 4,
        "act_fn": act,
        "normalization_type": None,
    }


def _is_directions(s: Submission) -> bool:
    return all(s.has(part) for part in ("digit_values", "embed_dir", "K_proj", "q_angles", "o_dir", "accum_dir"))


def _positions(s: Submission, n_ctx: int) -> Tensor:
    return s.call("generate_pe", n_ctx, "cpu")


@family(
    "sinusoids, directions",
    "positions as sinusoids of period 11, two heads, no norms, four ReLU units given by directions",
    _is_directions,
    _sinus_config,
)
def directions(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    direction, keys, out = s.get("embed_dir"), s.get("K_proj"), s.get("accum_dir")
    angles = s.get("q_angles")
    c, n = angles.cos(), angles.sin()
    turn = torch.stack((torch.stack((-c, n), -1), torch.stack((n, c), -1)), -2)  # [head, 2, 2]
    zero = torch.zeros_like(direction)
    heads = len(angles)
    carry, wrap = s.get("carry_dir"), s.get("wrap_dir")
    b, w = s.get("carry_bias"), s.get("wrap_bias")
    d = torch.arange(s.constant("VOCAB")).to(like)
    return {
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


def _is_nano(s: Submission) -> bool:
    return s.has("transformer.h.0.attn.c_attn") and s.has("generate_pe") and s.has("transformer.wte")


@family("sinusoids, nanoGPT", "the same with a nanoGPT's matrices", _is_nano, _sinus_config)
def nano(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    block, heads, d = "transformer.h.0", s.get("config.n_head"), s.get("config.n_embd")
    q, k, v = s.matrix(f"{block}.attn.c_attn", d, like).split(d, 1)
    bias = s.get("lm_head.bias")
    found = {f"blocks.0.attn.W_{x}": per_head(w, heads) for x, w in zip("QKV", (q, k, v), strict=True)}
    return found | {
        "embed.W_E": s.call("transformer.wte", torch.arange(s.get("config.vocab_size"))[None])[0],
        "pos_embed.W_pos": _positions(s, n_ctx).to(like),
        "blocks.0.attn.W_O": s.matrix(f"{block}.attn.c_proj", d, like).reshape(heads, -1, d),
        "blocks.0.mlp.W_in": s.get(f"{block}.mlp.c_fc.weight").T,
        "blocks.0.mlp.b_in": s.get(f"{block}.mlp.c_fc.bias"),
        "blocks.0.mlp.W_out": s.matrix(f"{block}.mlp.c_proj", s.get("config.mlp_hidden"), like),
        "unembed.W_U": s.matrix("lm_head", d, like) - bias,
        "unembed.b_U": bias,
    }
