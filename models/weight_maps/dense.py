"""The identity map: every effective weight is a free parameter, as in a stock transformer."""

from __future__ import annotations

import torch

from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights, is_bias, require_weights, weight_shapes
from models.weight_maps.weight_map import WeightMap, fill_, normal_

#: From this width on matrices of heads are laid out as products take them.
WIDE = 256


class DenseWeights(WeightMap):
    """All weights free. GPT-2 initialisation: N(0, 0.02), output projections scaled by 1/sqrt(2 layers), norms 1."""

    def __init__(self, cfg: TransformerConfig, biases: bool = True):
        super().__init__(cfg)
        self.add_parameters({k: shape for k, shape in weight_shapes(cfg).items() if biases or not is_bias(k)})

    @classmethod
    def holding(cls, cfg: TransformerConfig, weights: Weights) -> DenseWeights:
        """A map whose parameters are copies of these weights, with their dtype and device; missing biases are zero.

        Raises:
            UserError: a matrix or a norm's gain is missing, the config does not have a name, or a shape is not its own.
        """
        require_weights(weights, cfg)
        like = weights["embed.W_E"]
        dense = cls(cfg).to(device=like.device, dtype=like.dtype)
        with torch.no_grad():
            for key, parameter in dense.own().items():
                if (value := weights.get(key)) is None:
                    continue
                if cfg.d_model >= WIDE and key.endswith(("attn.W_Q", "attn.W_K", "attn.W_V")):
                    # As the product of all heads takes it, [d_model, head, d_head]: else every run would copy it.
                    laid_out = value.transpose(0, 1).clone(memory_format=torch.contiguous_format)
                    parameter.data = laid_out.transpose(0, 1)
                else:
                    parameter.copy_(value)
        return dense

    def forward(self) -> Weights:
        return self.own()

    def initialise(self, generator: torch.Generator) -> None:
        for name, parameter in self.named_parameters():
            kind = name.rsplit("/", 1)[1]
            if kind == "w":
                fill_(parameter, 1.0)
            elif kind.startswith("W_"):
                output = kind in ("W_O", "W_out") and name.startswith("blocks")
                normal_(parameter, 0.02 / (2 * self.config.n_layers) ** 0.5 if output else 0.02, generator)
            else:
                fill_(parameter, 0.0)

    def decay_mask(self) -> dict[str, bool]:
        matmul = ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_gate", "W_out", "W_U")
        return {name: name.rsplit("/", 1)[-1] in matmul for name, _ in self.named_parameters()}
