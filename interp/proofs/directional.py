"""Leads of a gated block with norms before and after its sublayers, by lengths and along each lead's own direction.

A ball here is a midpoint and a length: every vector is within the length of its midpoint. Matrices stretch it by their
largest singular value, one after the other, although no single error is stretched by all of them. That is quick, and
many times too wide. What a lead is off by is then found in another way. Let x_k be what stage k computes, m_k the
midpoint of its ball, and ``e_k = x_k - m_k``. Then ``e_(k+1) = J_k e_k + r_k``, J_k being the stage's derivative at m_k
and r_k what it curves by within the ball, plus its own roundings. So a lead g e_K is at most

    |g J_(K-1) ... J_0 e_0| + sum over k of |g J_(K-1) ... J_(k+1)| |r_k|,

and the balls are needed for the r_k alone, which are of second order in their radii.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.balls import ACTIVATION_ROUNDINGS, CURVED, SHAPES
from interp.proofs.enclosed import DOUBLE, Enclosure
from interp.proofs.enclosures import LIBRARY_ULPS, norm_roundings, scales_of
from interp.proofs.prefix_tree import EnclosedForward
from models.config import TransformerConfig

STEEP = 1.21  # above |x|^2 times the second derivative of x / scale, over sqrt n: see :meth:`Block.norm`
#: Relative: what float64 may make of products of known numbers, beyond what is bounded as the model's own roundings.
KNOWN = 1e-10
Bounds = tuple[Float[Tensor, " n"], Float[Tensor, " n"]]


@dataclass(frozen=True, eq=False)
class Ball:
    """Vectors within ``norm`` of ``mid``, in Euclidean length."""

    mid: Float[Tensor, "n d"]
    norm: Float[Tensor, " n"]

    @property
    def length(self) -> Float[Tensor, " n"]:
        """Of the longest vector."""
        return (self.mid.norm(dim=-1) + self.norm) * (1 + KNOWN)

    def __getitem__(self, rows: Tensor) -> Ball:
        return Ball(self.mid[rows], self.norm[rows])


def is_gated_block(cfg: TransformerConfig, weights: Mapping[str, Tensor]) -> bool:
    """Whether a model's last block is of the kind that :class:`Block` knows: Position Coupling's, without biases."""
    return (
        not any(name.split(".")[-1][0] == "b" and bool(value.any()) for name, value in weights.items())
        and (cfg.normalization_type, cfg.norm_placement, cfg.gated_mlp) == ("RMS", "both", True)
        and cfg.act_fn in CURVED
        and cfg.has_final_norm
        and not cfg.final_gain
    )


class Block:
    """The stages from the last block's stream ``x`` and its ``z`` to what the unembedding reads, for some rows.

    Precondition: :func:`is_gated_block`.
    """

    def __init__(self, forward: EnclosedForward, x: Enclosure, z: Enclosure):
        self.forward, self.x, self.z = forward, x, z
        self.grown, self.tiny = forward.rounding.growth, forward.rounding.tiny
        self.name = name = f"blocks.{forward.config.n_layers - 1}"
        self.summed = self.add(Ball(x.mid, x.norm), self.linear(Ball(z.mid, z.norm), f"{name}.attn.W_O"))
        self.middle = self.norm(self.summed, f"{name}.ln1_post")
        self.read = self.norm(self.middle, f"{name}.ln2")
        self.gate, self.value = (self.linear(self.read, f"{name}.mlp.{m}") for m in ("W_gate", "W_in"))
        self.hidden = self.gated(self.gate, self.value)
        self.whole = self.add(self.middle, self.linear(self.hidden, f"{name}.mlp.W_out"))
        self.last = self.norm(self.whole, f"{name}.ln2_post")
        self.normed = self.norm(self.last, "ln_final")

    # ---- stages, by lengths

    def add(self, x: Ball, y: Ball) -> Ball:
        found = Ball(x.mid + y.mid, x.norm + y.norm)
        return Ball(found.mid, found.norm + self.rounding_of_sum(found))

    def rounding_of_sum(self, total: Ball) -> Tensor:
        return self.grown(1) * total.length + self.tiny * total.mid.shape[-1]

    def linear(self, x: Ball, matrix: str) -> Ball:
        w = self.forward.matrices[matrix]
        return Ball(x.mid[:, w.used] @ w.values, x.norm * float(w.stretch[0]) + self.rounding_of_products(x, matrix))

    def rounding_of_products(self, x: Ball, matrix: str) -> Tensor:
        """Each entry is off by at most ``n u`` times the products' magnitudes, that is |x| times a column's length."""
        w = self.forward.matrices[matrix]
        wide, n = float(w.columns.norm()) * (1 + KNOWN), len(w.values)
        return self.grown(n) * (1 + KNOWN) * x.length * wide + n * self.tiny * (1 + w.values.shape[1])

    def norm(self, x: Ball, name: str) -> Ball:
        """``y = x / s(x) * gain``, s the root mean square, with eps. A ball of y is wider by 1 / s at most.

        Lemma, for :meth:`curve_of_norm`: the second derivative of ``x / |x|`` along p times x's direction and q across
        it, ``p^2 + q^2 = 1``, has the length ``sqrt(4 p^2 q^2 + q^4) / |x|^2``, at most ``2 / sqrt 3 / |x|^2``. eps
        outside the root adds less than ``5 (eps / s) / |x|^2``; inside it q^4 becomes ``(q^2 + 3 p^2 eps / s^2)^2`` and
        no other term is larger. Where these ratios are at most 0.01, that of ``x / s`` is at most
        ``STEEP / (sqrt n s^2)``.
        """
        gain = self.forward.weights[f"{name}.w"]
        least, middle, _ = self.scales(x)
        wide = float(gain.abs().max()) * x.norm / least[:, 0] * (1 + KNOWN)
        return Ball(x.mid / middle * gain, wide + self.rounding_of_norm(x, gain))

    def scales(self, x: Ball) -> tuple[Tensor, Tensor, Tensor]:
        cfg = self.forward.config
        return scales_of(x.mid, x.norm, cfg.eps, cfg.norm_eps_outside)

    def rounding_of_norm(self, x: Ball, gain: Tensor) -> Tensor:
        """Relative to y, whose length before the gain is sqrt n at most."""
        n = x.mid.shape[-1]
        own = self.grown(norm_roundings(n) + 2) * 1.001 * math.sqrt(n) + 4 * n * self.tiny
        return own * gain.abs().max() * (1 + KNOWN) + torch.zeros_like(x.norm)

    def curve_of_norm(self, x: Ball, gain: Tensor) -> Tensor:
        cfg, least = self.forward.config, self.scales(x)[0][:, 0]
        curve = STEEP / 2 * x.norm**2 / (math.sqrt(x.mid.shape[-1]) * least**2) * gain.abs().max()
        share = cfg.eps / least ** (1 if cfg.norm_eps_outside else 2)
        return torch.where(share <= 0.01, curve * (1 + KNOWN), torch.inf)

    def gated(self, gate: Ball, value: Ball) -> Ball:
        """``act(gate) * value``: its slopes at the midpoints, unit by unit, and what it curves by."""
        act, slope = self.activation
        wide = (slope * value.mid).abs().amax(-1) * gate.norm + act.abs().amax(-1) * value.norm
        wide = (wide + KNOWN * (gate.norm + value.norm)) * (1 + KNOWN)
        return Ball(act * value.mid, wide + self.curve_of_gate(gate, value) + self.rounding_of_gate(gate, value))

    def curve_of_gate(self, gate: Ball, value: Ball) -> Tensor:
        """At most ``(c / 2) e^2 (|value| + |f|) + s |e f|``, c and s being above its derivatives' magnitudes."""
        steep, curved = SHAPES[self.forward.config.act_fn][3], CURVED[self.forward.config.act_fn]
        return (curved / 2 * gate.norm**2 * self.widest(value) + steep * gate.norm * value.norm) * (1 + KNOWN)

    def rounding_of_gate(self, gate: Ball, value: Ball) -> Tensor:
        """Of the activation relative to the gate, whose magnitude it does not exceed, and of the product."""
        own = self.forward.rounding.unit32 * ACTIVATION_ROUNDINGS[self.forward.config.act_fn] * (1 + 1e-5)
        relative = own + self.grown(1) + 64 * LIBRARY_ULPS * DOUBLE
        return relative * gate.length * self.widest(value) + self.tiny * gate.mid.shape[-1] * (1 + self.widest(value))

    @staticmethod
    def widest(x: Ball) -> Tensor:
        return (x.mid.abs().amax(-1) + x.norm) * (1 + KNOWN)

    @property
    def activation(self) -> tuple[Tensor, Tensor]:
        """Values and slopes of the activation at the gate's midpoint, in float64."""
        x = self.gate.mid
        if self.forward.config.act_fn == "silu":
            share = torch.sigmoid(x)
            return x * share, share * (1 + x * (1 - share))
        if self.forward.config.act_fn == "gelu":
            share = torch.special.erfc(-x / math.sqrt(2)) / 2
            return x * share, share + x * (-(x**2) / 2).exp() / math.sqrt(2 * math.pi)
        scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715
        share = torch.sigmoid(scale * (x + cubic * x**3))
        return x * share, share * (1 + x * (1 - share) * scale * (1 + 3 * cubic * x**2))

    # ---- leads

    def _directions(self, tokens: Int[Tensor, " n"]) -> tuple[Tensor, Tensor, Tensor]:
        """[n, other, d] of each token's lead over every other; the leads; what their own roundings come to."""
        unembed, d = self.forward.matrices["unembed.W_U"], self.normed.mid.shape[-1]
        columns = torch.zeros(unembed.values.shape[1], d, dtype=torch.float64)
        columns[:, unembed.used] = unembed.values.T
        away, length = columns[tokens][:, None] - columns, columns.norm(dim=-1)
        lead = (away @ self.normed.mid[..., None])[..., 0]
        size = self.normed.length[:, None] * (length[tokens][:, None] + length)
        return away, lead, (self.grown(d + 2) + KNOWN) * size + 2 * d * self.tiny

    @staticmethod
    def _least(lead: Tensor, off: Tensor, tokens: Tensor) -> Bounds:
        others = torch.arange(lead.shape[1]) != tokens[:, None]
        low, high = (torch.where(others, end, torch.inf).amin(1) for end in (lead - off, lead + off))
        return low.nan_to_num(nan=-torch.inf), high.nan_to_num(nan=torch.inf)

    def leads(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Bounds of the lead of ``tokens`` over the best other token, by lengths."""
        away, lead, own = self._directions(tokens)
        return self._least(lead, own + away.norm(dim=-1) * self.normed.norm[:, None] * (1 + KNOWN), tokens)

    def followed(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Tighter ones, each lead's error followed back to z. Cost: ten times that of :meth:`leads`."""
        back, lead, off = self._directions(tokens)
        back, off = self._through_norm(back, off, self.last, self.forward.weights["ln_final.w"])
        back, off = self._through_norm(back, off, self.whole, self.forward.weights[f"{self.name}.ln2_post.w"])
        return self._least(lead, self._from_whole(back, off) + KNOWN * (1 + lead.abs()), tokens)

    def tighten(self) -> None:
        """Follow every entry of the stream after the MLP, for smaller balls from there on; in place.

        Cost: as :meth:`followed`, with d_model in place of d_vocab.
        """
        mid = self.whole.mid
        back = torch.eye(mid.shape[1], dtype=torch.float64).expand(len(mid), -1, -1)
        off = self._from_whole(back, torch.zeros_like(back[..., 0]))
        self.whole = Ball(mid, torch.minimum(self.whole.norm, off.norm(dim=-1) * (1 + KNOWN)))
        self.last = self.norm(self.whole, f"{self.name}.ln2_post")
        self.normed = self.norm(self.last, "ln_final")

    def _from_whole(self, back: Tensor, off: Tensor) -> Tensor:
        """What is off by the stages from the stream after the MLP back to z, with what was off before."""
        weights, name = self.forward.weights, self.name
        direct, off = back, off + self._along(back, self.rounding_of_sum(self.whole))
        back, off = self._through_matrix(back, off, self.hidden, f"{name}.mlp.W_out")
        curve = self.curve_of_gate(self.gate, self.value) + self.rounding_of_gate(self.gate, self.value)
        off = off + self._along(back, curve)
        act, slope = (part[:, None] for part in self.activation)
        gate, off = self._through_matrix(back * slope * self.value.mid[:, None], off, self.read, f"{name}.mlp.W_gate")
        value, off = self._through_matrix(back * act, off, self.read, f"{name}.mlp.W_in")
        back, off = self._through_norm(gate + value, off, self.middle, weights[f"{name}.ln2.w"])
        back, off = self._through_norm(back + direct, off, self.summed, weights[f"{name}.ln1_post.w"])
        off = off + self._along(back, self.rounding_of_sum(self.summed)) + self._of(back, self.x)
        back, off = self._through_matrix(back, off, self.z, f"{name}.attn.W_O")
        return (off + self._of(back, self.z)) * (1 + 1e-6)

    @staticmethod
    def _along(back: Tensor, length: Tensor) -> Tensor:
        return back.norm(dim=-1) * length[:, None]

    @staticmethod
    def _of(back: Tensor, x: Enclosure) -> Tensor:
        """What an error of x makes of a product with it."""
        return torch.minimum((back.abs() @ x.rad[..., None])[..., 0], back.norm(dim=-1) * x.norm[:, None])

    def _through_norm(self, back: Tensor, off: Tensor, x: Ball, gain: Tensor) -> tuple[Tensor, Tensor]:
        n, middle = x.mid.shape[-1], self.scales(x)[1][:, None]
        off = off + self._along(back, self.curve_of_norm(x, gain) + self.rounding_of_norm(x, gain))
        y, root = x.mid[:, None] / middle, (x.mid.norm(dim=-1) / math.sqrt(n))[:, None, None]
        # The scale's derivative is x / (n root) with eps outside the root, and x / (n s) with eps inside.
        slope = x.mid[:, None] / (n * (root if self.forward.config.norm_eps_outside else middle))
        back = back * gain
        return (back - (back * y).sum(-1, keepdim=True) * slope) / middle, off

    def _through_matrix(self, back: Tensor, off: Tensor, x: Ball | Enclosure, matrix: str) -> tuple[Tensor, Tensor]:
        w = self.forward.matrices[matrix]
        off = off + self._along(back, self.rounding_of_products(Ball(x.mid, x.norm), matrix))
        before = torch.zeros(*back.shape[:2], x.mid.shape[-1], dtype=torch.float64)
        before[..., w.used] = back @ w.values.T
        return before, off
