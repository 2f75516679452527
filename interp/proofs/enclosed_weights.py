"""A model's weights as its enclosed forward pass reads them."""

from __future__ import annotations

from torch import Tensor

from interp.proofs.enclosures import Matrix, Rounding
from models.transformer.config import TransformerConfig


class EnclosedWeights:
    """What a forward pass in balls reads of a model: its config, weights in float64, its matrices with their norms, and
    the rounding of its arithmetic."""

    def __init__(self, config: TransformerConfig, weights: dict[str, Tensor], rounding: Rounding):
        self.config, self.rounding = config, rounding
        kept = {name: value.detach().double() for name, value in weights.items()}
        # Adding zeros is exact.
        self.weights = {
            name: value for name, value in kept.items() if name.split(".")[-1][0] != "b" or bool(value.any())
        }
        self.matrices = {
            name: Matrix.of(self._flat(name), config.n_heads if name.endswith(("W_Q", "W_K", "W_V")) else 1)
            for name in weights
            if self._is_matrix(name)
        }

    @staticmethod
    def _is_matrix(name: str) -> bool:
        return name.rsplit(".", 1)[1] in ("W_Q", "W_K", "W_V", "W_O", "W_in", "W_gate", "W_out", "W_U")

    def _flat(self, name: str) -> Tensor:
        """A weight as a matrix [input, output], without its head axis."""
        value = self.weights[name]
        if value.ndim == 3:
            return value.flatten(0, 1) if name.endswith("W_O") else value.transpose(0, 1).flatten(1)
        return value
