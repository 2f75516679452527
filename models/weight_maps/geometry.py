"""Embeddings given by a few numbers: circular arcs for digits, spirals for columns."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def circular_arc(
    radius: Float[Tensor, ""], start: Float[Tensor, ""], stride: Float[Tensor, ""], n: int
) -> Float[Tensor, "n 2"]:
    """``radius * [cos(start + d stride), sin(start + d stride)]`` for d = 0..n-1; angles in radians.

    MicroAdder, section 2.1. Three numbers for a table of 20, and all rows have the same norm, which is what
    makes the attention of these models independent of the digits.
    """
    angle = start + stride * torch.arange(n, device=radius.device, dtype=radius.dtype)
    return radius * torch.stack((angle.cos(), angle.sin()), -1)


def spiral(
    amp: Float[Tensor, ""],
    phase: Float[Tensor, ""],
    slope: Float[Tensor, ""],
    offset: Float[Tensor, ""],
    n: int,
    period: int | float = 10,
    first: int | float = 0,
) -> Float[Tensor, "n 3"]:
    """``[amp cos(2 pi i / period + phase), amp sin(2 pi i / period + phase), slope i + offset]`` for n columns.

    ``first`` is the first i.

    MicroAdder, section 2.2: the position of column i, shared by both operands and the answer.
    """
    i = torch.arange(first, first + n, device=amp.device, dtype=amp.dtype)
    angle = i * (2 * torch.pi / period) + phase
    return torch.stack((amp * angle.cos(), amp * angle.sin(), slope * i + offset), -1)


def rotate_pairs(matrix: Float[Tensor, "rows columns"], angle: Float[Tensor, ""]) -> Float[Tensor, "rows columns"]:
    """Rotate row pairs (0, 1), (2, 3), ... of ``matrix`` by ``angle``; an odd last row stays.

    MicroAdder, section 2.3: the tied query projection is the key projection rotated by one learned angle.
    """
    even = matrix.shape[0] // 2 * 2
    first, second = matrix[0:even:2], matrix[1:even:2]
    cos, sin = angle.cos(), angle.sin()
    turned = torch.stack((first * cos - second * sin, first * sin + second * cos), 1).flatten(0, 1)
    return torch.cat((turned, matrix[even:]))


def scaled_axes(numbers: Float[Tensor, " axis"], rows: int, columns: int) -> Float[Tensor, "rows columns"]:
    """A diagonal matrix, padded with zeros: axis i of the input goes to row i, multiplied by ``numbers[i]``."""
    n = min(rows, columns)
    eye = torch.eye(rows, columns, device=numbers.device, dtype=numbers.dtype)
    return eye[:, :n] @ (numbers[:, None] * eye[:n])


def mirrored_square(numbers: Float[Tensor, "2"]) -> Float[Tensor, "2 2"]:
    """``[[a, b], [b, a]]``, which commutes with the reflection that swaps the two axes."""
    i = torch.arange(2, device=numbers.device)
    return numbers[(i[:, None] - i) % 2]
