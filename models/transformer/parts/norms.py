"""LayerNorm and RMSNorm with TransformerLens' two hooks."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.modules import module as torch_module

from models.transformer.config import TransformerConfig
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.weights import Weights, WeightView, weight_view

_OF_ALL_MODULES = tuple(f"_global_{kind}_hooks" for kind in ("forward", "forward_pre", "backward", "backward_pre"))


class Norm(WeightView):
    """``x / scale * w (+ b)``: ``hook_scale`` is the divisor, ``hook_normalized`` is ``x / scale`` before ``w``.

    * RMS: ``scale = sqrt(mean(x^2) + eps)``, or ``sqrt(mean(x^2)) + eps`` with ``norm_eps_outside``.
    * LN: the same after subtracting the mean over the last axis.
    * gain: ``scale`` is 1 (``final_gain``).

    With ``norm_groups`` each group of entries has its own scale.

    Half-precision residual streams are normalised in float32, as in TransformerLens.
    """

    w, b = weight_view("w"), weight_view("b")  # [d_model]

    def __init__(self, cfg: TransformerConfig, kind: Literal["LN", "RMS", "gain"] | None = None):
        """``kind`` defaults to the config's, with its groups."""
        super().__init__(cfg)
        self.kind, self.eps = kind or cfg.normalization_type, cfg.eps
        self.groups = cfg.norm_groups if kind is None else 1
        self.hook_scale = HookPoint()  # [batch, pos, 1]; with groups [batch, pos, d_model]
        self.hook_normalized = HookPoint()  # [batch, pos, d_model]

    @property
    def watched(self) -> bool:
        """Whether a hook would see or change what this norm computes, or its gradients."""
        return any(
            part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
            for part in (self, self.hook_scale, self.hook_normalized)
        ) or any(getattr(torch_module, kind) for kind in _OF_ALL_MODULES)

    def forward(
        self, x: Float[Tensor, "*batch d_model"], weights: Weights | None = None
    ) -> Float[Tensor, "*batch d_model"]:
        weights, dtype = self.weights_or_own(weights), x.dtype
        if self.kind == "gain":
            x = self.hook_normalized(x / self.hook_scale(torch.ones_like(x[..., :1])))
            return x * self.get(weights, "w")
        x = x.to(torch.promote_types(dtype, torch.float32))
        if self.kind == "LN":
            x = x - x.mean(-1, keepdim=True)
        square = self._mean(x.pow(2))
        outside = self.config.norm_eps_outside
        scale = self.hook_scale(square.sqrt() + self.eps if outside else (square + self.eps).sqrt())
        x, gain = self.hook_normalized(x / scale).to(dtype), self.get(weights, "w")
        bias = weights.get(f"{self.name}.b")
        return x * gain if bias is None else torch.addcmul(bias, x, gain)

    def _mean(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch one_or_d_model"]:
        """The mean over the last axis; with groups every entry's over its group."""
        if self.groups == 1:
            return x.mean(-1, keepdim=True)
        grouped = x.unflatten(-1, (self.groups, -1))
        return grouped.mean(-1, keepdim=True).expand_as(grouped).flatten(-2)
