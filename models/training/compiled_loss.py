"""The common parts of the compiled objectives of one-layer models: which models they take, the autograd function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from models.training.native.compiled_kernels import pointers
from models.transformer.config import TransformerConfig

#: Turns arrays into a kernel's arguments: pointers, or one struct of pointers.
Arguments = Callable[[list[Tensor]], list[Any]]


def in_a_struct(arrays: list[Tensor]) -> list[Any]:
    """One C struct of pointers, which has the layout of an array of them."""
    return [(ctypes.c_void_p * len(arrays))(*(array.data_ptr() for array in arrays))]


def is_plain_layer(cfg: TransformerConfig) -> bool:
    """Whether a model is one layer with norms before each sublayer and at the end, softmax over all keys, learned
    positions, an MLP without gate, and no dropout. It may add fixed numbers to its scores."""
    return (
        cfg.n_layers == 1
        and cfg.normalization_type is not None
        and cfg.norm_placement == "pre"
        and not cfg.norm_eps_outside
        and cfg.final_norm
        and cfg.positional_embedding_type == "standard"
        and cfg.attn_scores == "dot"
        and cfg.attn_top_k is None
        and cfg.d_mlp > 0
        and not cfg.gated_mlp
        and not cfg.dropout
        and not {*cfg.later_switches} - {"attn_bias"}
    )


class FusedLoss(torch.autograd.Function):
    """The loss [seed] and its gradient with respect to all tables [seed, ...], in one pass over the rows."""

    @staticmethod
    def forward(
        ctx: Any, kernel: Any, arguments: Arguments, eps: float, tokens: Tensor, targets: Tensor, *tables: Tensor
    ) -> Tensor:
        arrays = [table.detach().contiguous() for table in tables]
        tokens, targets = tokens.contiguous(), targets.contiguous()
        loss = torch.empty(tokens.shape[0])
        gradients = [torch.zeros_like(array) for array in arrays]
        kernel.loss_and_gradient(
            tokens.shape[0],
            tokens.shape[2],
            *pointers([tokens, targets]),
            ctypes.c_float(eps),
            *arguments(arrays),
            *pointers([loss]),
            *arguments(gradients),
        )
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (g * grad.view(-1, *[1] * (g.ndim - 1)) for g in ctx.saved_tensors)
        return (None, None, None, None, None, *scaled)
