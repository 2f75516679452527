"""One head that turns by a period of 19 positions, two coordinates, digits on a parabola."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.transformer.parts.weights import under
from studies.adderboard.families.parts import EPS, Read, family, one_head, unit_norms
from studies.adderboard.reading import Submission


def _period(s: Submission) -> dict[str, Any]:
    """The config that the constructions with two coordinates and one head share."""
    return {
        "d_model": 2,
        "n_heads": 1,
        "d_head": 2,
        "d_mlp": 2,
        "positional_embedding_type": "rotary",
        "rotary_scaling_factor": 1 / s.constant("OMEGA"),
        "eps": s.names.get("RMS_EPS", EPS),
    }


def _gated(
    s: Submission,
    scale: float,
    heads: Iterable[Tensor],
    gate: Float[Tensor, "2 m"],
    weight: Tensor,
    tables: tuple[Tensor, Tensor],
    final: Tensor,
) -> Read:
    """A model in which ``up`` reads the first coordinate, and the second unit minus the first goes into the second one.

    ``heads`` are W_Q, W_K, W_V and W_O. ``tables``: the embedding, and what unembeds the last residual stream after the
    gains ``final``.
    """
    config = _period(s) | {"act_fn": "silu", "gated_mlp": True, "use_qk_norm": True, "attn_scale": 1 / scale}
    up = gate.new_tensor([[1.0, 1.0], [0.0, 0.0]])
    out = gate.new_tensor([[0.0, -1.0], [0.0, 1.0]]) * weight
    found = one_head(*heads) | unit_norms(gate, 2, "attn.q_norm", "attn.k_norm")
    found |= under("blocks.0.mlp", W_gate=gate, W_in=up, W_out=out)
    return config, found | {"embed.W_E": tables[0], "unembed.W_U": tables[1].T, "ln_final.w": final}


@family("period 19, gated, array", "params", "PARAM_NAMES", "NORM_W0")
def array_of_six(s: Submission, like: Tensor, n_ctx: int) -> Read:
    p = s.get("params")
    d = torch.arange(s.constant("VOCAB_SIZE")).to(like)
    table = torch.stack((p[0] - p[1] * d * d, -d), -1)
    phi = like.new_tensor(s.constant("PHI"))
    w_q = torch.stack((torch.stack((phi.cos(), -phi.sin())), like.new_zeros(2)))
    w_k = like.new_tensor([[1.0, 0.0], [0.0, 0.0]])
    w_v = like.new_tensor([[0.0, 0.0], [1.0, 0.0]]) * p[2]
    w_o = like.new_tensor([[0.0, 1.0], [0.0, 0.0]])
    gate = torch.stack((torch.stack((p[3], p[3] - p[4] / s.constant("EMBED_CONST"))), torch.stack((p[4], p[4]))))
    norm = like.new_tensor([s.constant("NORM_W0"), s.constant("NORM_W1")])
    heads, scale = (w_q, w_k, w_v, w_o), s.constant("ATTN_SCALE")
    return _gated(s, scale, heads, gate, p[5], (table, table * norm), like.new_ones(2))


@family("period 19, gated, derived", "_embed_table", "_q_proj", "_v_proj", "_gate_weight", "_norm_weight")
def two_numbers(s: Submission, like: Tensor, n_ctx: int) -> Read:
    table, (a, g) = s.call("_embed_table"), s.call("_gate_weight")
    parts = (s.matrix(f"_{x}_proj", 2, like) for x in "qkvo")
    gate = torch.stack((torch.stack((a, a - g / s.get("c")[0])), torch.stack((g, g))))
    weight = like.new_tensor(s.constant("S_CONST"))
    return _gated(s, s.get("attn_scale"), parts, gate, weight, (table, table), s.call("_norm_weight"))


@family("period 19, gated, structured", "model.layers.0.mlp.carry_proj", "model.embed_tokens.table")
def tied_gate(s: Submission, like: Tensor, n_ctx: int) -> Read:
    block, table = "model.layers.0", s.call("model.embed_tokens.table")
    parts = (s.matrix(f"{block}.self_attn.{x}_proj", 2, like) for x in "qkvo")
    gate = s.matrix(f"{block}.mlp.gate_proj", 2, like)
    weight, final = s.get(f"{block}.mlp.carry_proj.weight"), s.get("model.norm.weight")
    return _gated(s, s.get(f"{block}.self_attn.scale"), parts, gate, weight, (table, table), final)


@family("period 19, phase", "attn.q_phase", "mlp._w1", "embed_tokens.const0")
def phase(s: Submission, like: Tensor, n_ctx: int) -> Read:
    table = s.call("embed_tokens.weight")
    c, n = s.get("attn.q_phase").cos(), s.get("attn.q_phase").sin()
    turn = torch.stack((torch.cat((c, n)), torch.cat((-n, c))))  # the matrix that rotates a row
    scale = s.get("attn.v_scale")
    if s.has("attn.w_qk"):  # dense matrices
        w_k, w_o = s.get("attn.w_qk").T, s.get("attn.w_vo")
        w_v = scale * w_o.T
    else:
        q, o = s.get("attn.q_scale"), s.get("attn.vo_scale")
        w_k = like.new_tensor([[1.0, 0.0], [0.0, 0.0]]) * q
        w_v = scale * (like.new_tensor([[0.0, 0.0], [-1.0, 1.0]]) * o)
        w_o = like.new_tensor([[0.0, -1.0], [0.0, 1.0]]) * o
    w1 = s.call("mlp._w1", s.get("embed_tokens.const0"))
    found = one_head(w_k @ turn, w_k, w_v, w_o) | unit_norms(like, 2)
    found |= under("blocks.0.mlp", W_in=w1.T, W_out=w_o)
    config = _period(s) | {"act_fn": "relu", "attn_scale": 1 / float(s.get("attn.scale"))}
    return config, found | {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": s.get("final_norm.weight")}
