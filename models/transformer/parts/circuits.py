"""The QK and OV circuits of Elhage et al. (2021): what a head reads and writes, as one matrix each."""

from __future__ import annotations

from typing import Any

from transformer_lens import FactoredMatrix


class HeadCircuits:
    """QK and OV for anything with heads' weights [..., head, d_model, d_head]: one layer, or all layers."""

    W_Q: Any
    W_K: Any
    W_V: Any
    W_O: Any

    @property
    def QK(self) -> FactoredMatrix:
        """``W_Q W_K^T`` of each head, factored: [..., head, d_model, d_model]."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    @property
    def OV(self) -> FactoredMatrix:
        """``W_V W_O`` of each head, factored: [..., head, d_model, d_model]."""
        return FactoredMatrix(self.W_V, self.W_O)
