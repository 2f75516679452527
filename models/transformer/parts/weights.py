"""Effective weights: what a weight map produces and the forward pass reads.

``Weights`` is a plain dictionary whose keys are the parameter names of a real ``HookedTransformer``
(``embed.W_E``, ``pos_embed.W_pos``, ``blocks.0.attn.W_Q``, ``blocks.0.ln1.w``, ...) and whose shapes are its
shapes, so an export is one ``load_state_dict`` and every tool sees ordinary matrices. Biases may be left out; then they
are zero and cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from models.errors import UserError, unknown_name
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block

Weights = dict[str, Tensor]

_HALF = (torch.float16, torch.bfloat16)
_BIASES = ("b", "b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "b_U")


def under(path: str, **weights: Tensor) -> Weights:
    """The weights of a component by their full names: ``under("blocks.0.attn", W_Q=w_q)``."""
    return {f"{path}.{name}": value for name, value in weights.items()}


def weight_shapes(cfg: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """Every weight that a model with this config can have, with its shape, in HookedTransformer's names."""
    D, H, d, M, V = cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_mlp, cfg.d_vocab
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (V, D)}
    if cfg.positional_embedding_type == "standard":
        shapes["pos_embed.W_pos"] = (cfg.n_ctx, D)
    elif cfg.positional_embedding_type == "coupled":
        shapes["pos_embed.W_pos"] = (cfg.n_position_levels, cfg.position_rows, D)
    elif cfg.positional_embedding_type == "fire":
        shapes |= {"fire.W_in": (1, 32), "fire.b_in": (32,), "fire.W_mid": (32, 32), "fire.b_mid": (32,)}
        shapes |= {"fire.W_out": (32, H), "fire.b_out": (H,)}
    norm = {"w": (D,), "b": (D,)} if cfg.normalization_type == "LN" else {"w": (D,)}
    for layer in range(cfg.n_layers):
        block = in_block(layer)
        for name in _norm_names(cfg):
            shapes |= {f"{block}.{name}.{key}": shape for key, shape in norm.items()}
        shapes |= {f"{block}.attn.W_{x}": (H, D, d) for x in "QKV"} | {f"{block}.attn.W_O": (H, d, D)}
        shapes |= {f"{block}.attn.b_{x}": (H, d) for x in "QKV"} | {f"{block}.attn.b_O": (D,)}
        if cfg.use_qk_norm:
            shapes |= {f"{block}.attn.{x}_norm.w": (d,) for x in "qk"}
        if cfg.attn_bias:
            shapes[f"{block}.attn.bias"] = (H, cfg.n_ctx, cfg.n_ctx)
        if cfg.layer_mix:
            shapes[f"{block}.mix"] = ()
        if cfg.d_mlp:
            if cfg.gated_mlp:
                shapes[f"{block}.mlp.W_gate"] = (D, M)
            shapes |= {f"{block}.mlp.W_in": (D, M), f"{block}.mlp.b_in": (M,)}
            shapes |= {f"{block}.mlp.W_out": (M, D), f"{block}.mlp.b_out": (D,)}
    if cfg.has_final_norm:
        final = {"w": (D,)} if cfg.final_gain else norm
        shapes |= {f"ln_final.{key}": shape for key, shape in final.items()}
    return shapes | {"unembed.W_U": (D, cfg.n_logits), "unembed.b_U": (cfg.n_logits,)}


def _norm_names(cfg: TransformerConfig) -> list[str]:
    sublayers = ("ln1", "ln2") if cfg.d_mlp else ("ln1",)
    pre = [name for name in sublayers if cfg.has_pre_norm]
    return pre + [f"{name}_post" for name in sublayers if cfg.has_post_norm]


def is_bias(key: str) -> bool:
    """Whether a weight may be left out of a weight map's output (then it is zero)."""
    return key.rsplit(".", 1)[1] in _BIASES and not key.startswith("fire.")


def require_weights(weights: Mapping[str, Any], cfg: TransformerConfig) -> None:
    """Check that these are all weights of a model with this config, biases aside, by their names and shapes.

    Raises:
        UserError: the first name that is missing, unknown (with the closest one) or of another shape.
    """
    shapes = weight_shapes(cfg)
    for key, value in weights.items():
        if key not in shapes:
            raise unknown_name("weight", key, shapes)
        if not isinstance(value, Tensor) or tuple(value.shape) != shapes[key]:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"The weight {key} has shape {shapes[key]} in a model of this config, and {found} here.")
    for key in shapes:
        if key not in weights and not is_bias(key):
            raise UserError(f"The weight {key} is missing; only biases may be left out.")


def with_biases(weights: Weights, cfg: TransformerConfig) -> Weights:
    """``weights`` with every missing bias filled in by zeros: HookedTransformer's full state dict."""
    like = weights["embed.W_E"]
    return {
        key: weights[key] if key in weights else torch.zeros(shape, dtype=like.dtype, device=like.device)
        for key, shape in weight_shapes(cfg).items()
        if key in weights or is_bias(key)
    }


def weight_view(key: str) -> property:
    """A read-only attribute of a component: ``attn.W_Q`` is the model's effective weight ``blocks.0.attn.W_Q``."""

    def read(component: WeightView) -> Tensor:
        model, full_key = component._root[0], f"{component.name}.{key}"
        if full_key not in model.weight_shapes:
            raise AttributeError(f"This model has no {full_key}.")
        return model.effective_weight(full_key)

    def refuse(component: WeightView, value: Any) -> None:
        raise UserError(
            f"{component.name}.{key} is computed by the weight map and cannot be assigned: use a hook, pass "
            "forward(..., weights=...), or write into the weights of model.dense_copy()."
        )

    return property(read, refuse)


class WeightView(nn.Module):
    """A component that owns hook points but no parameters, and reads its weights from those passed to the forward.

    ``name`` is the component's path in the model (``blocks.0.attn``); :meth:`HookedRootModule.setup` sets it.
    Called without ``weights``, as TransformerLens' tools call ``model.ln_final(x)``, a component uses its model's.
    """

    name: str

    def __init__(self, cfg: TransformerConfig):
        super().__init__()
        self.config = cfg
        self._root: tuple[Any, ...] = ()  # the model; in a tuple, so that it does not become a child

    def weights_or_own(self, weights: Weights | None) -> Weights:
        """``weights``, or the effective weights of the model that this component belongs to."""
        return self._root[0].cached_weights() if weights is None else weights

    def get(self, weights: Weights, key: str) -> Tensor:
        return weights[f"{self.name}.{key}"]

    def affine(self, x: Tensor, weights: Weights, matrix: Tensor, bias: str) -> Tensor:
        """``x @ matrix + bias``, [*batch, in] to [*batch, out]; a bias that is not there is zero.

        It is one product, whose sum the bias is a part of. In half precision, and of a single vector, the bias is added
        afterwards: what is added up part by part then stays near the whole.
        """
        b = weights.get(f"{self.name}.{bias}")
        if b is None:
            return x @ matrix
        autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
        if x.ndim == 1 or x.dtype in _HALF or autocast:
            return x @ matrix + b.flatten()
        return torch.addmm(b.flatten(), x.flatten(0, -2), matrix).unflatten(0, x.shape[:-1])

    def add_bias(self, x: Tensor, weights: Weights, key: str) -> Tensor:
        bias = weights.get(f"{self.name}.{key}")
        return x if bias is None else x + bias
