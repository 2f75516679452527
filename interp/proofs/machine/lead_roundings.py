"""How far float arithmetic after attention may move a lead: what the MLP, the norms and the unembedding round.

The computed stream after attention is where it starts from. Each stage's own roundings are bounded by magnitudes, and
counted by what they can do to the lead: a neuron's error by what the neuron counts in it, that of the last stream by
the unembedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.machine.post_attention import AfterAttention, NormOf
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import LARGEST, OWN, OWN_OF_RADII


@runtime_checkable
class Norms(Protocol):
    """What all norms of a model share: the arithmetic, whether they subtract the mean, whether eps is outside the root,
    and what underflow of squares can do to one over a scale, relative to it."""

    rounding: Rounding
    centred: bool
    eps_outside: bool
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
        # The mean's rounding also moves the scale: by half its square over the root mean square, which is below the
        # scale if eps is outside the root, but by no more than itself; and by what it adds to the entries' roundings.
        ratio = 2 * shift / low
        ratio = torch.maximum(ratio, ratio.sqrt()) if norms.eps_outside else ratio
        common = norms.rounding.shared_by_entries(d, ratio, 2 * norms.lost)
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
    terms = torch.minimum(unit @ columns.abs(), math.sqrt(d) * read.scale * columns.norm(dim=0) * (1 + OWN))
    value = terms if value is None else torch.minimum(value, terms)
    off = common * value + shift * (columns.sum(0).abs() + (grown(8) + OWN) * columns.abs().sum(0))
    tiny = 4 * norms.rounding.tiny * (matrix.abs() + columns.abs()).sum(0) * (1 + read.scale)
    return terms + bias, off + grown(9) * terms + grown(3) * bias + tiny


@dataclass(frozen=True, eq=False)
class Ranges:
    """What is known of the numbers of some nodes' problems.

    Attributes:
        size: upper bounds of the computed stream's magnitudes after attention. low: a lower bound of the scale before
            the MLP. last_low: one of the scale after it.
        neurons: with an MLP, (least, largest) of what its neurons read, and (least, largest) of their activations.
    """

    layers: AfterAttention
    size: Float[Tensor, "node d"]
    low: Float[Tensor, " node"]
    last_low: Float[Tensor, " node"]
    neurons: tuple[Tensor, Tensor, Tensor, Tensor] | None = None


def rounding_of_leads(
    ranges: Ranges,
    hidden: Float[Tensor, "node other neuron"],
    high: Float[Tensor, " node"],
    constants: tuple[Float[Tensor, "node other"], Float[Tensor, "node other"]],
    tokens: Int[Tensor, "node right_and_others"],
) -> Float[Tensor, "node other"]:
    """How far each lead may be moved, times the last scales, of which the first is at most ``high``.

    ``hidden`` says what each neuron counts in a lead. ``constants`` are what is multiplied by the first scale and by
    both (see :mod:`interp.proofs.machine.post_attention`). Where numbers may leave the range of float32, it is
    infinite.
    """
    layers, size, (first, second) = ranges.layers, ranges.size, constants
    cfg, grown, tiny = layers.config, layers.rounding.growth, layers.rounding.tiny
    d, m = cfg.d_model, cfg.d_mlp
    pair = lambda x: x.gather(1, tokens)[:, :1] + x.gather(1, tokens)[:, 1:]  # noqa: E731
    moved, written_off = torch.zeros_like(size), torch.zeros_like(size)
    lead = torch.zeros_like(first)
    lengths = [size.norm(dim=1)]  # of what is squared; sums are not larger
    if ranges.neurons is not None:
        act, act_off = _activations(ranges, *ranges.neurons)
        lead = (hidden.abs() @ act_off[..., None])[..., 0] * (1 + OWN_OF_RADII)
        written = act @ layers.W_out.abs() + layers.b_out.abs()
        written_off = act_off @ layers.W_out.abs()
        if layers.stream_in is not None and layers.mid is not None:
            size, moved = normed_off(layers, layers.mid, Counted(size, ranges.low))
        size = size + written
        moved = moved + grown(m + 2) * written + grown(2) * size + m * tiny
        lengths.append(size.norm(dim=1))
    # The computed last stream is the variable: its exact lead differs by U . moved, and by what the scales move.
    lead = lead + pair(moved @ layers.U.abs())
    if layers.last:
        rms = ((moved + written_off).pow(2).mean(-1).sqrt() * 2)[:, None]
        lead = lead + rms * (first.abs() + layers.second * second.abs())
    # All is counted times the scales from here on: of a centred vector over its scale, that is the vector itself.
    scale, low, matrix = high[:, None], ranges.last_low, layers.final_gain[:, None] * layers.W_U
    logits, logits_off = size @ matrix.abs(), torch.zeros_like(size @ matrix)
    for number, norm in enumerate(layers.last):
        if number + 1 == len(layers.last):
            logits, logits_off = products_off(layers, norm, Counted(size, low, scale), matrix)
            continue
        size, off = normed_off(layers, norm, Counted(size, low, scale))
        through = layers.cent.abs() @ (layers.last[number + 1].gain[:, None] * matrix).abs()
        shift = off.pow(2).mean(-1, keepdim=True).sqrt() * 2
        lead = lead + pair(off @ through) + shift * second.abs()
        scale, low = scale * layers.second, low * layers.least_scale
    gained = tiny * layers.W_U.abs().sum(0)  # what vanishes in the product with a final gain is multiplied by W_U
    logits_off = logits_off + grown(d + 4) * (logits + scale * layers.b_U.abs()) + (d * tiny + gained) * scale
    lengths.append((size * layers.final_gain.abs()).norm(dim=1) if not layers.last else size.new_zeros(len(size)))
    lead = lead + pair(logits_off)
    most = layers.most_logits if layers.last else (logits + layers.b_U.abs()).amax(1)
    known = (torch.stack((*lengths, most.expand(len(size)))) < LARGEST).all(0) & (ranges.low > 0)
    return torch.where(known[:, None], lead * (1 + OWN_OF_RADII), torch.inf)


def _activations(ranges: Ranges, z_low: Tensor, z_high: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of the neurons' magnitudes, and of how far they may be off."""
    layers, size = ranges.layers, ranges.size
    cfg, grown, tiny = layers.config, layers.rounding.growth, layers.rounding.tiny
    d, m, kind = cfg.d_model, cfg.d_mlp, ACTIVATIONS[cfg.act_fn]
    if layers.mid is None:
        z_size, z_off = size @ layers.readers.abs(), 0.0
    else:
        value = torch.maximum((z_high - layers.g).abs(), (z_low - layers.g).abs())
        z_size, z_off = products_off(layers, layers.mid, Counted(size, ranges.low), layers.readers, value)
    z_off = z_off + grown(d + 2) * (z_size + layers.g.abs()) + d * tiny
    z_off = torch.where(z_size + layers.g.abs() < LARGEST, z_off, torch.inf)
    z = torch.maximum(z_high.abs(), z_low.abs()) + z_off
    rounds = kind.rounding(layers.rounding.unit32) + OWN
    off = kind.steepest * z_off[:, :m] + rounds * z[:, :m] + tiny
    act = torch.maximum(low.abs(), high.abs()) + off
    if cfg.gated_mlp:
        off = off * z[:, m:] + act * z_off[:, m:]
        act = act * z[:, m:] + layers.b_in.abs()
        off = off + grown(2) * act + tiny
    return act, torch.where(act < LARGEST, off, torch.inf)
