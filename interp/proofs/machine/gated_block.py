"""Bounds of leads after a gated block with RMS norms before and after its sublayers.

An :class:`ErrorBall` is a midpoint and a length: every vector is within the length of its midpoint. Let x_k be what
stage k computes, m_k the midpoint of its ball, and ``e_k = x_k - m_k``. Then ``e_(k+1) = J_k e_k + r_k``, where J_k is
the stage's derivative at m_k, and r_k is how far the stage curves within the ball, plus its own roundings. A ball is as
wide as ``|J_k| |e_k| + |r_k|``. Each matrix then stretches by its largest singular value, although no single error is
stretched by all of them. That is quick, but many times too wide over several stages. A lead g e_K is off by at most

    |g J_(K-1) ... J_0 e_0| + sum over k of |g J_(K-1) ... J_(k+1)| |r_k|,

and the balls are needed only for the r_k, which are of second order in their radii.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.numbers.activation_functions import ACTIVATIONS, SMOOTH
from interp.proofs.numbers.enclosed_forward import EnclosedForward
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounding_errors import LARGEST, OWN_OF_BLOCK, scale_roundings
from models import TransformerConfig
from models.transformer import in_block

STEEP = 1.21  # above |x|^2 times the second derivative of x / scale, over sqrt n: see :meth:`GatedBlock.norm`


@dataclass(frozen=True, eq=False)
class ErrorBall:
    """Vectors within ``norm`` of ``mid``, in Euclidean length."""

    mid: Float[Tensor, "n d"]
    norm: Float[Tensor, " n"]

    @property
    def length(self) -> Float[Tensor, " n"]:
        """The length of the longest vector; infinite where float32 may overflow."""
        found = (self.mid.norm(dim=-1) + self.norm) * (1 + OWN_OF_BLOCK)
        return torch.where(found < LARGEST, found, torch.inf)


Bounds = tuple[Float[Tensor, " n"], Float[Tensor, " n"]]


def is_gated_block(cfg: TransformerConfig, weights: Mapping[str, Tensor]) -> bool:
    """Whether a model's last block is of the kind that :class:`GatedBlock` handles: Position Coupling's, without
    biases."""
    return (
        not any(name.split(".")[-1][0] == "b" and bool(value.any()) for name, value in weights.items())
        and (cfg.normalization_type, cfg.norm_placement, cfg.gated_mlp) == ("RMS", "both", True)
        and cfg.d_mlp > 0
        and cfg.act_fn in SMOOTH
        and cfg.has_final_norm
        and not cfg.final_gain
        and not cfg.parallel_attn_mlp
    )


class GatedBlock:
    """The stages from the last block's residual stream ``x`` and its ``z`` to the unembedding's input, for some rows.

    Precondition: :func:`is_gated_block`.
    """

    def __init__(self, forward: EnclosedForward, x: Enclosure, z: Enclosure):
        self.enclosed = forward
        self.act = ACTIVATIONS[forward.config.act_fn]
        self.grown, self.tiny = forward.rounding.growth, forward.rounding.tiny
        self.x, self.z = x, z
        self.name = name = in_block(forward.config.n_layers - 1)
        self.summed = self.add(ErrorBall(x.mid, x.norm), self.linear(ErrorBall(z.mid, z.norm), f"{name}.attn.W_O"))
        self.middle = self.norm(self.summed, f"{name}.ln1_post")
        self.read = self.norm(self.middle, f"{name}.ln2")
        self.gate, self.value = (self.linear(self.read, f"{name}.mlp.{m}") for m in ("W_gate", "W_in"))
        self.hidden = self.gated(self.gate, self.value)
        self.whole = self.add(self.middle, self.linear(self.hidden, f"{name}.mlp.W_out"))
        self.last = self.norm(self.whole, f"{name}.ln2_post")
        self.normed = self.norm(self.last, "ln_final")

    def _directions(self, tokens: Int[Tensor, " n"]) -> tuple[Tensor, Tensor, Tensor]:
        """The direction of each token's lead over every other, [n, other, d]; the leads; what their roundings add."""
        unembed, d = self.enclosed.matrices["unembed.W_U"], self.normed.mid.shape[-1]
        columns = torch.zeros(unembed.values.shape[1], d, dtype=torch.float64)
        columns[:, unembed.used] = unembed.values.T
        away, length = columns[tokens][:, None] - columns, columns.norm(dim=-1)
        lead = (away @ self.normed.mid[..., None])[..., 0]
        size = self.normed.length[:, None] * (length[tokens][:, None] + length)
        own = torch.where(size < LARGEST, (self.grown(d + 2) + OWN_OF_BLOCK) * size + 2 * d * self.tiny, torch.inf)
        return away, lead, own

    @staticmethod
    def _least(lead: Tensor, off: Tensor, tokens: Tensor) -> Bounds:
        others = torch.arange(lead.shape[1]) != tokens[:, None]
        low, high = (torch.where(others, end, torch.inf).amin(1) for end in (lead - off, lead + off))
        return low.nan_to_num(nan=-torch.inf), high.nan_to_num(nan=torch.inf)

    def leads(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Bounds of the lead of ``tokens`` over the best other token, by the lengths of errors."""
        away, lead, own = self._directions(tokens)
        return self._least(lead, own + away.norm(dim=-1) * self.normed.norm[:, None] * (1 + OWN_OF_BLOCK), tokens)

    def followed(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Tighter bounds, which follow each lead's error back to z. Cost: ten times that of :meth:`leads`."""
        back, lead, off = self._directions(tokens)
        back, off = self._through_norm(back, off, self.last, self.enclosed.weights["ln_final.w"])
        back, off = self._through_norm(back, off, self.whole, self.enclosed.weights[f"{self.name}.ln2_post.w"])
        return self._least(lead, self._from_whole(back, off) + OWN_OF_BLOCK * (1 + lead.abs()), tokens)

    def tighten(self) -> None:
        """Follow every entry of the residual stream after the MLP back to z, in place, for smaller balls from there on.

        Cost: that of :meth:`followed`, with d_model in place of d_vocab.
        """
        mid = self.whole.mid
        back = torch.eye(mid.shape[1], dtype=torch.float64).expand(len(mid), -1, -1)
        off = self._from_whole(back, torch.zeros_like(back[..., 0]))
        self.whole = ErrorBall(mid, torch.minimum(self.whole.norm, off.norm(dim=-1) * (1 + OWN_OF_BLOCK)))
        self.last = self.norm(self.whole, f"{self.name}.ln2_post")
        self.normed = self.norm(self.last, "ln_final")

    def _from_whole(self, back: Tensor, off: Tensor) -> Tensor:
        """The error of the stages from the stream after the MLP back to z, added to the error ``off`` so far."""
        weights, name = self.enclosed.weights, self.name
        direct, off = back, off + self._along(back, self.rounding_of_sum(self.whole))
        back, off = self._through_matrix(back, off, self.hidden, f"{name}.mlp.W_out")
        curve = self.curve_of_gate(self.gate, self.value) + self.rounding_of_gate(self.gate, self.value)
        off = off + self._along(back, curve)
        act, slope = (part(self.gate.mid)[:, None] for part in (self.act.value, self.act.slope))
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
        """How far an error of x moves a product with it."""
        return torch.minimum((back.abs() @ x.rad[..., None])[..., 0], back.norm(dim=-1) * x.norm[:, None])

    def _through_norm(self, back: Tensor, off: Tensor, x: ErrorBall, gain: Tensor) -> tuple[Tensor, Tensor]:
        n, middle = x.mid.shape[-1], self.scales(x)[1][:, None]
        off = off + self._along(back, self.curve_of_norm(x, gain) + self.rounding_of_norm(x, gain))
        y, root = x.mid[:, None] / middle, (x.mid.norm(dim=-1) / math.sqrt(n))[:, None, None]
        # The scale's derivative is x / (n root) with eps outside the root, and x / (n s) with eps inside.
        slope = x.mid[:, None] / (n * (root if self.enclosed.config.norm_eps_outside else middle))
        back = back * gain
        return (back - (back * y).sum(-1, keepdim=True) * slope) / middle, off

    def _through_matrix(
        self, back: Tensor, off: Tensor, x: ErrorBall | Enclosure, matrix: str
    ) -> tuple[Tensor, Tensor]:
        w = self.enclosed.matrices[matrix]
        off = off + self._along(back, self.rounding_of_products(ErrorBall(x.mid, x.norm), matrix))
        before = torch.zeros(*back.shape[:2], x.mid.shape[-1], dtype=torch.float64)
        before[..., w.used] = back @ w.values.T
        return before, off

    # ---- the stages

    def add(self, x: ErrorBall, y: ErrorBall) -> ErrorBall:
        found = ErrorBall(x.mid + y.mid, x.norm + y.norm)
        return ErrorBall(found.mid, found.norm + self.rounding_of_sum(found))

    def rounding_of_sum(self, total: ErrorBall) -> Tensor:
        return self.grown(1) * total.length + self.tiny * total.mid.shape[-1]

    def linear(self, x: ErrorBall, matrix: str) -> ErrorBall:
        w = self.enclosed.matrices[matrix]
        own = self.rounding_of_products(x, matrix)
        return ErrorBall(x.mid[:, w.used] @ w.values, x.norm * float(w.stretch[0]) + own)

    def rounding_of_products(self, x: ErrorBall, matrix: str) -> Tensor:
        """Each entry is off by at most ``n u`` times the products' magnitudes, that is |x| times a column's length."""
        w = self.enclosed.matrices[matrix]
        wide, n = float(w.columns.norm()) * (1 + OWN_OF_BLOCK), len(w.values)
        return self.grown(n) * (1 + OWN_OF_BLOCK) * x.length * wide + n * self.tiny * (1 + w.values.shape[1])

    def norm(self, x: ErrorBall, name: str) -> ErrorBall:
        """``y = x / s(x) * gain``, with s the root mean square with eps.

        A ball of y is wider by 1 / s at most. Lemma, for :meth:`curve_of_norm`: the second derivative of ``x / |x|``
        along p times x's direction and q across it, ``p^2 + q^2 = 1``, has the length
        ``sqrt(4 p^2 q^2 + q^4) / |x|^2``, at most ``2 / sqrt 3 / |x|^2``. eps outside the root adds less than
        ``5 (eps / s) / |x|^2``; inside it q^4 becomes ``(q^2 + 3 p^2 eps / s^2)^2`` and no other term is larger.
        Where these ratios are at most 0.01, that of ``x / s`` is at most ``STEEP / (sqrt n s^2)``.
        """
        gain = self.enclosed.weights[f"{name}.w"]
        least, middle, *_ = self.scales(x)
        wide = float(gain.abs().max()) * x.norm / least[:, 0] * (1 + OWN_OF_BLOCK)
        return ErrorBall(x.mid / middle * gain, wide + self.rounding_of_norm(x, gain))

    def scales(self, x: ErrorBall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cfg = self.enclosed.config
        return self.enclosed.rounding.scales(x.mid, x.norm, cfg.eps, cfg.norm_eps_outside)

    def rounding_of_norm(self, x: ErrorBall, gain: Tensor) -> Tensor:
        """The rounding of a norm, relative to y, whose length before the gain is at most sqrt n; infinite where its
        scale may underflow to nothing."""
        n = x.mid.shape[-1]
        least, _, _, lost = (part[..., 0] for part in self.scales(x))
        own = (self.grown(scale_roundings(n) + 4) * 1.001 * (1 + lost) + lost) * math.sqrt(n) + 4 * n * self.tiny
        return torch.where(least > 0, own * gain.abs().max() * (1 + OWN_OF_BLOCK), torch.inf)

    def curve_of_norm(self, x: ErrorBall, gain: Tensor) -> Tensor:
        """How far a norm curves over a ball."""
        cfg, least = self.enclosed.config, self.scales(x)[0][:, 0]
        curve = STEEP / 2 * x.norm**2 / (math.sqrt(x.mid.shape[-1]) * least**2) * gain.abs().max()
        share = cfg.eps / least ** (1 if cfg.norm_eps_outside else 2)
        return torch.where(share <= 0.01, curve * (1 + OWN_OF_BLOCK), torch.inf)

    def gated(self, gate: ErrorBall, value: ErrorBall) -> ErrorBall:
        """``act(gate) * value``, by its slopes at the midpoints, unit by unit, and how far it curves."""
        act, slope = self.act.value(gate.mid), self.act.slope(gate.mid)
        wide = (slope * value.mid).abs().amax(-1) * gate.norm + act.abs().amax(-1) * value.norm
        wide = (wide + OWN_OF_BLOCK * (gate.norm + value.norm)) * (1 + OWN_OF_BLOCK)
        return ErrorBall(act * value.mid, wide + self.curve_of_gate(gate, value) + self.rounding_of_gate(gate, value))

    def curve_of_gate(self, gate: ErrorBall, value: ErrorBall) -> Tensor:
        """How far it curves: at most ``(c / 2) e^2 (|value| + |f|) + s |e f|``; c and s bound act's derivatives."""
        steep, curved = self.act.steepest, self.act.curved
        return (curved / 2 * gate.norm**2 * self.widest(value) + steep * gate.norm * value.norm) * (1 + OWN_OF_BLOCK)

    def rounding_of_gate(self, gate: ErrorBall, value: ErrorBall) -> Tensor:
        """The rounding of the activation and of the product."""
        # That of an activation is relative to its argument, whose magnitude it does not exceed.
        relative = self.act.rounding(self.enclosed.rounding.unit32) + self.grown(1)
        return relative * gate.length * self.widest(value) + self.tiny * gate.mid.shape[-1] * (1 + self.widest(value))

    @staticmethod
    def widest(x: ErrorBall) -> Tensor:
        return (x.mid.abs().amax(-1) + x.norm) * (1 + OWN_OF_BLOCK)
