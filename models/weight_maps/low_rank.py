"""Matrices as products of thin factors: ``W = A B`` with A rows x rank and B rank x columns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from models.weight_maps.weight_map import normal_


class Factors(nn.Module):
    """A matrix of the given rank, or with ``rank=None`` a full one, as free parameters.

    It has ``rank (rows + columns)`` numbers instead of ``rows columns``, which is fewer if the rank is below half their
    harmonic mean.
    """

    def __init__(self, rows: int, columns: int, rank: int | None):
        super().__init__()
        self.rows, self.columns, self.rank = rows, columns, rank
        if rank is None:
            self.W = nn.Parameter(torch.zeros(rows, columns))
        else:
            self.A = nn.Parameter(torch.zeros(rows, rank))
            self.B = nn.Parameter(torch.zeros(rank, columns))

    def forward(self) -> Float[Tensor, "rows columns"]:
        """The matrix. The product is taken in float64 and rounded once, so that it is the same on every processor.

        In float32, processors add the terms in different orders, and a certificate is about every bit of a weight.
        """
        return self.W if self.rank is None else (self.A.double() @ self.B.double()).to(self.A.dtype)

    def initialise_table(self, std: float, generator: torch.Generator) -> None:
        """Draw every number from N(0, std^2), for both factors of an embedding or the full table."""
        for parameter in self.parameters():
            normal_(parameter, std, generator)

    def initialise_linear(self, std: float, generator: torch.Generator) -> None:
        """Draw factors by :func:`thin_normal_`, and a full matrix from N(0, std^2)."""
        for parameter in self.parameters():
            if self.rank is None:
                normal_(parameter, std, generator)
            else:
                thin_normal_(parameter, generator)

    def describe(self) -> str:
        """ "7x14", or "7x3 + 3x14" in factors."""
        if self.rank is None:
            return f"{self.rows}x{self.columns}"
        return f"{self.rows}x{self.rank} + {self.rank}x{self.columns}"


def thin_normal_(tensor: Tensor, generator: torch.Generator) -> None:
    """Draw from N(0, 2 / (rows + columns)), Glorot's variance for a factor on its own."""
    normal_(tensor, (2.0 / (tensor.shape[0] + tensor.shape[1])) ** 0.5, generator)
