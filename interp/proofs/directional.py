"""Bounds of leads after a gated block with norms before and after its sublayers, along each lead's own direction.

With errors e_k and stages as in :mod:`interp.proofs.error_propagation`, a lead g e_K is off by at most

    |g J_(K-1) ... J_0 e_0| + sum over k of |g J_(K-1) ... J_(k+1)| |r_k|,

and the balls are needed only for the r_k, which are of second order in their radii.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.balls import CURVED
from interp.proofs.enclosed import Enclosure
from interp.proofs.error_propagation import KNOWN, ErrorBall, Stages
from interp.proofs.prefix_tree import EnclosedForward
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block

Bounds = tuple[Float[Tensor, " n"], Float[Tensor, " n"]]


def is_gated_block(cfg: TransformerConfig, weights: Mapping[str, Tensor]) -> bool:
    """Whether a model's last block is of the kind that :class:`GatedBlock` handles: Position Coupling's, without
    biases."""
    return (
        not any(name.split(".")[-1][0] == "b" and bool(value.any()) for name, value in weights.items())
        and (cfg.normalization_type, cfg.norm_placement, cfg.gated_mlp) == ("RMS", "both", True)
        and cfg.d_mlp > 0
        and cfg.act_fn in CURVED
        and cfg.has_final_norm
        and not cfg.final_gain
        and not cfg.parallel_attn_mlp
    )


class GatedBlock(Stages):
    """The stages from the last block's residual stream ``x`` and its ``z`` to the unembedding's input, for some rows.

    Precondition: :func:`is_gated_block`.
    """

    def __init__(self, forward: EnclosedForward, x: Enclosure, z: Enclosure):
        super().__init__(forward)
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
        return away, lead, (self.grown(d + 2) + KNOWN) * size + 2 * d * self.tiny

    @staticmethod
    def _least(lead: Tensor, off: Tensor, tokens: Tensor) -> Bounds:
        others = torch.arange(lead.shape[1]) != tokens[:, None]
        low, high = (torch.where(others, end, torch.inf).amin(1) for end in (lead - off, lead + off))
        return low.nan_to_num(nan=-torch.inf), high.nan_to_num(nan=torch.inf)

    def leads(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Bounds of the lead of ``tokens`` over the best other token, by the lengths of errors."""
        away, lead, own = self._directions(tokens)
        return self._least(lead, own + away.norm(dim=-1) * self.normed.norm[:, None] * (1 + KNOWN), tokens)

    def followed(self, tokens: Int[Tensor, " n"]) -> Bounds:
        """Tighter bounds, which follow each lead's error back to z. Cost: ten times that of :meth:`leads`."""
        back, lead, off = self._directions(tokens)
        back, off = self._through_norm(back, off, self.last, self.enclosed.weights["ln_final.w"])
        back, off = self._through_norm(back, off, self.whole, self.enclosed.weights[f"{self.name}.ln2_post.w"])
        return self._least(lead, self._from_whole(back, off) + KNOWN * (1 + lead.abs()), tokens)

    def tighten(self) -> None:
        """Follow every entry of the residual stream after the MLP back to z, in place, for smaller balls from there on.

        Cost: that of :meth:`followed`, with d_model in place of d_vocab.
        """
        mid = self.whole.mid
        back = torch.eye(mid.shape[1], dtype=torch.float64).expand(len(mid), -1, -1)
        off = self._from_whole(back, torch.zeros_like(back[..., 0]))
        self.whole = ErrorBall(mid, torch.minimum(self.whole.norm, off.norm(dim=-1) * (1 + KNOWN)))
        self.last = self.norm(self.whole, f"{self.name}.ln2_post")
        self.normed = self.norm(self.last, "ln_final")

    def _from_whole(self, back: Tensor, off: Tensor) -> Tensor:
        """The error of the stages from the stream after the MLP back to z, added to the error ``off`` so far."""
        weights, name = self.enclosed.weights, self.name
        direct, off = back, off + self._along(back, self.rounding_of_sum(self.whole))
        back, off = self._through_matrix(back, off, self.hidden, f"{name}.mlp.W_out")
        curve = self.curve_of_gate(self.gate, self.value) + self.rounding_of_gate(self.gate, self.value)
        off = off + self._along(back, curve)
        act, slope = (part[:, None] for part in self.activation(self.gate.mid))
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
