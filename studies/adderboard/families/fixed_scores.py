"""Fixed scores: no queries and keys."""

from __future__ import annotations

from torch import Tensor

from studies.adderboard.families.parts import Read, family, per_head
from studies.adderboard.reading import Submission


@family("fixed scores", "M", "block.q_proj", "block.mlp_up", "lm_head")
def fixed_scores(s: Submission, like: Tensor, n_ctx: int) -> Read:
    heads, d = s.get("block.n_heads"), len(s.get("embed.weight")[0])
    config = {
        "d_model": d,
        "n_heads": heads,
        "d_head": s.get("block.d_head"),
        "d_mlp": len(s.get("block.mlp_up.bias")),
        "act_fn": "relu",
        "normalization_type": None,
        "positional_embedding_type": "none",
        "attn_bias": True,
        "attn_scale": 1.0,
    }
    found = {f"blocks.0.attn.W_{x}": per_head(s.get(f"block.{x.lower()}_proj.weight").T, heads) for x in "QKV"}
    return config, found | {
        "embed.W_E": s.get("embed.weight"),
        "blocks.0.attn.bias": s.get("M")[:, :n_ctx, :n_ctx].to(like),
        "blocks.0.attn.W_O": s.get("block.o_proj.weight").T.reshape(heads, -1, d),
        "blocks.0.mlp.W_in": s.get("block.mlp_up.weight").T,
        "blocks.0.mlp.b_in": s.get("block.mlp_up.bias"),
        "blocks.0.mlp.W_out": s.get("block.mlp_down.weight").T,
        "unembed.W_U": s.get("lm_head.weight").T,
        "unembed.b_U": s.get("lm_head.bias"),
    }
