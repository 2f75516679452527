"""Adders of ten-digit numbers with three and with four free parameters, written from scratch, on MicroAdder's tokens.

They are stock one-layer decoders: RMS norms, one head, two GELU units, no biases, 34 tokens over the digits. What
follows is the arithmetic that their numbers were solved from; :mod:`models.families.hand_built.microadder_by_hand` has
the same circuit in MicroAdder's own 57 numbers. All angles below are in degrees.

    digits     e(d) = (cos psi, sin psi),  psi_d = (d - 4.5) stride              an arc around the radial axis
    columns    p_i = (cos 360 i / 11, sin 360 i / 11),  X_i, Y_i and Z_i alike   eleven to the turn
    stream     [radial, tangent, sum, sum, p, p, 0 ...]
    attention  q = R(turn) k, k = n(x)[p];  v = n(x)[tangent], written as -v;  n(x) = x / sqrt(mean x^2 + 1e-5) * gain
    MLP        g+ = gelu(t), g- = gelu(-t), t = n(y)[tangent], without gain:
               tangent += g- - g+ = -t,  each sum += g+ + g-
    logit_d    -tangent sin psi_d + (sum + sum) cos psi_d                        of what the last norm leaves

**Delimiters.** Plus, equals and Z_10 stand on the eleventh place, which is both the column before the first and the
one after the last. Their token is 0, and so are the digits that a number has there.

**Attention.** Between unit vectors the score is ``K cos(angle)`` with ``K = gain^2 d_model / (2 sqrt 2)``. The query
after Z_{i-1} points ``turn`` degrees past its column: column i is 360/11 - turn away, column i - 1 is turn away, and
their scores differ by ``2 K sin(180/11) sin(turn - 180/11)`` = ln(ratio), with a ratio near 10. All others are further.

**The carry into a column** is read off the column before it. With ratio r and N = 2 r + 3, attention subtracts
``beta (r (x_i + y_i) + x_{i-1} + y_{i-1} + z_{i-1}) / N`` (for sin psi ~ psi), ``beta = gain sqrt(d_model / 2)``, and
the stream holds z_{i-1}. With ``beta = N / 2`` and r = 10, and x' + y' - z' = 10 c - c' (c the carry into the column,
c' the one before), what is left on the tangent is, in strides,

    tau = -5 (S - 9.45 - c' / 10),    S = x_i + y_i + c:   positive without a carry out of the column, negative with one

**The answer** S or S - 10 is off the middle of the arc by ``S - 9.5 + 5`` or ``- 5`` strides: a saw tooth of tau. As
``gelu(t) - gelu(-t) = t`` exactly and ``gelu(t) + gelu(-t) = t erf(t / sqrt 2) ~ |t|``, the direction that is read is

    tan(angle) = -(tau - t) / (2 |t|) = -sign(tau) (rms - 1) / 2,    t = tau / rms,  rms^2 = (tau^2 + 2) / d_model

and rms grows with |tau| and passes 1 half-way, where the answer is 4.5: the sign is the tooth's step and the root its
flank. Neither the norm alone nor the units alone can do this. erf makes the flank steeper next to the step.

**What is counted.** Every number that the weight map takes is counted. The scheme is not: eleven columns to the turn,
the arc centred on one axis, which weights are 0, 1 or -1, and the shape of the decoder, just as MicroAdder does not
count its spiral. The width is close to being a parameter: dimensions beyond six are empty, and all they do is divide
the mean square, which sets where rms passes 1.

**Three numbers or four.** The first column has two zeros before it (plus and equals) where others have three digits.
Three numbers have to make up for that by attention that writes more than N / 2, and leave 0.03 of a stride to spare:
certified over the reals, and not with the rounding of float32. ``delimiter``, the fourth, makes the place of equals
longer, so that it weighs as two zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.registry import ModelSpec, register
from models.tasks.named.addition import ANSWER, DIGITS, UnendedAddition
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import Weights
from models.weight_maps.geometry import circular_arc, spiral
from models.weight_maps.weight_map import WeightMap, fill_

COLUMNS = DIGITS + 1  # columns per turn
TOKENS, SUMS = 2, 2  # dimensions; two for the columns follow, and the rest of the width is empty


@dataclass(frozen=True)
class HandSetAdder:
    """Name, width of the residual stream, and the numbers: stride and turn in degrees, gain, and perhaps delimiter."""

    name: str
    d_model: int
    numbers: Mapping[str, float]


ADDERS = (
    HandSetAdder("adder-3-by-hand", 9, {"stride": 4.5, "turn": 17.72, "gain": 7.32}),
    HandSetAdder("adder-4-by-hand", 6, {"stride": 4.5, "turn": 18.6, "gain": 7.0, "delimiter": 1.012}),
)


class HandSetAdderWeights(WeightMap):
    """Three or four free parameters; every seed starts with the values that were found by hand."""

    stride: Tensor
    turn: Tensor
    gain: Tensor

    def __init__(self, adder: HandSetAdder):
        super().__init__(hand_set_config(adder.d_model))
        self.adder = adder
        self.split_stream = TOKENS + SUMS
        for name in adder.numbers:
            self.register_parameter(name, nn.Parameter(torch.zeros(())))

    def initialise(self, generator: torch.Generator) -> None:
        """Set the numbers; nothing is random."""
        for name, parameter in self.named_parameters():
            fill_(parameter, self.adder.numbers[name])

    def forward(self) -> Weights:
        d, place = self.config.d_model, TOKENS + SUMS
        stride, turn = self.stride * (math.pi / 180), self.turn * (math.pi / 180)
        one = torch.ones_like(stride)
        arc = circular_arc(one, -4.5 * stride, stride, 10)  # [digit, (radial, tangent)]
        axes = torch.eye(d, dtype=one.dtype, device=one.device)  # one row per axis of the stream
        across, along = arc[:, :1], arc[:, 1:]
        tangent, sums = axes[1:2], axes[TOKENS:place].sum(0, keepdim=True)
        turned = torch.stack((torch.stack((turn.cos(), turn.sin())), torch.stack((-turn.sin(), turn.cos()))))
        return {
            "embed.W_E": F.pad(arc, (0, d - TOKENS)),
            "pos_embed.W_pos": F.pad(self._places(one), (place, d - place - 2)),
            "blocks.0.ln1.w": self.gain.expand(d),
            "blocks.0.attn.W_Q": (axes[:, place : place + 2] @ turned)[None],
            "blocks.0.attn.W_K": axes[None, :, place : place + 2],
            "blocks.0.attn.W_V": F.pad(tangent.T, (0, 1))[None],
            "blocks.0.attn.W_O": F.pad(-tangent, (0, 0, 0, 1))[None],
            "blocks.0.ln2.w": one.expand(d),
            "blocks.0.mlp.W_in": torch.cat((tangent, -tangent)).T,
            "blocks.0.mlp.W_out": torch.cat((sums - tangent, sums + tangent)),
            "ln_final.w": one.expand(d),
            "unembed.W_U": (across @ sums - along @ tangent).T,
        }

    def _places(self, one: Tensor) -> Tensor:
        """[34, 2]: ten columns and the eleventh place, three times, and the place of EOS, which nothing reads."""
        column = spiral(one, 0 * one, 0 * one, 0 * one, COLUMNS, period=COLUMNS)[:, :2]
        equals = column[-1:] * dict(self.named_parameters()).get("delimiter", one)
        places = torch.cat((column, column[:-1], equals, column, column[-1:]))
        assert len(places) == self.config.n_ctx and ANSWER == 2 * COLUMNS
        return places


def hand_set_config(d_model: int) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        d_model=d_model,
        n_heads=1,
        d_head=2,
        d_mlp=2,
        d_vocab=10,
        n_ctx=34,
        act_fn="gelu",
        normalization_type="RMS",
        eps=1e-5,
    )


for _adder in ADDERS:
    register(
        ModelSpec(
            name=_adder.name,
            weight_map=lambda adder=_adder: HandSetAdderWeights(adder),
            task=UnendedAddition,
            recipe=None,
            source="this project, after MicroAdder (Zarechnev 2026), section 6: how few numbers are enough",
        )
    )
