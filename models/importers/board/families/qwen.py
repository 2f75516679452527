"""Blocks as Qwen3 has them: RMS norms, query-key norms, shared key heads, rotary positions, gated SiLU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.errors import UserError
from models.importers.board.families.parts import eps_of, family, gain_of, per_head
from models.importers.board.reading import Submission
from models.part_names import in_block
from models.parts.weights import Weights


def _core(s: Submission) -> str:
    return "model." if s.has("model.layers") else ""


def _gate(s: Submission, block: str) -> str:
    return f"{block}.mlp." if s.has(f"{block}.mlp.gate_proj") else f"{block}."


def _is_qwen(s: Submission) -> bool:
    block = f"{_core(s)}layers.0"
    parts = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj", "self_attn.q_norm", "input_layernorm")
    return all(s.has(f"{block}.{part}") for part in parts) and s.has(f"{_gate(s, block)}up_proj")


def _qwen_shape(s: Submission) -> tuple[int, int, int, int, int]:
    """(layers, d_model, query heads, key heads, d_head)."""
    names = ("ATTENTION_HEADS", "NUM_HEADS"), ("KEY_VALUE_HEADS", "NUM_KV_HEADS")
    heads, shared = (next((s.names[n] for n in pair if n in s.names), None) for pair in names)
    if heads is None or shared is None:
        raise UserError("it does not say how many heads it has")
    return len(s.get(f"{_core(s)}layers")), s.constant("MODEL_DIM"), heads, shared, s.constant("HEAD_DIM")


def _qwen_config(s: Submission) -> dict[str, Any]:
    layers, d, heads, _, e = _qwen_shape(s)
    core = _core(s)
    block = f"{core}layers.0"
    norms = [f"{core}norm", f"{block}.input_layernorm", f"{block}.self_attn.q_norm"]
    base = s.get("args.rope_theta") if s.has("args.rope_theta") else s.names.get("ROPE_THETA", 10000.0)
    return {
        "n_layers": layers,
        "d_model": d,
        "n_heads": heads,
        "d_head": e,
        "d_mlp": s.constant("INTERMEDIATE_SIZE"),
        "act_fn": "silu",
        "gated_mlp": True,
        "use_qk_norm": True,
        "positional_embedding_type": "rotary",
        "rotary_base": float(base),
        "eps": eps_of(s, *norms),
    }


@family(
    "Qwen3 blocks", "RMS norms, query-key norms, shared key heads, rotary positions, gated SiLU", _is_qwen, _qwen_config
)
def qwen(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    layers, d, heads, shared, e = _qwen_shape(s)
    core = _core(s)
    tokens = torch.arange(s.constant("VOCAB_SIZE"))
    table = s.call(f"{core}embed_tokens", tokens[None])[0]
    head = next((part for part in ("lm_head", "model.lm_head") if s.has(part)), None)
    found = {"embed.W_E": table, "unembed.W_U": table.T if head is None else s.matrix(head, d, like)}
    found["ln_final.w"] = gain_of(s, f"{core}norm", d, like)
    for layer in range(layers):
        theirs, ours = f"{core}layers.{layer}", in_block(layer)
        attn, mlp = f"{theirs}.self_attn", _gate(s, theirs)
        found |= {
            f"{ours}.ln1.w": gain_of(s, f"{theirs}.input_layernorm", d, like),
            f"{ours}.ln2.w": gain_of(s, f"{theirs}.post_attention_layernorm", d, like),
            f"{ours}.attn.q_norm.w": gain_of(s, f"{attn}.q_norm", e, like),
            f"{ours}.attn.k_norm.w": gain_of(s, f"{attn}.k_norm", e, like),
            f"{ours}.attn.W_Q": per_head(s.matrix(f"{attn}.q_proj", d, like), heads),
            f"{ours}.attn.W_K": per_head(s.matrix(f"{attn}.k_proj", d, like), shared, heads // shared),
            f"{ours}.attn.W_V": per_head(s.matrix(f"{attn}.v_proj", d, like), shared, heads // shared),
            f"{ours}.attn.W_O": s.matrix(f"{attn}.o_proj", heads * e, like).reshape(heads, e, d),
            f"{ours}.mlp.W_gate": s.matrix(f"{mlp}gate_proj", d, like),
            f"{ours}.mlp.W_in": s.matrix(f"{mlp}up_proj", d, like),
            f"{ours}.mlp.W_out": s.matrix(f"{mlp}down_proj", s.constant("INTERMEDIATE_SIZE"), like),
        }
    return found
