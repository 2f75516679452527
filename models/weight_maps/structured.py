"""Matrices with few free parameters: constant diagonals, cyclic rows, scaled axes, low rank."""

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
    """A diagonal matrix, padded with zeros: axis i of the input goes to row i, multiplied by ``numbers[i]``."""
    n = min(rows, columns)
    _check("A diagonal", numbers, n)
    eye = torch.eye(rows, columns, device=numbers.device, dtype=numbers.dtype)
    return eye[:, :n] @ (numbers[:, None] * eye[:n])


def scaled_basis(
    numbers: Float[Tensor, " column"], rows: int, columns: int, kind: str
) -> Float[Tensor, "rows columns"]:
    """The first columns of an orthonormal basis, ``numbers[j]`` times column j: "hadamard" (rows a power of two) or
    "dft", the real Fourier basis 1, cos 1, sin 1, cos 2, ...

    MicroAdder, section 7.2 (proposed there, not tried).
    """
    _check("A scaled", numbers, columns)
    i, j = torch.arange(rows, device=numbers.device)[:, None], torch.arange(columns, device=numbers.device)
    if kind == "hadamard":
        ones = sum((i >> bit) & (j >> bit) & 1 for bit in range(rows.bit_length()))
        basis = 1.0 - 2.0 * (torch.as_tensor(ones) % 2)
    else:
        angle = 2 * torch.pi * i * ((j + 1) // 2) / rows
        basis = torch.where((j % 2 == 1) | (j == 0), angle.cos(), angle.sin())
    return (basis / basis.norm(dim=0)).to(numbers.dtype) * numbers


def _check(kind: str, numbers: Tensor, expected: int) -> None:
    if numbers.shape != (expected,):
        raise UserError(f"{kind} matrix of this shape has {expected} numbers, not {list(numbers.shape)}.")
