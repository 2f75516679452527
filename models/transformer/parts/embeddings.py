"""From tokens to the residual stream, and from the stream to logits."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from models.transformer.config import TransformerConfig
from models.transformer.parts.hook_point import HookPoint
from models.transformer.parts.shapes import Stream, Tokens
from models.transformer.parts.weights import Weights, WeightView, weight_view


class Embed(WeightView):
    W_E = weight_view("W_E")  # [d_vocab, d_model]

    def forward(self, tokens: Tokens, weights: Weights | None = None) -> Stream:
        return self.get(self.weights_or_own(weights), "W_E")[tokens]


class Unembed(WeightView):
    W_U = weight_view("W_U")  # [d_model, d_vocab]
    b_U = weight_view("b_U")  # [d_vocab]

    def __init__(self, cfg: TransformerConfig):
        super().__init__(cfg)
        self.hook_in = HookPoint()  # [batch, pos, d_model]
        self.hook_out = HookPoint()  # [batch, pos, d_vocab]

    def forward(self, x: Stream, weights: Weights | None = None) -> Float[Tensor, "batch pos d_vocab"]:
        weights = self.weights_or_own(weights)
        return self.hook_out(self.affine(self.hook_in(x), weights, self.get(weights, "W_U"), "b_U"))
