"""What norms after attention round: bounds of how far a computed normed vector, and products with it, may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.enclosures import Rounding, norm_roundings
from interp.proofs.token_reading import OWN


@dataclass(frozen=True, eq=False)
class NormOf:
    """A norm: ``cent(x) / scale * gain + bias``, where ``cent`` subtracts the mean in LayerNorm."""

    gain: Float[Tensor, " d"]
    bias: Float[Tensor, " d"]


@runtime_checkable
class Norms(Protocol):
    """What all norms of a model share: the arithmetic, whether they subtract the mean, and what underflow of squares
    can do to one over a scale, relative to it."""

    rounding: Rounding
    centred: bool
    lost: float


def normed_off(
    norms: Norms, size: Tensor, norm: NormOf, low: Tensor, scale: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """Bounds of a normed vector's magnitudes and of its roundings, times ``scale``, for a stream of such magnitudes and
    a scale of at least ``low``.

    Half the mean square's roundings count, and those of the mean, the quotient, the gain and the bias; and what squares
    may lose by underflow. Relative to their scale, centred numbers are at most sqrt d.
    """
    grown, gain, bias = norms.rounding.growth, norm.gain.abs(), norm.bias.abs() * scale
    unit, common, shift = _unit(norms, size, low, scale)
    off = gain * ((common + grown(6)) * unit + shift) + grown(3) * (gain * unit + bias)
    return gain * unit + bias, off + 4 * norms.rounding.tiny * (1 + gain) * (1 + scale)


def products_off(
    norms: Norms,
    size: Float[Tensor, "node d"],
    norm: NormOf,
    low: Float[Tensor, " node"],
    matrix: Float[Tensor, "d n"],
    scale: Tensor | float,
    value: Float[Tensor, "node n"] | None = None,
) -> tuple[Float[Tensor, "node n"], Float[Tensor, "node n"]]:
    """As :func:`normed_off`, for a normed vector's products with the columns of a matrix: bounds of the sums of the
    terms' magnitudes, and of how far the exact products of the computed vector are off.

    Closer than by its entries: the scale's roundings multiply all of them by one factor, and so the product, whose
    magnitude is at most ``value``; the mean's rounding is the same for all, and meets the column's sum; and a vector of
    length sqrt d has products of at most sqrt d times the column's length.
    """
    d, grown = len(matrix), norms.rounding.growth
    columns, bias = norm.gain[:, None] * matrix, (norm.bias.abs() * scale) @ matrix.abs()
    unit, common, shift = _unit(norms, size, low, scale)
    terms = torch.minimum(unit @ columns.abs(), math.sqrt(d) * scale * columns.norm(dim=0) * (1 + 1e-12))
    value = terms if value is None else torch.minimum(value, terms)
    off = common * value + shift * (columns.sum(0).abs() + (grown(8) + OWN) * columns.abs().sum(0))
    off = (
        off
        + grown(9) * terms
        + grown(3) * bias
        + 4 * norms.rounding.tiny * (matrix.abs() + columns.abs()).sum(0) * (1 + scale)
    )
    return terms + bias, off


def _unit(norms: Norms, size: Tensor, low: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """Of a norm, times ``scale``: the magnitudes before the gain, the relative error that all entries share, and the
    error that all have alike because the mean is rounded."""
    d, low = size.shape[-1], low[:, None]
    mean = size.mean(-1, keepdim=True) if norms.centred else torch.zeros_like(low)
    unit = torch.minimum((size + mean) / low, math.sqrt(d) * torch.as_tensor(scale, dtype=torch.float64))
    shift = 2 * norms.rounding.growth(d + 4) * mean / low
    # The mean's rounding also moves the scale, by half its square relative to the scale's.
    return unit, norms.rounding.growth(norm_roundings(d)) + 2 * norms.lost + 4 * (shift / scale) ** 2, shift
