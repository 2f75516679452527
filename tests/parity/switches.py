"""Every switch of the config, as a change of the small decoder that the tests build."""

from __future__ import annotations

from typing import Any

SWITCHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "LayerNorm": {"normalization_type": "LN"},
    "no norms": {"normalization_type": None},
    "no final norm": {"final_norm": False},
    "eps outside the root": {"norm_eps_outside": True, "eps": 0.1},
    "eps inside the root": {"eps": 0.1},
    "post-norm": {"norm_placement": "post"},
    "post-norm, LayerNorm": {"norm_placement": "post", "normalization_type": "LN"},
    "norms before and after": {"norm_placement": "both"},
    "final norm only": {"norm_placement": "none", "normalization_type": "LN"},
    "coupled positions": {"positional_embedding_type": "coupled", "n_position_levels": 2},
    "a window of ids": {"positional_embedding_type": "coupled", "n_position_levels": 2, "attn_window": 1},
    "offsets of ids": {
        "positional_embedding_type": "coupled",
        "n_position_levels": 2,
        "attn_window": ((0, 0), (1, 0), (0, -1)),
    },
    "no positions": {"positional_embedding_type": "none"},
    "rotary, neighbours": {"positional_embedding_type": "rotary", "rotary_base": 100.0},
    "rotary, halves": {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False},
    "FIRE": {"positional_embedding_type": "fire", "fire_c": 0.7, "fire_L0": 3.0},
    "FIRE as published": {"positional_embedding_type": "fire", "fire_L0": 3.0, "fire_normaliser": "min"},
    "negative L1": {"attn_scores": "neg_l1"},
    "negative L1, unscaled": {"attn_scores": "neg_l1", "attn_scale": 1.0},
    "top 2 keys": {"attn_top_k": 2},
    "top 1 key": {"attn_top_k": 1},
    "more keys wanted than there are": {"attn_top_k": 50},
    "negative L1, top 3": {"attn_scores": "neg_l1", "attn_top_k": 3, "act_fn": "relu"},
    "max-plus": {"attn_scores": "max_plus"},
    "max-plus, unscaled, top 3": {"attn_scores": "max_plus", "attn_scale": 1.0, "attn_top_k": 3},
    "unscaled": {"attn_scale": 1.0},
    "gated, tanh GELU": {"gated_mlp": True, "act_fn": "gelu_new"},
    "gated, SiLU": {"gated_mlp": True, "act_fn": "silu"},
    "attention only": {"d_mlp": 0},
    "parallel": {"parallel_attn_mlp": True},
    "parallel, part rotary": {"parallel_attn_mlp": True, "positional_embedding_type": "rotary", "rotary_dim": 2},
    "Position Coupling": {
        "positional_embedding_type": "coupled",
        "n_position_levels": 2,
        "norm_placement": "both",
        "norm_eps_outside": True,
        "eps": 1e-6,
        "attn_scale": 1.0,
        "gated_mlp": True,
        "act_fn": "gelu_new",
    },
}
