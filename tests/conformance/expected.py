"""The hook names and shapes that TransformerLens promises, in firing order, written out from its documentation."""

from __future__ import annotations

from models.transformer.config import TransformerConfig

SWITCHES = ("use_attn_result", "use_attn_in", "use_split_qkv_input", "use_hook_mlp_in")


def expected_activations(
    cfg: TransformerConfig, batch: int, pos: int, on: frozenset[str] = frozenset()
) -> dict[str, tuple[int, ...]]:
    """Hook name -> shape for a run on tokens [batch, pos] with the hook switches ``on``, in firing order."""
    D, H, d, M, V = cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_mlp, cfg.d_vocab
    stream, heads, square = (batch, pos, D), (batch, pos, H, d), (batch, H, pos, pos)
    per_head_stream = (batch, pos, H, D)

    def norm(name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return {f"{name}.hook_scale": (*shape[:-1], 1), f"{name}.hook_normalized": shape}

    names: dict[str, tuple[int, ...]] = {"hook_embed": stream}
    if cfg.positional_embedding_type in ("standard", "coupled"):
        names["hook_pos_embed"] = stream
    for layer in range(cfg.n_layers):
        block: dict[str, tuple[int, ...]] = {"hook_resid_pre": stream}
        if "use_attn_in" in on:
            block["hook_attn_in"] = per_head_stream
        if "use_split_qkv_input" in on:
            block |= {f"hook_{letter}_input": per_head_stream for letter in "qkv"}
        if cfg.normalization_type and cfg.norm_placement in ("pre", "both"):
            block |= norm("ln1", per_head_stream if on & {"use_attn_in", "use_split_qkv_input"} else stream)
        block |= {f"attn.hook_{letter}": heads for letter in "qkv"}
        if cfg.positional_embedding_type == "rotary":
            block |= {"attn.hook_rot_q": heads, "attn.hook_rot_k": heads}
        block["attn.hook_attn_scores"] = square
        if cfg.attn_top_k is not None:
            block["attn.hook_top_k_mask"] = square
        block |= {"attn.hook_pattern": square, "attn.hook_z": heads}
        if "use_attn_result" in on:
            block["attn.hook_result"] = per_head_stream
        block["hook_attn_out"] = stream
        if cfg.normalization_type and cfg.norm_placement in ("post", "both"):
            block |= norm("ln1_post", stream)
        if cfg.d_mlp:
            block["hook_resid_mid"] = stream
            if "use_hook_mlp_in" in on:
                block["hook_mlp_in"] = stream
            if cfg.normalization_type and cfg.norm_placement in ("pre", "both"):
                block |= norm("ln2", stream)
            block["mlp.hook_pre"] = (batch, pos, M)
            if cfg.gated_mlp:
                block["mlp.hook_pre_linear"] = (batch, pos, M)
            block |= {"mlp.hook_post": (batch, pos, M), "hook_mlp_out": stream}
            if cfg.normalization_type and cfg.norm_placement in ("post", "both"):
                block |= norm("ln2_post", stream)
        block["hook_resid_post"] = stream
        names |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    if cfg.normalization_type and cfg.final_norm:
        names |= norm("ln_final", stream)
    return names | {"unembed.hook_in": stream, "unembed.hook_out": (batch, pos, V)}


def switches_for(cfg: TransformerConfig) -> list[str]:
    """The hook switches that a model with this config has."""
    return [switch for switch in SWITCHES if cfg.d_mlp or switch != "use_hook_mlp_in"]
