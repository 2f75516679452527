"""Stages of a forward pass in balls of Euclidean length: how each passes an error on, curves, and rounds.

A :class:`ErrorBall` is a midpoint and a length: every vector is within the length of its midpoint. Let x_k be what
stage k computes, m_k the midpoint of its ball, and ``e_k = x_k - m_k``. Then ``e_(k+1) = J_k e_k + r_k``, where J_k is
the stage's derivative at m_k, and r_k is how far the stage curves within the ball, plus its own roundings. A stage here
gives ``|J_k| |e_k| + |r_k|``. Each matrix then stretches by its largest singular value, although no single error is
stretched by all of them. That is quick, but many times too wide over several stages. :mod:`interp.proofs.directional`
takes products of the J_k instead, and needs the balls only for the r_k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.balls import ACTIVATION_ROUNDINGS, CURVED, LARGEST, SHAPES
from interp.proofs.enclosed import DOUBLE
from interp.proofs.enclosed_weights import EnclosedWeights
from interp.proofs.enclosures import LIBRARY_ULPS, norm_roundings

STEEP = 1.21  # above |x|^2 times the second derivative of x / scale, over sqrt n: see :meth:`Stages.norm`
#: Relative error of float64 in products of known numbers, on top of what is bounded as the model's own roundings.
KNOWN = 1e-10


@dataclass(frozen=True, eq=False)
class ErrorBall:
    """Vectors within ``norm`` of ``mid``, in Euclidean length.

    ``norm`` may have several rows, one per error that is followed; the first is the whole error.
    """

    mid: Float[Tensor, "n d"]
    norm: Float[Tensor, "*error n"]

    @property
    def whole(self) -> Float[Tensor, " n"]:
        return self.norm if self.norm.ndim == 1 else self.norm[0]

    @property
    def length(self) -> Float[Tensor, " n"]:
        """The length of the longest vector; infinite where float32 may overflow."""
        found = (self.mid.norm(dim=-1) + self.whole) * (1 + KNOWN)
        return torch.where(found < LARGEST, found, torch.inf)

    def __getitem__(self, rows: Tensor) -> ErrorBall:
        return ErrorBall(self.mid[rows], self.norm[..., rows])


class Stages:
    """The stages that models are made of, with the weights and the rounding of one forward pass."""

    def __init__(self, weights: EnclosedWeights):
        self.enclosed = weights
        self.grown, self.tiny = weights.rounding.growth, weights.rounding.tiny

    def add(self, x: ErrorBall, y: ErrorBall) -> ErrorBall:
        found = ErrorBall(x.mid + y.mid, x.norm + y.norm)
        return ErrorBall(found.mid, found.norm + self.rounding_of_sum(found))

    def rounding_of_sum(self, total: ErrorBall) -> Tensor:
        return self.grown(1) * total.length + self.tiny * total.mid.shape[-1]

    def linear(self, x: ErrorBall, matrix: str) -> ErrorBall:
        w = self.enclosed.matrices[matrix]
        own = self.rounding_of_products(x, matrix)
        return ErrorBall(x.mid[:, w.used] @ w.values, x.norm * float(w.stretch[0]) + own)

    def shifted(self, x: ErrorBall, bias: str) -> ErrorBall:
        """``x`` with a bias added, if the model has it."""
        known = self.enclosed.weights.get(bias)
        return (
            x if known is None else self.add(x, ErrorBall(known.flatten().expand_as(x.mid), torch.zeros_like(x.norm)))
        )

    def rounding_of_products(self, x: ErrorBall, matrix: str) -> Tensor:
        """Each entry is off by at most ``n u`` times the products' magnitudes, that is |x| times a column's length."""
        w = self.enclosed.matrices[matrix]
        wide, n = float(w.columns.norm()) * (1 + KNOWN), len(w.values)
        return self.grown(n) * (1 + KNOWN) * x.length * wide + n * self.tiny * (1 + w.values.shape[1])

    def norm(self, x: ErrorBall, name: str) -> ErrorBall:
        """``y = x / s(x) * gain + bias``, with s the root mean square with eps; a LayerNorm first subtracts the mean.

        A ball of y is wider by 1 / s at most. Lemma, for :meth:`curve_of_norm`: the second derivative of ``x / |x|``
        along p times x's direction and q across it, ``p^2 + q^2 = 1``, has the length
        ``sqrt(4 p^2 q^2 + q^4) / |x|^2``, at most ``2 / sqrt 3 / |x|^2``. eps outside the root adds less than
        ``5 (eps / s) / |x|^2``; inside it q^4 becomes ``(q^2 + 3 p^2 eps / s^2)^2`` and no other term is larger.
        Where these ratios are at most 0.01, that of ``x / s`` is at most ``STEEP / (sqrt n s^2)``.
        """
        gain = self.enclosed.weights[f"{name}.w"]
        x = self.centred(x)
        least, middle, *_ = self.scales(x)
        wide = float(gain.abs().max()) * x.norm / least[:, 0] * (1 + KNOWN)
        return self.shifted(ErrorBall(x.mid / middle * gain, wide + self.rounding_of_norm(x, gain)), f"{name}.b")

    def centred(self, x: ErrorBall) -> ErrorBall:
        """``x`` minus its mean if norms are LayerNorm. The mean is off by ``(n + 2) u`` times the mean magnitude."""
        if self.enclosed.config.normalization_type != "LN":
            return x
        n = x.mid.shape[-1]
        own = self.grown(n + 3) * (1 + KNOWN) * x.length + 2 * n * self.tiny
        return ErrorBall(x.mid - x.mid.mean(-1, keepdim=True), x.norm + own)

    def scales(self, x: ErrorBall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cfg = self.enclosed.config
        return self.enclosed.rounding.scales(x.mid, x.whole, cfg.eps, cfg.norm_eps_outside)

    def rounding_of_norm(self, x: ErrorBall, gain: Tensor) -> Tensor:
        """The rounding of a norm, relative to y, whose length before the gain is at most sqrt n; infinite where its
        scale may underflow to nothing."""
        n = x.mid.shape[-1]
        least, _, _, lost = (part[..., 0] for part in self.scales(x))
        own = (self.grown(norm_roundings(n) + 2) * 1.001 * (1 + lost) + lost) * math.sqrt(n) + 4 * n * self.tiny
        return torch.where(least > 0, own * gain.abs().max() * (1 + KNOWN), torch.inf)

    def curve_of_norm(self, x: ErrorBall, gain: Tensor) -> Tensor:
        """How far a norm curves over a ball that is centred."""
        cfg, least = self.enclosed.config, self.scales(x)[0][:, 0]
        curve = STEEP / 2 * x.whole**2 / (math.sqrt(x.mid.shape[-1]) * least**2) * gain.abs().max()
        share = cfg.eps / least ** (1 if cfg.norm_eps_outside else 2)
        return torch.where(share <= 0.01, curve * (1 + KNOWN), torch.inf)

    def gated(self, gate: ErrorBall, value: ErrorBall) -> ErrorBall:
        """``act(gate) * value``, by its slopes at the midpoints, unit by unit, and how far it curves."""
        act, slope = self.activation(gate.mid)
        wide = (slope * value.mid).abs().amax(-1) * gate.norm + act.abs().amax(-1) * value.norm
        wide = (wide + KNOWN * (gate.norm + value.norm)) * (1 + KNOWN)
        return ErrorBall(act * value.mid, wide + self.curve_of_gate(gate, value) + self.rounding_of_gate(gate, value))

    def curve_of_gate(self, gate: ErrorBall, value: ErrorBall) -> Tensor:
        """How far it curves: at most ``(c / 2) e^2 (|value| + |f|) + s |e f|``; c and s bound act's derivatives."""
        steep, curved = SHAPES[self.enclosed.config.act_fn][3], CURVED[self.enclosed.config.act_fn]
        return (curved / 2 * gate.whole**2 * self.widest(value) + steep * gate.whole * value.whole) * (1 + KNOWN)

    def rounding_of_gate(self, gate: ErrorBall, value: ErrorBall) -> Tensor:
        """The rounding of the activation and of the product."""
        relative = self.rounding_of_activation + self.grown(1)
        return relative * gate.length * self.widest(value) + self.tiny * gate.mid.shape[-1] * (1 + self.widest(value))

    @staticmethod
    def widest(x: ErrorBall) -> Tensor:
        return (x.mid.abs().amax(-1) + x.whole) * (1 + KNOWN)

    @property
    def rounding_of_activation(self) -> float:
        """The rounding of an activation, relative to its argument, whose magnitude it does not exceed."""
        own = self.enclosed.rounding.unit32 * ACTIVATION_ROUNDINGS[self.enclosed.config.act_fn] * (1 + 1e-5)
        return own + 64 * LIBRARY_ULPS * DOUBLE

    def activation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The activation's values and slopes in float64."""
        if self.enclosed.config.act_fn == "silu":
            share = torch.sigmoid(x)
            return x * share, share * (1 + x * (1 - share))
        if self.enclosed.config.act_fn == "gelu":
            share = torch.special.erfc(-x / math.sqrt(2)) / 2
            return x * share, share + x * (-(x**2) / 2).exp() / math.sqrt(2 * math.pi)
        scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
        share = torch.sigmoid(scale * (x + cubic * x**3))
        return x * share, share * (1 + x * (1 - share) * scale * (1 + 3 * cubic * x**2))
