"""Trained models: one head, query-key norms, keys that are values, an output that is the transposed queries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.families.arc_decoder import turned
from models.transformer.part_names import in_block
from studies.adderboard.families.parts import Read, eps_of, family, one_head
from studies.adderboard.reading import Submission


def _config(s: Submission, d: int, e: int, m: int, eps: float) -> dict[str, Any]:
    return {
        "d_model": d,
        "n_heads": 1,
        "d_head": e,
        "d_mlp": m,
        "act_fn": "silu",
        "gated_mlp": True,
        "use_qk_norm": True,
        "positional_embedding_type": "rotary",
        "rotary_base": float(s.constant("ROPE_THETA")),
        "eps": eps,
    }


@family("tied values", "embedding", "W_q", "W_kv", "q_norm", "k_norm", "W_gate", "norm_final")
def tied_values(s: Submission, like: Tensor, n_ctx: int) -> Read:
    table, q, kv = s.get("embedding.weight"), s.get("W_q.weight"), s.get("W_kv.weight")
    eps = eps_of(s, "norm1", "norm2", "norm_final", "q_norm", "k_norm")
    config = _config(s, q.shape[1], len(q), len(s.get("W_gate.weight")), eps)
    return config, one_head(q.T, kv.T, kv.T, q) | {
        "embed.W_E": table,
        "unembed.W_U": table.T,
        "ln_final.w": s.get("norm_final.weight"),
        "blocks.0.ln1.w": s.get("norm1.weight"),
        "blocks.0.ln2.w": s.get("norm2.weight"),
        "blocks.0.attn.q_norm.w": s.get("q_norm.weight"),
        "blocks.0.attn.k_norm.w": s.get("k_norm.weight"),
        "blocks.0.mlp.W_gate": s.get("W_gate.weight").T,
        "blocks.0.mlp.W_in": s.get("W_up.weight").T,
        "blocks.0.mlp.W_out": s.get("W_down.weight").T,
    }


@family("arc decoder", "phi", "q_pos", "gate_pos", "up_pos", "norm_idx", "qkn", "ARC_RADIUS")
def arc_decoder(s: Submission, like: Tensor, n_ctx: int) -> Read:
    """The published file of :mod:`models.families.arc_decoder`."""
    q, gate, up = (
        s.call("_mat", *(s.get(f"{part}_{of}") for of in ("pos", "idx", "shape"))) for part in ("q", "gate", "up")
    )
    keys = turned(q.T.unflatten(1, (-1, 2)), float(s.constant("ATTN_ANGLE"))).flatten(1)
    table, gain = s.call("_emb"), s.get("phi")[s.get("norm_idx")]
    config = _config(s, q.shape[1], len(q), len(gate), float(s.constant("RMS_EPS")))
    return config | {"rotary_adjacent_pairs": True}, one_head(q.T, keys, q.T, q) | {
        "embed.W_E": table,
        "unembed.W_U": table.T,
        "ln_final.w": gain,
        "blocks.0.ln1.w": gain,
        "blocks.0.ln2.w": gain,
        "blocks.0.attn.q_norm.w": s.call("qkn"),
        "blocks.0.attn.k_norm.w": s.call("qkn"),
        "blocks.0.mlp.W_gate": gate.T,
        "blocks.0.mlp.W_in": up.T,
        "blocks.0.mlp.W_out": turned(up.T, -float(s.constant("DOWN_ANGLE"))).T,
    }


@family("repeated block", "block.attn.k_core", "block.mlp.up_proj", "repeat_gain", "embed.table")
def repeated(s: Submission, like: Tensor, n_ctx: int) -> Read:
    attn, mlp = "block.attn", "block.mlp"
    table, q = s.call("embed.table"), s.get(f"{attn}.q_proj")
    e = len(q)
    nothing = q.new_zeros(1, e)
    w_q, w_k = torch.cat((q.T, nothing)), torch.cat((s.call(f"{attn}.k_weight").T, nothing))
    w_o = torch.cat((q, s.call(f"{attn}.o_row3")[:, None]), 1)
    probe = q.new_ones(1, e)
    eps = float(s.constant("RMS_EPS"))
    turned = s.call(f"{attn}.qk_norm", probe)[0] * (1 + eps) ** 0.5  # its gains
    up, gate = s.get(f"{mlp}.up_proj"), s.call(f"{mlp}.gate_weight")
    shrink = torch.cat((s.get(f"{mlp}.down_scale"), q.new_zeros(1)))
    w_out = up * shrink
    w_out = torch.cat((w_out[:-1], w_out[-1:] + gate[-1:]))
    norm = s.get("norm.weight")
    found = {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": norm}
    for layer, mix in enumerate((q.new_ones(()), s.get("repeat_gain"))):
        block = {name.replace("blocks.0", in_block(layer)): w for name, w in one_head(w_q, w_k, w_k, w_o).items()}
        found |= block | {
            in_block(layer, "mix"): mix,
            in_block(layer, "ln1.w"): norm,
            in_block(layer, "ln2.w"): norm,
            in_block(layer, "attn.q_norm.w"): turned,
            in_block(layer, "attn.k_norm.w"): turned,
            in_block(layer, "mlp.W_gate"): gate.T,
            in_block(layer, "mlp.W_in"): up.T,
            in_block(layer, "mlp.W_out"): w_out,
        }
    return {"n_layers": 2, "layer_mix": True} | _config(s, up.shape[1], e, len(up), eps), found
