"""Five heads with scores so far apart that each looks at one key; no norms."""

from __future__ import annotations

import torch
from torch import Tensor

from models.transformer.parts.weights import under
from studies.adderboard.families.parts import Read, family, per_head
from studies.adderboard.reading import Submission


@family("five hard heads", "config.rope_offsets")
def five_heads(s: Submission, like: Tensor, n_ctx: int) -> Read:
    c = vars(s.get("config"))
    heads, zero = c["num_attention_heads"], like.new_zeros(())
    config = {
        "d_model": c["hidden_size"],
        "n_heads": heads,
        "d_head": c["head_dim"],
        "d_mlp": c["intermediate_size"],
        "act_fn": "relu",
        "normalization_type": None,
        "final_gain": True,
        "positional_embedding_type": "rotary",
    }
    if s.has("o_proj"):  # dense matrices
        table, gain = s.get("embed_tokens"), s.get("out_scale")
        w_q, w_o = per_head(s.get("q_proj").T, heads), s.get("o_proj").T.reshape(heads, 2, 2)
        w_k, w_v = (per_head(s.get(f"{x}_proj").T, 1, heads) for x in "kv")
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
    found |= under("blocks.0.attn", W_Q=w_q, W_K=w_k, W_V=w_v, W_O=w_o)
    return config, found | under("blocks.0.mlp", W_in=w_in, b_in=b_in, W_out=w_out, b_out=b_out)
