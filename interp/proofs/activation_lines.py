"""Lines above and below an activation on an interval.

For a slope k, the best line ``k z + c`` below f on [low, high] has ``c = min (f(z) - k z)``. It is found on a grid of
points: between neighbours at a distance of s, f - k z lies within ``max |f''| s^2 / 8`` of its chord.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.balls import CURVED, SHAPES
from interp.proofs.enclosures import activation

GRID = 33


def slope(name: str, z: Tensor) -> Tensor:
    """Its derivative; a guess, on whose value no bound depends."""
    if name == "relu":
        return (z > 0).double()
    if name == "silu":
        s = torch.sigmoid(z)
        return s + z * s * (1 - s)
    return torch.special.ndtr(z) + z * torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def value_range(name: str, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The least and largest values on intervals: it falls to one turning point, and rises after it."""
    ends = activation(name, low), activation(name, high)
    slack = 1e-12 * (low.abs() + high.abs() + 1)
    least, most = torch.minimum(*ends) - slack, torch.maximum(*ends) + slack
    if name == "relu":
        return least, most
    left, right, bottom, _ = SHAPES[name]
    return torch.where((low < right) & (high > left), least.clamp_max(bottom), least), most


def lines(
    name: str, low: Float[Tensor, "*n"], high: Float[Tensor, "*n"], middle: Float[Tensor, "*n"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(slope below, constant below, slope above, constant above), each [kind, *n]: several pairs of lines that enclose
    the activation on [low, high]. ``middle`` says where values are to be expected."""
    width = (high - low).clamp_min(1e-9)
    middle = torch.minimum(torch.maximum(middle, low), high)
    z = low + torch.linspace(0, 1, GRID, dtype=torch.float64).view(-1, *[1] * low.ndim) * (high - low)
    f = activation(name, z)
    chord = (f[-1] - f[0]) / width
    away = z - z.mean(0)
    fitted = (f * away).sum(0) / (away**2).sum(0).clamp_min(1e-18)
    tangent = slope(name, middle)
    under = torch.stack((tangent, fitted, chord, tangent))
    above = torch.stack((chord, fitted, chord, tangent))
    slack = 1e-12 * (low.abs() + high.abs() + 1)
    if name == "relu":
        ends = torch.stack((z[0], z[-1], torch.zeros_like(low).clamp(low, high)))  # where a difference has extremes
        z, f = ends, activation(name, ends)
    else:
        slack = slack + CURVED[name] / 8 * ((high - low) / (GRID - 1)) ** 2 * 1.01
    constant_under = torch.stack([(f - k * z).amin(0) for k in under]) - slack
    constant_above = torch.stack([(f - k * z).amax(0) for k in above]) + slack
    return under, constant_under, above, constant_above
