"""Matrices with few free numbers: constant diagonals, cyclic rows, scaled axes, low rank."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from models.errors import UserError


def toeplitz(numbers: Float[Tensor, " diagonal"], rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """``M[i, j] = numbers[i - j + columns - 1]``: one number per diagonal, rows + columns - 1 of them.

    MicroAdder, section 7.2 (proposed there, not tried).
    """
    _check("A Toeplitz", numbers, rows + columns - 1)
    i, j = torch.arange(rows, device=numbers.device), torch.arange(columns, device=numbers.device)
    return numbers[i[:, None] - j + columns - 1]


def circulant(numbers: Float[Tensor, " rows"], rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """``M[i, j] = numbers[(i - j) mod rows]``: the first ``columns`` columns of a cyclic matrix.

    MicroAdder, section 7.2 (proposed there, not tried).
    """
    _check("A circulant", numbers, rows)
    i, j = torch.arange(rows, device=numbers.device), torch.arange(columns, device=numbers.device)
    return numbers[(i[:, None] - j) % rows]


def scaled_axes(numbers: Float[Tensor, " axis"], rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """A diagonal matrix, filled up with zeros: axis i of the input goes to row i, ``numbers[i]`` times as long."""
    n = min(rows, columns)
    _check("A diagonal", numbers, n)
    eye = torch.eye(rows, columns, device=numbers.device, dtype=numbers.dtype)
    return eye[:, :n] @ (numbers[:, None] * eye[:n])


def _check(kind: str, numbers: Tensor, expected: int) -> None:
    if numbers.shape != (expected,):
        raise UserError(f"{kind} matrix of this shape has {expected} numbers, not {list(numbers.shape)}.")
