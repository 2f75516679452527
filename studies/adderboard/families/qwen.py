"""Blocks as Qwen3 has them: RMS norms, query-key norms, shared key heads, rotary positions, gated SiLU."""

from __future__ import annotations

import torch
from torch import Tensor

from models.errors import UserError
from models.transformer.part_names import in_block
from studies.adderboard.families.parts import Read, eps_of, family, gain_of, per_head
from studies.adderboard.reading import Submission


@family("Qwen3 blocks", "layers.0.self_attn.q_norm", "layers.0.input_layernorm")
def qwen(s: Submission, like: Tensor, n_ctx: int) -> Read:
    core = "" if s.has("layers") else "model."
    counts = ("ATTENTION_HEADS", "NUM_HEADS"), ("KEY_VALUE_HEADS", "NUM_KV_HEADS")
    heads, shared = (next((s.names[n] for n in pair if n in s.names), None) for pair in counts)
    if heads is None or shared is None:
        raise UserError("it does not say how many heads it has")
    layers, d, e, m = len(s.get(f"{core}layers")), *map(s.constant, ("MODEL_DIM", "HEAD_DIM", "INTERMEDIATE_SIZE"))
    block = f"{core}layers.0"
    base = s.get("args.rope_theta") if s.has("args.rope_theta") else s.names.get("ROPE_THETA", 10000.0)
    config = {
        "n_layers": layers,
        "d_model": d,
        "n_heads": heads,
        "d_head": e,
        "d_mlp": m,
        "act_fn": "silu",
        "gated_mlp": True,
        "use_qk_norm": True,
        "positional_embedding_type": "rotary",
        "rotary_base": float(base),
        "eps": eps_of(s, f"{core}norm", f"{block}.input_layernorm", f"{block}.self_attn.q_norm"),
    }
    tokens = torch.arange(s.constant("VOCAB_SIZE"))
    table = s.call(f"{core}embed_tokens", tokens[None])[0]
    head = next((part for part in ("lm_head", "model.lm_head") if s.has(part)), None)
    found = {"embed.W_E": table, "unembed.W_U": table.T if head is None else s.matrix(head, d, like)}
    found["ln_final.w"] = gain_of(s, f"{core}norm", d, like)
    for layer in range(layers):
        theirs, ours = f"{core}layers.{layer}", in_block(layer)
        attn, mlp = f"{theirs}.self_attn", f"{theirs}.mlp." if s.has(f"{theirs}.mlp.gate_proj") else f"{theirs}."
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
            f"{ours}.mlp.W_out": s.matrix(f"{mlp}down_proj", m, like),
        }
    return config, found
