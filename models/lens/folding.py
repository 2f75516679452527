"""Equivalent weights: fold norm gains into what reads them, centre matrices."""

from __future__ import annotations

import torch

from models.errors import UserError
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.weights import Weights


def folded_norms(cfg: TransformerConfig, weights: Weights) -> Weights:
    """All weights of a model with equal logits whose norms have gain one (and LayerNorms bias zero).

    ``x / scale * w`` read by ``W`` is ``x / scale`` read by ``w[:, None] * W``. After folding, the columns of ``W_U``
    are the directions that ``ActivationCache.logit_attrs`` and ``direct_logit_attribution`` take them for, and their
    attributions add up to the logit (minus ``b_U``); before, they miss the final norm's gain (in MicroAdder up to a
    factor of 15 a dimension), here as in a HookedTransformer. The MLP norm of a gated MLP with LayerNorm keeps its
    gain: its bias would have to enter the gate, which has none.

    Raises:
        UserError: post-norms, whose gain scales the residual stream itself and cannot be folded into a reader.
    """
    if cfg.has_post_norm:
        raise UserError("Norms that follow the residual sum cannot be folded: their gain scales the stream itself.")
    weights = dict(weights)
    for layer in range(cfg.n_layers if cfg.has_pre_norm else 0):
        block = in_block(layer)
        for letter in "QKV":
            _fold(weights, f"{block}.ln1", f"{block}.attn.W_{letter}", f"{block}.attn.b_{letter}")
        _reset(weights, f"{block}.ln1")
        if cfg.d_mlp and not (cfg.gated_mlp and cfg.normalization_type == "LN"):
            _fold(weights, f"{block}.ln2", f"{block}.mlp.W_in", f"{block}.mlp.b_in")
            if cfg.gated_mlp:
                _fold(weights, f"{block}.ln2", f"{block}.mlp.W_gate", None)
            _reset(weights, f"{block}.ln2")
    if cfg.has_final_norm:
        _fold(weights, "ln_final", "unembed.W_U", "unembed.b_U")
        _reset(weights, "ln_final")
    return weights


def reads_are_centred(cfg: TransformerConfig) -> bool:
    """Whether everything that reads the residual stream does so through a LayerNorm, which subtracts the mean."""
    return cfg.normalization_type == "LN" and cfg.norm_placement == "pre" and cfg.final_norm


def centred_writes(cfg: TransformerConfig, weights: Weights) -> Weights:
    """The weights, with everything they write to the residual stream centred over d_model.

    Raises:
        UserError: a reader that sees the mean.
    """
    if not reads_are_centred(cfg):
        raise UserError(
            "Writing weights can be centred only where every reader of the stream has LayerNorm before it; this model "
            f"has normalization_type={cfg.normalization_type!r} and norm_placement={cfg.norm_placement!r}."
        )
    writes = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")
    return {
        key: value - value.mean(-1, keepdim=True) if key.rsplit(".", 1)[1] in writes else value
        for key, value in weights.items()
    }


def centred_unembed(weights: Weights) -> Weights:
    """The weights with ``W_U`` and ``b_U`` of mean zero over tokens."""
    means = ("unembed.W_U", "unembed.b_U")
    return {key: value - value.mean(-1, keepdim=True) if key in means else value for key, value in weights.items()}


def folded_value_biases(cfg: TransformerConfig, weights: Weights) -> Weights:
    """The weights with ``b_V`` moved into ``b_O``, which becomes ``b_O + sum_h b_V W_O``."""
    weights = dict(weights)
    for layer in range(cfg.n_layers):
        attn = in_block(layer, "attn")
        b_v = weights.get(f"{attn}.b_V")
        if b_v is not None:
            written = torch.einsum("hd,hdm->m", b_v, weights[f"{attn}.W_O"])
            weights[f"{attn}.b_O"] = weights.get(f"{attn}.b_O", torch.zeros_like(written)) + written
            weights[f"{attn}.b_V"] = torch.zeros_like(b_v)
    return weights


def _fold(weights: Weights, norm: str, matrix: str, bias: str | None) -> None:
    """Fold gain and bias of ``norm`` into a matrix [..., d_model, out] that reads it, and its bias [..., out]."""
    if bias is not None and f"{norm}.b" in weights:
        weights[bias] = weights[bias] + weights[f"{norm}.b"] @ weights[matrix]
    weights[matrix] = weights[f"{norm}.w"][:, None] * weights[matrix]


def _reset(weights: Weights, norm: str) -> None:
    weights[f"{norm}.w"] = torch.ones_like(weights[f"{norm}.w"])
    if f"{norm}.b" in weights:
        weights[f"{norm}.b"] = torch.zeros_like(weights[f"{norm}.b"])
