"""Two layers that hold a numeral in one number: ALiBi, softmax1, gated ReLU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.transformer.parts.weights import under
from studies.adderboard.families.parts import Read, family
from studies.adderboard.reading import Submission


@family("one numeral", "k0_weight", "v0_w1", "up0_vals", "ALIBI_CONSTANT")
def numeral(s: Submission, like: Tensor, n_ctx: int) -> Read:
    wide, heads, n = s.constant("LAYER1_D_MODEL"), s.constant("LAYER0_HEADS"), s.constant("NUM_DIGITS")
    d, m, first = wide + 1, 2 * n, s.constant("CANDIDATES_START")
    adjust, scale = s.constant("ADJUSTMENT_HEAD"), s.constant("SCALE_HEAD")
    equals, special, digit = s.constant("EQ_DIM"), s.constant("SPECIAL_DIM"), s.constant("DIGIT_DIM")

    config = {
        "n_layers": 2,
        "d_model": d,  # the last dimension holds a 1, for parts that do not read the residual stream
        "n_heads": heads,
        "d_head": 1,
        "d_mlp": m,
        "act_fn": "relu",
        "gated_mlp": True,
        "normalization_type": None,
        "positional_embedding_type": "none",
        "attn_bias": True,
        "attn_softmax": "softmax1",
        "attn_scale": 1.0,
        "d_vocab_out": n,
    }

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
    told = (((adjust, special, 0), "v0_w1"), ((adjust, equals, 0), "v0_w2"), ((scale, equals, 0), "v0_w3"))
    signs = (*(((first + i, i), gain) for i in each), *(((first + i, n + i), -gain) for i in each))
    found = {"embed.W_E": embed, "unembed.W_U": filled((d, n), *(((i, i), -1.0) for i in each))}
    found |= under(
        "blocks.0.attn",
        bias=bias,
        W_Q=zeros,
        b_Q=like.new_ones(heads, 1),
        W_K=filled((heads, d, 1), ((adjust, special, 0), s.get("k0_weight"))),
        b_K=filled((heads, 1), ((adjust, 0), s.get("k0_bias"))),
        W_V=filled((heads, d, 1), *((where, s.get(name)) for where, name in told)),
        W_O=ones + filled((heads, 1, d), *(((h, 0, h), 1.0) for h in range(heads))),
    )
    found |= under(
        "blocks.0.mlp",
        W_gate=filled((d, m), *(((s.constant("SCALE_DIM"), i), 1.0) for i in each), ((digit, n), 1.0)),
        W_in=filled((d, m), *(((s.constant("COUNT_DIM"), i), values[i]) for i in range(n + 1))),
        W_out=filled((m, d), *(((i, first + i), 1.0) for i in range(n + 1))),
    )
    found |= under(
        "blocks.1.attn",
        bias=torch.zeros_like(bias),
        W_Q=zeros,
        W_K=zeros,
        W_V=filled((heads, d, 1), ((0, s.constant("DIGIT_POS_DIM"), 0), share)),
        b_V=filled((heads, 1), ((0, 0), s.constant("GATE_BIAS_SHIFT"))),
        W_O=out,
    )
    return config, found | under(
        "blocks.1.mlp",
        W_gate=filled((d, m), *signs),
        W_in=filled((d, m), *(((wide, i), 1.0) for i in range(m))),
        W_out=filled((m, d), *(((i, i % n), share) for i in range(m))),
    )
