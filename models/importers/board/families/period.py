"""One head that turns by a period of 19 positions, two coordinates, digits on a parabola."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.importers.board.families.parts import EPS, family, one_head, unit_norms
from models.importers.board.reading import Submission
from models.parts.weights import Weights, under


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
    heads: Iterable[Tensor], gate: Float[Tensor, "2 m"], weight: Tensor, table: Tensor, head: Tensor, final: Tensor
) -> Weights:
    """Weights in which ``up`` reads the first coordinate, and the second unit minus the first goes into the second one.

    ``heads`` are W_Q, W_K, W_V and W_O; ``head`` unembeds the last residual stream after the gains ``final``.
    """
    up = gate.new_tensor([[1.0, 1.0], [0.0, 0.0]])
    out = gate.new_tensor([[0.0, -1.0], [0.0, 1.0]]) * weight
    found = one_head(*heads) | unit_norms(gate, 2, "attn.q_norm", "attn.k_norm")
    found |= under("blocks.0.mlp", W_gate=gate, W_in=up, W_out=out)
    return found | {"embed.W_E": table, "unembed.W_U": head.T, "ln_final.w": final}


def _gated_config(s: Submission) -> dict[str, Any]:
    parts = [s.get(part) for part in ("attn_scale", "model.layers.0.self_attn.scale") if s.has(part)]
    scale = next((float(found) for found in (s.names.get("ATTN_SCALE"), *parts) if found is not None), None)
    if not scale:
        raise UserError("it does not say what its scores are multiplied by")
    return _period(s) | {"act_fn": "silu", "gated_mlp": True, "use_qk_norm": True, "attn_scale": 1 / scale}


def _is_array_of_six(s: Submission) -> bool:
    return type(s.model).__name__ == "_Model" and "PARAM_NAMES" in s.names and "NORM_W0" in s.names


@family(
    "period 19, gated, array",
    "one head turning by 2 pi / 19, query-key norms, two gated SiLU units, six numbers in an array",
    _is_array_of_six,
    _gated_config,
)
def array_of_six(s: Submission, like: Tensor, n_ctx: int) -> Weights:
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
    return _gated((w_q, w_k, w_v, w_o), gate, p[5], table, table * norm, like.new_ones(2))


def _is_two_numbers(s: Submission) -> bool:
    return all(s.has(part) for part in ("_embed_table", "_q_proj", "_v_proj", "_gate_weight", "_norm_weight"))


@family(
    "period 19, gated, derived", "the same, with all but two numbers derived from them", _is_two_numbers, _gated_config
)
def two_numbers(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    table, (a, g) = s.call("_embed_table"), s.call("_gate_weight")
    parts = (s.matrix(f"_{x}_proj", 2, like) for x in "qkvo")
    gate = torch.stack((torch.stack((a, a - g / s.get("c")[0])), torch.stack((g, g))))
    return _gated(parts, gate, like.new_tensor(s.constant("S_CONST")), table, table, s.call("_norm_weight"))


def _is_tied_gate(s: Submission) -> bool:
    return s.has("model.layers.0.mlp.carry_proj") and s.has("model.embed_tokens.table")


@family("period 19, gated, structured", "the same, as structured projections", _is_tied_gate, _gated_config)
def tied_gate(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    block, table = "model.layers.0", s.call("model.embed_tokens.table")
    parts = (s.matrix(f"{block}.self_attn.{x}_proj", 2, like) for x in "qkvo")
    gate = s.matrix(f"{block}.mlp.gate_proj", 2, like)
    weight, final = s.get(f"{block}.mlp.carry_proj.weight"), s.get("model.norm.weight")
    return _gated(parts, gate, weight, table, table, final)


def _is_phase(s: Submission) -> bool:
    return s.has("attn.q_phase") and s.has("mlp._w1") and s.has("embed_tokens.const0")


def _phase_config(s: Submission) -> dict[str, Any]:
    return _period(s) | {"act_fn": "relu", "attn_scale": 1 / float(s.get("attn.scale"))}


@family(
    "period 19, phase",
    "one head turning by 2 pi / 19 whose queries are its keys turned by a phase, two ReLU units",
    _is_phase,
    _phase_config,
)
def phase(s: Submission, like: Tensor, n_ctx: int) -> Weights:
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
    return found | {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": s.get("final_norm.weight")}
