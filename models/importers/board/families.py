"""The architectures of public AdderBoard models: how each one's numbers become the weights of the one transformer.

A family is recognised by the names of its parts. What it makes of them is checked afterwards against the file's own
forward pass (:mod:`models.importers.board`), so that a file which computes something else is refused, not imported.
Linear parts are read by what they do to unit vectors, however they are written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError
from models.importers.board.interpreter import Instance
from models.importers.board.reading import Submission, class_name
from models.parts.weights import Weights

_EPS = 1e-6


@dataclass(frozen=True)
class Family:
    """Attributes:
    name: what it is called in tables. what: what characterises it.
    recognises: whether a file is of it.
    config: the fields of the config that are not shapes of the task.
    weights: the effective weights, in the kind of number of ``like``.
    """

    name: str
    what: str
    recognises: Callable[[Submission], bool]
    config: Callable[[Submission], dict[str, Any]]
    weights: Callable[[Submission, Tensor, int], Weights]


def _per_head(matrix: Float[Tensor, "d out"], heads: int, copies: int = 1) -> Float[Tensor, "head d e"]:
    """A projection's columns by head; ``copies`` query heads share a key head."""
    split = matrix.reshape(len(matrix), heads, -1).permute(1, 0, 2)
    return split.repeat_interleave(copies, 0)


def _gain(s: Submission, part: str, width: int, like: Tensor) -> Float[Tensor, " width"]:
    """What a norm multiplies by."""
    holder = s.get(part)
    weight = holder.values.get("weight") if isinstance(holder, Instance) else None
    if isinstance(weight, Tensor) and weight.shape == (width,):
        return weight
    scale = holder.values.get("scale", 1.0)
    return like.new_full((width,), float(scale))


def _eps(s: Submission, *parts: str) -> float:
    found = {float(s.get(part).values.get("eps", _EPS)) for part in parts if s.has(part)}
    if len(found) > 1:
        raise UserError("its norms differ in what they add to the mean square")
    return found.pop() if found else _EPS


def _number(value: Any) -> float:
    return float(value.reshape(-1)[0]) if isinstance(value, Tensor) else float(value)


# ---- blocks as Qwen3 has them: RMS norms, query-key norms, shared key heads, rotary positions, gated SiLU


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
    base = s.get(f"{block}.self_attn.rope.rotary")[1] if s.has(f"{block}.self_attn.rope.rotary") else None
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
        "rotary_base": float(base or s.names.get("ROPE_THETA", 10000.0)),
        "eps": _eps(s, *norms),
    }


def _qwen_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    layers, d, heads, shared, e = _qwen_shape(s)
    core = _core(s)
    tokens = torch.arange(s.constant("VOCAB_SIZE"))
    table = s.call(f"{core}embed_tokens", tokens[None])[0]
    head = next((part for part in ("lm_head", "model.lm_head") if s.has(part)), None)
    found = {"embed.W_E": table, "unembed.W_U": table.T if head is None else s.matrix(head, d, like)}
    found["ln_final.w"] = _gain(s, f"{core}norm", d, like)
    for layer in range(layers):
        theirs, ours = f"{core}layers.{layer}", f"blocks.{layer}"
        attn, mlp = f"{theirs}.self_attn", _gate(s, theirs)
        found |= {
            f"{ours}.ln1.w": _gain(s, f"{theirs}.input_layernorm", d, like),
            f"{ours}.ln2.w": _gain(s, f"{theirs}.post_attention_layernorm", d, like),
            f"{ours}.attn.q_norm.w": _gain(s, f"{attn}.q_norm", e, like),
            f"{ours}.attn.k_norm.w": _gain(s, f"{attn}.k_norm", e, like),
            f"{ours}.attn.W_Q": _per_head(s.matrix(f"{attn}.q_proj", d, like), heads),
            f"{ours}.attn.W_K": _per_head(s.matrix(f"{attn}.k_proj", d, like), shared, heads // shared),
            f"{ours}.attn.W_V": _per_head(s.matrix(f"{attn}.v_proj", d, like), shared, heads // shared),
            f"{ours}.attn.W_O": s.matrix(f"{attn}.o_proj", heads * e, like).reshape(heads, e, d),
            f"{ours}.mlp.W_gate": s.matrix(f"{mlp}gate_proj", d, like),
            f"{ours}.mlp.W_in": s.matrix(f"{mlp}up_proj", d, like),
            f"{ours}.mlp.W_out": s.matrix(f"{mlp}down_proj", s.constant("INTERMEDIATE_SIZE"), like),
        }
    return found


# ---- one head that turns by a period, two coordinates, a parabola of digits


def _period(s: Submission) -> dict[str, Any]:
    """What the constructions with two coordinates and one head have in common."""
    return {
        "n_layers": 1,
        "d_model": 2,
        "n_heads": 1,
        "d_head": 2,
        "d_mlp": 2,
        "positional_embedding_type": "rotary",
        "rotary_scaling_factor": 1 / s.constant("OMEGA"),
        "eps": s.names.get("RMS_EPS", _EPS),
    }


def _one_head(w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> Weights:
    return {f"blocks.0.attn.W_{x}": w[None] for x, w in zip("QKVO", (w_q, w_k, w_v, w_o), strict=True)}


def _unit_norms(like: Tensor, d: int, names: tuple[str, ...] = ("ln1", "ln2")) -> Weights:
    return {f"blocks.0.{name}.w": like.new_ones(d) for name in names}


def _carried(gate: Float[Tensor, "2 m"], weight: Tensor, like: Tensor) -> Weights:
    """``up`` reads the first coordinate; the difference of the second unit and the first goes into the second one."""
    up = like.new_tensor([[1.0, 1.0], [0.0, 0.0]])
    out = like.new_tensor([[0.0, -1.0], [0.0, 1.0]]) * weight
    return {"blocks.0.mlp.W_gate": gate, "blocks.0.mlp.W_in": up, "blocks.0.mlp.W_out": out}


def _gated_config(s: Submission) -> dict[str, Any]:
    scale = next(
        (
            float(found)
            for found in (
                s.names.get("ATTN_SCALE"),
                s.get("attn_scale") if s.has("attn_scale") else None,
                s.get("model.layers.0.self_attn.scale") if s.has("model.layers.0.self_attn.scale") else None,
            )
            if found is not None
        ),
        None,
    )
    if not scale:
        raise UserError("it does not say what its scores are multiplied by")
    return _period(s) | {"act_fn": "silu", "gated_mlp": True, "use_qk_norm": True, "attn_scale": 1 / scale}


def _is_array_of_six(s: Submission) -> bool:
    return class_name(s.model) == "_Model" and "PARAM_NAMES" in s.names and "NORM_W0" in s.names


def _array_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
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
    found = _one_head(w_q, w_k, w_v, w_o) | _unit_norms(like, 2) | _carried(gate, p[5], like)
    found |= {"blocks.0.attn.q_norm.w": like.new_ones(2), "blocks.0.attn.k_norm.w": like.new_ones(2)}
    return found | {"embed.W_E": table, "unembed.W_U": (table * norm).T, "ln_final.w": like.new_ones(2)}


def _is_two_numbers(s: Submission) -> bool:
    return all(s.has(part) for part in ("_embed_table", "_q_proj", "_v_proj", "_gate_weight", "_norm_weight"))


def _two_numbers_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    table, (a, g) = s.call("_embed_table"), s.call("_gate_weight")
    parts = (s.matrix(f"_{x}_proj", 2, like) for x in "qkvo")
    gate = torch.stack((torch.stack((a, a - g / s.get("c")[0])), torch.stack((g, g))))
    found = _one_head(*parts) | _unit_norms(like, 2) | _carried(gate, like.new_tensor(s.constant("S_CONST")), like)
    found |= {"blocks.0.attn.q_norm.w": like.new_ones(2), "blocks.0.attn.k_norm.w": like.new_ones(2)}
    return found | {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": s.call("_norm_weight")}


def _is_tied_gate(s: Submission) -> bool:
    return s.has("model.layers.0.mlp.carry_proj") and s.has("model.embed_tokens.table")


def _tied_gate_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    block, table = "model.layers.0", s.call("model.embed_tokens.table")
    parts = (s.matrix(f"{block}.self_attn.{x}_proj", 2, like) for x in "qkvo")
    gate = s.matrix(f"{block}.mlp.gate_proj", 2, like)
    found = _one_head(*parts) | _unit_norms(like, 2) | _carried(gate, s.get(f"{block}.mlp.carry_proj.weight"), like)
    found |= {"blocks.0.attn.q_norm.w": like.new_ones(2), "blocks.0.attn.k_norm.w": like.new_ones(2)}
    return found | {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": s.get("model.norm.weight")}


def _is_phase(s: Submission) -> bool:
    return s.has("attn.q_phase") and s.has("mlp._w1") and s.has("embed_tokens.const0")


def _phase_config(s: Submission) -> dict[str, Any]:
    return _period(s) | {"act_fn": "relu", "attn_scale": 1 / float(s.get("attn.scale"))}


def _phase_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    table = s.call("embed_tokens.weight")
    c, n = s.get("attn.q_phase").cos(), s.get("attn.q_phase").sin()
    turn = torch.stack((torch.cat((c, n)), torch.cat((-n, c))))  # what rotates a row
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
    found = _one_head(w_k @ turn, w_k, w_v, w_o) | _unit_norms(like, 2)
    found |= {"blocks.0.mlp.W_in": w1.T, "blocks.0.mlp.W_out": w_o}
    return found | {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": s.get("final_norm.weight")}


# ---- five heads with scores so far apart that each looks at one key; no norms


def _is_five_heads(s: Submission) -> bool:
    return s.has("config.rope_offsets") and (s.has("o_w") or s.has("o_proj"))


def _five_config(s: Submission) -> dict[str, Any]:
    c = s.get("config").values
    return {
        "n_layers": 1,
        "d_model": c["hidden_size"],
        "n_heads": c["num_attention_heads"],
        "d_head": c["head_dim"],
        "d_mlp": c["intermediate_size"],
        "act_fn": "relu",
        "normalization_type": None,
        "final_gain": True,
        "positional_embedding_type": "rotary",
    }


def _five_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    c = s.get("config").values
    heads, zero = c["num_attention_heads"], like.new_zeros(())
    if s.has("o_proj"):  # dense matrices
        table, gain = s.get("embed_tokens"), s.get("out_scale")
        w_q, w_o = _per_head(s.get("q_proj").T, heads), s.get("o_proj").T.reshape(heads, 2, 2)
        w_k, w_v = (_per_head(s.get(f"{x}_proj").T, 1, heads) for x in "kv")
        w_in, b_in, w_out, b_out = s.get("w1").T, s.get("b1"), s.get("w2").T, s.get("b2")
    else:
        digits, const, eps, scale = (s.get(x) for x in ("digit_values", "embed_const", "decode_eps", "qk_scale"))
        table = torch.stack((const - (eps / 2.0) * (digits * digits), digits), -1)
        gain = torch.stack((1.0 / const, eps))
        offsets = like.new_tensor(c["rope_offsets"])
        w_q = torch.stack((torch.stack((offsets.cos(), -offsets.sin()), -1) * scale, like.new_zeros(heads, 2)), 1)
        w_k = (like.new_tensor([[1.0, 0.0], [0.0, 0.0]]) * scale).expand(heads, 2, 2)
        w_v = like.new_tensor([[0.0, 0.0], [1.0, 0.0]]).expand(heads, 2, 2)
        o = s.get("o_w")
        rows = (o[0], o[3]), (o[1], zero), (o[2], zero), (zero, o[4]), (zero, o[5])
        w_o = torch.stack([torch.stack((torch.stack(row), like.new_zeros(2))) for row in rows])
        a, b, d = s.get("w1_a"), s.get("w1_b"), s.get("w1_c")
        w_in = torch.stack((torch.stack((a, a, b, b)), torch.stack((zero, zero, d, d))))
        b_in = torch.stack((const - 8.0, const - 9.0, 2 * const - 188.0, 2 * const - 189.0))
        one, ten = s.get("w2_s1"), s.get("w2_s10")
        w_out = torch.stack((like.new_zeros(4), torch.stack((one, -one, -ten, ten))), -1)
        b_out = like.new_zeros(2)
    found = {"embed.W_E": table, "unembed.W_U": table.T, "ln_final.w": gain}
    found |= {f"blocks.0.attn.W_{x}": w for x, w in zip("QKVO", (w_q, w_k, w_v, w_o), strict=True)}
    found |= {"blocks.0.mlp.W_in": w_in, "blocks.0.mlp.b_in": b_in}
    return found | {"blocks.0.mlp.W_out": w_out, "blocks.0.mlp.b_out": b_out}


# ---- sinusoidal positions of period 11 in the stream, two heads, no norms


def _sinus_config(s: Submission) -> dict[str, Any]:
    width = s.names.get("D_MODEL") or s.get("config.n_embd")
    heads = s.names.get("N_HEAD") or s.get("config.n_head")
    act = class_name(s.get("transformer.h.0.mlp.gelu")).lower() if s.has("transformer") else "relu"
    return {
        "n_layers": 1,
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


def _directions_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
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


def _nano_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    block, heads, d = "transformer.h.0", s.get("config.n_head"), s.get("config.n_embd")
    q, k, v = s.matrix(f"{block}.attn.c_attn", d, like).split(d, 1)
    bias = s.get("lm_head.bias")
    found = {f"blocks.0.attn.W_{x}": _per_head(w, heads) for x, w in zip("QKV", (q, k, v), strict=True)}
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


# ---- fixed scores, no queries and keys


def _is_fixed(s: Submission) -> bool:
    return s.has("M") and s.has("block.q_proj") and s.has("block.mlp_up") and s.has("lm_head")


def _fixed_config(s: Submission) -> dict[str, Any]:
    heads = s.get("block.n_heads")
    return {
        "n_layers": 1,
        "d_model": len(s.get("embed.weight")[0]),
        "n_heads": heads,
        "d_head": s.get("block.d_head"),
        "d_mlp": len(s.get("block.mlp_up.bias")),
        "act_fn": "relu",
        "normalization_type": None,
        "positional_embedding_type": "none",
        "attn_bias": True,
        "attn_scale": 1.0,
    }


def _fixed_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    heads, d = s.get("block.n_heads"), len(s.get("embed.weight")[0])
    found = {f"blocks.0.attn.W_{x}": _per_head(s.get(f"block.{x.lower()}_proj.weight").T, heads) for x in "QKV"}
    return found | {
        "embed.W_E": s.get("embed.weight"),
        "blocks.0.attn.bias": s.get("M")[:, :n_ctx, :n_ctx].to(like),
        "blocks.0.attn.W_O": s.get("block.o_proj.weight").T.reshape(heads, -1, d),
        "blocks.0.mlp.W_in": s.get("block.mlp_up.weight").T,
        "blocks.0.mlp.b_in": s.get("block.mlp_up.bias"),
        "blocks.0.mlp.W_out": s.get("block.mlp_down.weight").T,
        "unembed.W_U": s.get("lm_head.weight").T,
        "unembed.b_U": s.get("lm_head.bias"),
    }


# ---- two layers with a numeral in one number: ALiBi, softmax1, gated ReLU


def _is_numeral(s: Submission) -> bool:
    return all(s.has(part) for part in ("k0_weight", "k0_bias", "v0_w1", "up0_vals")) and "ALIBI_CONSTANT" in s.names


def _numeral_config(s: Submission) -> dict[str, Any]:
    wide = s.constant("LAYER1_D_MODEL")
    return {
        "n_layers": 2,
        "d_model": wide + 1,  # the last one holds a 1 for what reads no stream
        "n_heads": s.constant("LAYER0_HEADS"),
        "d_head": 1,
        "d_mlp": 2 * s.constant("NUM_DIGITS"),
        "act_fn": "relu",
        "gated_mlp": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
        "attn_bias": True,
        "attn_softmax": "softmax1",
        "attn_scale": 1.0,
        "d_vocab_out": s.constant("NUM_DIGITS"),
    }


def _numeral_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    wide, heads, n = s.constant("LAYER1_D_MODEL"), s.constant("LAYER0_HEADS"), s.constant("NUM_DIGITS")
    d, m, first = wide + 1, 2 * n, s.constant("CANDIDATES_START")
    adjust, scale = s.constant("ADJUSTMENT_HEAD"), s.constant("SCALE_HEAD")
    equals, special, digit = s.constant("EQ_DIM"), s.constant("SPECIAL_DIM"), s.constant("DIGIT_DIM")

    def filled(shape: tuple[int, ...], *entries: tuple[tuple[int, ...], Any]) -> Tensor:
        found = like.new_zeros(shape)
        for where, value in entries:
            found = found.index_put(
                tuple(torch.tensor(i) for i in where), torch.as_tensor(value, dtype=like.dtype).reshape(())
            )
        return found

    table = s.get("embedding")
    rows = len(table)
    embed = torch.cat((table, like.new_zeros(rows, wide - table.shape[1]), like.new_ones(rows, 1)), 1)
    place = torch.arange(n_ctx).to(like)
    alibi = s.constant("ALIBI_CONSTANT") * (place[None] - place[:, None])
    bias = torch.stack([alibi if h == adjust else torch.zeros_like(alibi) for h in range(heads)])
    ones = like.new_zeros(heads, 1, d)
    gain, share = s.constant("V_SCALE"), s.constant("FINAL_SCALE")
    values = s.get("up0_vals")
    each = range(n)
    out = like.new_zeros(heads, 1, d)
    out[0, 0, :wide] = 1.0
    zeros = like.new_zeros(heads, d, 1)
    return {
        "embed.W_E": embed,
        "unembed.W_U": filled((d, n), *(((i, i), -1.0) for i in each)),
        "blocks.0.attn.bias": bias,
        "blocks.0.attn.W_Q": zeros,
        "blocks.0.attn.b_Q": like.new_ones(heads, 1),
        "blocks.0.attn.W_K": filled((heads, d, 1), ((adjust, special, 0), s.get("k0_weight"))),
        "blocks.0.attn.b_K": filled((heads, 1), ((adjust, 0), s.get("k0_bias"))),
        "blocks.0.attn.W_V": filled(
            (heads, d, 1),
            ((adjust, special, 0), s.get("v0_w1")),
            ((adjust, equals, 0), s.get("v0_w2")),
            ((scale, equals, 0), s.get("v0_w3")),
        ),
        "blocks.0.attn.W_O": ones + filled((heads, 1, d), *(((h, 0, h), 1.0) for h in range(heads))),
        "blocks.0.mlp.W_gate": filled((d, m), *(((s.constant("SCALE_DIM"), i), 1.0) for i in each), ((digit, n), 1.0)),
        "blocks.0.mlp.W_in": filled((d, m), *(((s.constant("COUNT_DIM"), i), values[i]) for i in range(n + 1))),
        "blocks.0.mlp.W_out": filled((m, d), *(((i, first + i), 1.0) for i in range(n + 1))),
        "blocks.1.attn.bias": torch.zeros_like(bias),
        "blocks.1.attn.W_Q": zeros,
        "blocks.1.attn.W_K": zeros,
        "blocks.1.attn.W_V": filled((heads, d, 1), ((0, s.constant("DIGIT_POS_DIM"), 0), share)),
        "blocks.1.attn.b_V": filled((heads, 1), ((0, 0), s.constant("GATE_BIAS_SHIFT"))),
        "blocks.1.attn.W_O": out,
        "blocks.1.mlp.W_gate": filled(
            (d, m), *(((first + i, i), gain) for i in each), *(((first + i, n + i), -gain) for i in each)
        ),
        "blocks.1.mlp.W_in": filled((d, m), *(((wide, i), 1.0) for i in range(m))),
        "blocks.1.mlp.W_out": filled((m, d), *(((i, i % n), share) for i in range(m))),
    }


# ---- trained: one head, query-key norms, keys that are values, an output that is the transposed queries


def _is_tied_values(s: Submission) -> bool:
    return all(s.has(part) for part in ("embedding", "W_q", "W_kv", "q_norm", "k_norm", "W_gate", "norm_final"))


def _trained(s: Submission, d: int, e: int, m: int, eps: float) -> dict[str, Any]:
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


def _tied_values_config(s: Submission) -> dict[str, Any]:
    e, d = s.get("W_q.weight").shape
    eps = _eps(s, "norm1", "norm2", "norm_final", "q_norm", "k_norm")
    return {"n_layers": 1} | _trained(s, d, e, len(s.get("W_gate.weight")), eps)


def _tied_values_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    table, q, kv = s.get("embedding.weight"), s.get("W_q.weight"), s.get("W_kv.weight")
    return _one_head(q.T, kv.T, kv.T, q) | {
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


def _is_repeated(s: Submission) -> bool:
    return all(s.has(part) for part in ("block.attn.k_core", "block.mlp.up_proj", "repeat_gain", "embed.table"))


def _repeated_config(s: Submission) -> dict[str, Any]:
    e = len(s.get("block.attn.q_proj"))
    m, d = s.get("block.mlp.up_proj").shape
    return {"n_layers": 2, "layer_mix": True} | _trained(s, d, e, m, float(s.constant("RMS_EPS")))


def _repeated_weights(s: Submission, like: Tensor, n_ctx: int) -> Weights:
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
        block = {name.replace("blocks.0", f"blocks.{layer}"): w for name, w in _one_head(w_q, w_k, w_k, w_o).items()}
        found |= block | {
            f"blocks.{layer}.mix": mix,
            f"blocks.{layer}.ln1.w": norm,
            f"blocks.{layer}.ln2.w": norm,
            f"blocks.{layer}.attn.q_norm.w": turned,
            f"blocks.{layer}.attn.k_norm.w": turned,
            f"blocks.{layer}.mlp.W_gate": gate.T,
            f"blocks.{layer}.mlp.W_in": up.T,
            f"blocks.{layer}.mlp.W_out": w_out,
        }
    return found


FAMILIES = (
    Family(
        "Qwen3 blocks",
        "RMS norms, query-key norms, shared key heads, rotary positions, gated SiLU",
        _is_qwen,
        _qwen_config,
        _qwen_weights,
    ),
    Family(
        "period 19, gated, array",
        "one head turning by 2 pi / 19, query-key norms, two gated SiLU units, six numbers in an array",
        _is_array_of_six,
        _gated_config,
        _array_weights,
    ),
    Family(
        "period 19, gated, derived",
        "the same, with all but two numbers derived from them",
        _is_two_numbers,
        _gated_config,
        _two_numbers_weights,
    ),
    Family(
        "period 19, gated, structured",
        "the same, as structured projections",
        _is_tied_gate,
        _gated_config,
        _tied_gate_weights,
    ),
    Family(
        "period 19, phase",
        "one head turning by 2 pi / 19 whose queries are its keys turned by a phase, two ReLU units",
        _is_phase,
        _phase_config,
        _phase_weights,
    ),
    Family(
        "five hard heads",
        "five heads that each look at one key, no norms, four ReLU units, a gain before the head",
        _is_five_heads,
        _five_config,
        _five_weights,
    ),
    Family(
        "sinusoids, directions",
        "positions as sinusoids of period 11, two heads, no norms, four ReLU units given by directions",
        _is_directions,
        _sinus_config,
        _directions_weights,
    ),
    Family(
        "sinusoids, nanoGPT",
        "the same with a nanoGPT's matrices",
        _is_nano,
        _sinus_config,
        _nano_weights,
    ),
    Family(
        "fixed scores",
        "no queries and keys: a table of scores says who looks where; no norms, four ReLU units",
        _is_fixed,
        _fixed_config,
        _fixed_weights,
    ),
    Family(
        "one numeral",
        "two layers, ALiBi and softmax1 gather the sum in one number, gated ReLU, most significant digit first",
        _is_numeral,
        _numeral_config,
        _numeral_weights,
    ),
    Family(
        "tied values",
        "one head, query-key norms, keys that are values, output tied to queries, rotary base 3, gated SiLU",
        _is_tied_values,
        _tied_values_config,
        _tied_values_weights,
    ),
    Family(
        "repeated block",
        "the same with an arc for digits and one block applied twice, the second time with a small share",
        _is_repeated,
        _repeated_config,
        _repeated_weights,
    ),
)
