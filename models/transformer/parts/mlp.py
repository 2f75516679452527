"""The feed-forward sublayer, plain or gated."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from models.transformer.config import TransformerConfig
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.shapes import Stream
from models.transformer.parts.weights import Weights, WeightView, weight_view

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": torch.relu,
    "silu": F.silu,
}


class MLP(WeightView):
    """``act(x W_in + b_in) W_out + b_out``; gated: ``(act(x W_gate) * (x W_in) + b_in) W_out + b_out``.

    As in TransformerLens, ``hook_pre`` is what the activation reads (the gate branch of a gated MLP) and
    ``hook_pre_linear`` is the gated MLP's other branch.
    """

    W_in, W_gate = weight_view("W_in"), weight_view("W_gate")  # [d_model, d_mlp]
    W_out = weight_view("W_out")  # [d_mlp, d_model]
    b_in, b_out = weight_view("b_in"), weight_view("b_out")

    def __init__(self, cfg: TransformerConfig):
        super().__init__(cfg)
        self.hook_pre = HookPoint()  # [batch, pos, d_mlp]
        if cfg.gated_mlp:
            self.hook_pre_linear = HookPoint()
        self.hook_post = HookPoint()

    def forward(self, x: Stream, weights: Weights | None = None) -> Stream:
        weights = self.weights_or_own(weights)
        return self.write(self.hook_post(self.hidden(x, weights)), weights)

    def hidden(self, x: Float[Tensor, "*batch d_model"], weights: Weights) -> Float[Tensor, "*batch d_mlp"]:
        """The neurons' activations, which ``hook_post`` sees."""
        act = ACTIVATIONS[self.config.act_fn]
        w_in = self.get(weights, "W_in")
        if self.config.gated_mlp:
            linear = x @ w_in
            gate = self.hook_pre(x @ self.get(weights, "W_gate"))
            return self.add_bias(act(gate) * self.hook_pre_linear(linear), weights, "b_in")
        return act(self.hook_pre(self.affine(x, weights, w_in, "b_in")))

    def write(self, post: Float[Tensor, "*batch d_mlp"], weights: Weights) -> Float[Tensor, "*batch d_model"]:
        """What neurons with these activations add to the residual stream."""
        return self.affine(post, weights, self.get(weights, "W_out"), "b_out")
