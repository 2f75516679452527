"""Ternary weights: a sign or zero per entry, and one scale per matrix (AddLM, after BitNet b1.58)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from models.errors import UserError
from models.transformer.config import TransformerConfig
from models.transformer.hooked import HookedModel
from models.transformer.parts.weights import Weights, is_bias, weight_shapes
from models.weight_maps.weight_map import WeightMap, fill_, normal_, uniform_

#: The matrices that AddLM constrains; embeddings, positions, head and norms stay floats.
TERNARY = ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")

#: BitNet's guard against a matrix of zeros, whose scale would be zero.
SMALLEST_SCALE = 1e-5


@dataclass(frozen=True)
class TernaryMatrix:
    """``scale * values`` is the effective weight, exactly as the forward pass uses it."""

    values: Int8[Tensor, "*shape"]  # -1, 0 and 1
    scale: Float[Tensor, ""]

    @property
    def effective(self) -> Float[Tensor, "*shape"]:
        return self.scale * self.values


def ternarise(latent: Float[Tensor, "*shape"]) -> TernaryMatrix:
    """``scale = mean |W|``, ``values = clamp(round(W / scale), -1, 1)``: one scale for the whole tensor.

    Entries below half the mean magnitude become 0 (AddLM, architecture; BitNet b1.58, equations 1 to 3).
    """
    scale = _scale(latent)
    return TernaryMatrix(_signs(latent, scale).to(torch.int8), scale)


def straight_through(latent: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The ternary weight, whose gradient is passed to ``latent`` unchanged (Bengio et al., 2013).

    The latent weight enters as ``W - W``, which is zero to the last bit, so the value is ``scale * values`` exactly.
    """
    fixed = latent.detach()
    scale = _scale(fixed)
    return scale * _signs(fixed, scale) + (latent - fixed)


def _scale(latent: Tensor) -> Tensor:
    return latent.abs().mean().clamp(min=SMALLEST_SCALE)


def _signs(latent: Tensor, scale: Tensor) -> Tensor:
    return (latent / scale).round().clamp(-1, 1)


class TernaryWeights(WeightMap):
    """AddLM's weights: no biases except those of the norms, an untied unembedding, and optionally ternary projections.

    The parameters are the latent floats that training changes. The model computes with :meth:`ternary` times its
    scales, and analyses should read that.
    """

    def __init__(self, cfg: TransformerConfig, ternary: bool = True):
        super().__init__(cfg)
        self.is_ternary = ternary
        shapes = weight_shapes(cfg).items()  # "b" belongs to a norm
        self.add_parameters({k: shape for k, shape in shapes if not is_bias(k) or k.endswith(".b")})

    def _constrained(self, key: str) -> bool:
        return self.is_ternary and key.rsplit(".", 1)[1] in TERNARY

    def forward(self) -> Weights:
        return {k: straight_through(latent) if self._constrained(k) else latent for k, latent in self.own().items()}

    def ternary(self) -> dict[str, TernaryMatrix]:
        """Integer values and scale of every constrained matrix, by weight name; empty for the float baseline."""
        return {k: ternarise(latent.detach()) for k, latent in self.own().items() if self._constrained(k)}

    def initialise(self, generator: torch.Generator) -> None:
        """Initialise as torch: linear layers uniform within 1 / sqrt(fan-in), embeddings N(0, 1), norms 1 and 0."""
        cfg = self.config
        fan_in = {"W_O": cfg.n_heads * cfg.d_head, "W_out": cfg.d_mlp}
        for name, parameter in self.named_parameters():
            kind = name.rsplit("/", 1)[1]
            if kind in ("w", "b"):
                fill_(parameter, 1.0 if kind == "w" else 0.0)
            elif kind in ("W_E", "W_pos"):
                normal_(parameter, 1.0, generator)
            else:
                uniform_(parameter, fan_in.get(kind, cfg.d_model) ** -0.5, generator)


def ternary_matrices(model: HookedModel) -> dict[str, TernaryMatrix]:
    """Integer values and scale of every ternary weight, by weight name. Raises UserError if there are none."""
    found = model.weight_map.ternary() if isinstance(model.weight_map, TernaryWeights) else {}
    if not found:
        raise UserError(f"{model.name_or_path or 'This model'} has no ternary weights.")
    return found
