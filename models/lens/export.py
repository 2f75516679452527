"""Copies of a model as stock TransformerLens models, with logits that are equal up to rounding.

A copy has the same weights to the bit. It sums in another order, and the native bridge's norms compute in float32
whatever its dtype is: at the positions that are read, logits of microadder-57 (up to 1,428) then differ by up to 0.023
in float32 and 0.055 in float64, on 500 problems. Its smallest proved margin is 0.105, so that a certificate is about
the model and not about its copy.

``HookedTransformer`` exists up to transformer-lens 3.9, and the native ``TransformerBridge`` with a converter for its
weight names from 4.0 on, so each export works under one of them and says so under the other. A model with a part that
the stock architecture lacks is refused with the name of the switch: an export never approximates.
"""

from __future__ import annotations

from typing import Any

import torch
import transformer_lens
from torch import Tensor

from models.errors import UserError
from models.lens.lens_contract import LensContract
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.weights import Weights

#: Config fields that have the same name and meaning here and in TransformerLens.
SAME_FIELDS = ("n_layers", "d_model", "n_heads", "d_head", "d_vocab", "n_ctx", "eps")


def to_hooked_transformer(model: LensContract) -> Any:
    """The model as a ``HookedTransformer`` with the same weights, hook names and logits (transformer-lens 3.9).

    Raises:
        UserError: under transformer-lens 4, which has no HookedTransformer, or for a switch that it cannot express.
    """
    cfg = model.config
    _refuse_unless_stock(cfg, "HookedTransformer")
    stock: Any = transformer_lens  # its contents depend on the version
    try:
        HookedTransformer, HookedTransformerConfig = stock.HookedTransformer, stock.HookedTransformerConfig
    except (ImportError, AttributeError):
        raise UserError(
            "transformer-lens 4 has no HookedTransformer: install transformer-lens 3.9, or use to_transformer_bridge()."
        ) from None
    hooked = HookedTransformer(
        HookedTransformerConfig(
            **_shared_options(cfg),
            attn_scale=cfg.score_scale,
            rotary_adjacent_pairs=cfg.rotary_adjacent_pairs,
            rotary_base=cfg.rotary_base,
            use_qk_norm=cfg.use_qk_norm,
            default_prepend_bos=False,
            device=str(model.device),
            dtype=model.dtype,
        )
    )
    missing, unexpected = hooked.load_state_dict(_stock_weights(model), strict=False)
    parameters = set(dict(hooked.named_parameters()))
    assert not unexpected and not parameters & set(missing), (missing, unexpected)  # only buffers may be missing
    return hooked.eval()


def to_transformer_bridge(model: LensContract) -> Any:
    """The model as a native ``TransformerBridge`` with logits that are equal up to rounding (transformer-lens 4), which
    is float32's also in float64.

    The bridge rotates adjacent pairs only. For the other pairing, the columns of ``W_Q`` and ``W_K`` are reordered in
    the same way, which leaves every score as it is.

    Raises:
        UserError: under transformer-lens 3, or for a switch or a weight that the native bridge cannot express.
    """
    cfg, weights = model.config, _stock_weights(model)
    _refuse_unless_stock(cfg, "the native TransformerBridge")
    if cfg.use_qk_norm:
        raise UserError("The native TransformerBridge cannot express use_qk_norm=True.")
    _refuse_biases_without_a_place(cfg, weights)
    if cfg.rotary_base != int(cfg.rotary_base):
        raise UserError(
            f"The native TransformerBridge cannot express rotary_base={cfg.rotary_base}: it takes integers."
        )
    try:
        from transformer_lens.config import TransformerBridgeConfig
        from transformer_lens.model_bridge.sources.native import boot
        from transformer_lens.utilities.tl_checkpoint_conversion import convert_tl_checkpoint
    except ImportError:
        raise UserError(
            "to_transformer_bridge() needs transformer-lens 4; under 3.9 use to_hooked_transformer()."
        ) from None
    bridge_cfg = TransformerBridgeConfig(
        **_shared_options(cfg),
        attn_scale=_bridge_scale(cfg),
        rotary_base=int(cfg.rotary_base),
        dtype=model.dtype,
        architecture="TransformerLensNative",
    )
    if cfg.positional_embedding_type == "rotary" and not cfg.rotary_adjacent_pairs:
        _pair_neighbours(cfg, weights)
    bridge = boot(bridge_cfg, device=model.device, dtype=model.dtype, model_name=model.name_or_path or "native")
    bridge.load_state_dict(convert_tl_checkpoint(weights, bridge_cfg), strict=True)
    return bridge.eval()


def _refuse_unless_stock(cfg: TransformerConfig, target: str) -> None:
    """Raise UserError naming the first switch whose setting has no counterpart in a stock TransformerLens model."""
    normed = cfg.normalization_type is not None
    reasons = {
        "positional_embedding_type": (
            cfg.positional_embedding_type in ("coupled", "fire"),
            "it has learned, rotary or no positions",
        ),
        "attn_scores": (cfg.attn_scores != "dot", "its scores are dot products"),
        "attn_top_k": (cfg.attn_top_k is not None, "its softmax runs over all keys"),
        "norm_placement": (normed and cfg.norm_placement != "pre", "it normalises before each sublayer"),
        "final_norm": (normed and not cfg.final_norm, "it has a final norm whenever its blocks have norms"),
        "norm_groups": (normed and cfg.norm_groups > 1, "its norms are over the whole stream"),
        "attn_bias": (cfg.attn_bias, "it adds nothing to its scores"),
        "attn_softmax": (cfg.attn_softmax != "softmax", "its attention adds up to one"),
        "final_gain": (cfg.final_gain, "without norms it has no gain"),
        "layer_mix": (cfg.layer_mix, "its layers count in full"),
        "rotary_dim": (cfg.rotated != cfg.d_head, "it rotates whole heads"),
        "rotary_frequencies": (cfg.rotary_frequencies is not None, "its frequencies are powers of a base"),
        "parallel_attn_mlp": (cfg.parallel_attn_mlp, "its MLP reads what attention has written"),
        "rotary_scaling_factor": (cfg.rotary_scaling_factor != 1.0, "its rotary positions are not scaled"),
        "norm_eps_outside": (normed and cfg.norm_eps_outside, "its norms have eps inside the root"),
    }
    for switch, (prevents, because) in reasons.items():
        if prevents:
            raise UserError(f"{target} cannot express {switch}={getattr(cfg, switch)!r}: {because}.")


def _refuse_biases_without_a_place(cfg: TransformerConfig, weights: Weights) -> None:
    """Drop zero biases of a gated MLP, which the native bridge does not have, and refuse other ones."""
    if not cfg.gated_mlp:
        return
    for key in [key for key in weights if key.endswith((".mlp.b_in", ".mlp.b_out"))]:
        if weights.pop(key).any():
            raise UserError(f"The native TransformerBridge cannot express {key}: its gated MLP has no biases.")


def _shared_options(cfg: TransformerConfig) -> dict[str, Any]:
    """Config fields with the same name and meaning in HookedTransformerConfig and TransformerBridgeConfig."""
    alike = (*SAME_FIELDS, "d_mlp", "act_fn", "gated_mlp", "normalization_type")
    return {name: getattr(cfg, name) for name in alike} | {
        "d_vocab_out": cfg.n_logits,
        "attn_only": cfg.d_mlp == 0,
        # "none" is a table of zeros: equal logits, and one more hook
        "positional_embedding_type": "rotary" if cfg.positional_embedding_type == "rotary" else "standard",
        "rotary_dim": cfg.d_head if cfg.positional_embedding_type == "rotary" else None,
        "init_weights": False,
    }


def _stock_weights(model: LensContract) -> Weights:
    """Detached copies of all effective weights, with zero biases and a position table filled in."""
    cfg = model.config
    weights = {key: tensor.detach().clone() for key, tensor in model.all_weights().items()}
    if cfg.positional_embedding_type == "none":
        weights["pos_embed.W_pos"] = weights["embed.W_E"].new_zeros(cfg.n_ctx, cfg.d_model)
    return weights


def _bridge_scale(cfg: TransformerConfig) -> float:
    """The scale for a bridge, which refuses exactly 1.0 as a mistaken default; 1 + 2e-9 rounds to 1 in float32."""
    return 1.0 + 2e-9 if cfg.score_scale == 1.0 and cfg.d_head > 1 else cfg.score_scale


def _pair_neighbours(cfg: TransformerConfig, weights: Weights) -> None:
    """Reorder query and key columns so that (i, i + d/2), the pair of the NeoX convention, become neighbours."""
    order = torch.arange(cfg.d_head).view(2, -1).T.flatten()

    def reorder(tensor: Tensor) -> Tensor:
        return tensor[..., order.to(tensor.device)]

    for layer in range(cfg.n_layers):
        for name in ("W_Q", "W_K", "b_Q", "b_K"):
            key = in_block(layer, f"attn.{name}")
            weights[key] = reorder(weights[key])
