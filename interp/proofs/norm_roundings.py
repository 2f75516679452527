"""What norms after attention round: bounds of how far a computed normed vector, and products with it, may be off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.enclosures import Rounding
from interp.proofs.rounding_errors import OWN, scale_roundings


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


@dataclass(frozen=True, eq=False)
class Counted:
    """What a norm reads, and in which unit its result is counted.

    Attributes:
        size: upper bounds of the magnitudes of what it reads. low: a lower bound of its scale, in the unit of ``size``.
        by: "relative" results are those of the norm; else all is multiplied by the scale, which is at most ``by``.
    """

    size: Float[Tensor, "node d"]
    low: Float[Tensor, " node"]
    by: Float[Tensor, "node 1"] | None = None

    @property
    def scale(self) -> Tensor:
        return torch.ones_like(self.low)[:, None] if self.by is None else self.by

    def unit(self, norms: Norms) -> tuple[Tensor, Tensor, Tensor]:
        """The magnitudes before the gain, at most sqrt d times the scale; the relative error that all entries share;
        and the error that all have alike because the mean is rounded."""
        d, low = self.size.shape[-1], self.low[:, None]
        grown = norms.rounding.growth
        divisor = low if self.by is None else 1.0
        mean = self.size.mean(-1, keepdim=True) if norms.centred else torch.zeros_like(low)
        shift = 2 * grown(d + 4) * mean
        # The mean's rounding also moves the scale: by half its square, and by what it adds to the entries' roundings.
        relative = shift / low
        common = grown(scale_roundings(d)) + 2 * norms.lost + 4 * relative**2 + 4 * grown(2) * relative
        unit = torch.minimum((self.size + mean) / divisor, math.sqrt(d) * self.scale)
        return unit, common, shift / divisor


def normed_off(norms: Norms, norm: NormOf, read: Counted) -> tuple[Tensor, Tensor]:
    """Bounds of a normed vector's magnitudes and of its roundings: half the mean square's count, and those of the mean,
    the quotient, the gain and the bias; and what squares may lose by underflow."""
    grown, gain, bias = norms.rounding.growth, norm.gain.abs(), norm.bias.abs() * read.scale
    unit, common, shift = read.unit(norms)
    off = gain * ((common + grown(6)) * unit + shift) + grown(3) * (gain * unit + bias)
    return gain * unit + bias, off + 4 * norms.rounding.tiny * (1 + gain) * (1 + read.scale)


def products_off(
    norms: Norms,
    norm: NormOf,
    read: Counted,
    matrix: Float[Tensor, "d n"],
    value: Float[Tensor, "node n"] | None = None,
) -> tuple[Float[Tensor, "node n"], Float[Tensor, "node n"]]:
    """As :func:`normed_off`, for a normed vector's products with the columns of a matrix: bounds of the sums of the
    terms' magnitudes, and of how far the exact products of the computed vector are off.

    Closer than by its entries: the scale's roundings multiply all of them by one factor, and so the product, whose
    magnitude is at most ``value``; the mean's rounding is the same for all, and meets the column's sum; and a vector of
    length sqrt d has products of at most sqrt d times the column's length.
    """
    d, grown = len(matrix), norms.rounding.growth
    columns, bias = norm.gain[:, None] * matrix, (norm.bias.abs() * read.scale) @ matrix.abs()
    unit, common, shift = read.unit(norms)
    terms = torch.minimum(unit @ columns.abs(), math.sqrt(d) * read.scale * columns.norm(dim=0) * (1 + 1e-12))
    value = terms if value is None else torch.minimum(value, terms)
    off = common * value + shift * (columns.sum(0).abs() + (grown(8) + OWN) * columns.abs().sum(0))
    tiny = 4 * norms.rounding.tiny * (matrix.abs() + columns.abs()).sum(0) * (1 + read.scale)
    return terms + bias, off + grown(9) * terms + grown(3) * bias + tiny
