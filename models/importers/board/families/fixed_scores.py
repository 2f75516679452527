"""Fixed scores: no queries and keys."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from models.importers.board.families.parts import family, per_head
from models.importers.board.reading import Submission
from models.parts.weights import Weights


def _is_fixed(s: Submission) -> bool:
    return s.has("M") and s.has("block.q_proj") and s.has("block.mlp_up") and s.has("lm_head")


def _fixed_config(s: Submission) -> dict[str, Any]:
    heads = s.get("block.n_heads")
    return {
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


@family(
    "fixed scores",
    "no queries and keys: a table of scores says who looks where; no norms, four ReLU units",
    _is_fixed,
    _fixed_config,
)
def fixed_scores(s: Submission, like: Tensor, n_ctx: int) -> Weights:
    heads, d = s.get("block.n_heads"), len(s.get("embed.weight")[0])
    found = {f"blocks.0.attn.W_{x}": per_head(s.get(f"block.{x.lower()}_proj.weight").T, heads) for x in "QKV"}
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
