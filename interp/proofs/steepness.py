"""Tighter bounds from the local Lipschitz constant of each sublayer, at each node.

:class:`interp.proofs.enclosures.Rounding` passes an error on from one operation to the next, and lets every matrix
stretch it by its largest singular value. No single error is stretched by all of them, so that balls grow many times
faster from block to block than a block's derivative lets an error grow.

Here a half of a block (attention or MLP, with its norm) is one stage as in :mod:`interp.proofs.error_propagation`:
``e' = J e + r``, with J the derivative at the midpoints, and r how far the half curves within the balls plus the
roundings of its operations, passed on to its end. Balls are needed for r only, which is of second order in them.

Derivatives are multiplied in float32, so that the proof relies on the products of torch on this machine being of full
precision, as the model's own are assumed to be (:mod:`interp.proofs.balls`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.proofs.balls import CURVED, SHAPES
from interp.proofs.enclosed import Enclosure, Normed
from interp.proofs.enclosed_weights import EnclosedWeights
from interp.proofs.error_propagation import KNOWN, ErrorBall, Stages
from interp.proofs.head_errors import AT_ONCE, SINGLE, Attended, HeadMaps, Heads, cancelled, lengths_of
from models.transformer.config import TransformerConfig
from models.transformer.part_names import in_block

#: Of how many matrices the derivatives of an MLP at the nodes of a part are put together.
MOST_SLOPES = 64


def applies(cfg: TransformerConfig) -> bool:
    """Whether a model's blocks are of the kind that is handled here, and deep enough to need it."""
    return (
        cfg.n_layers > 2
        and cfg.has_pre_norm
        and not cfg.has_post_norm
        and not cfg.norm_eps_outside
        and cfg.attn_scores == "dot"
        and cfg.attn_top_k is None
        and cfg.positional_embedding_type not in ("rotary", "fire")
        and cfg.d_mlp > 0
        and not cfg.gated_mlp
        and cfg.act_fn in CURVED
        and not cfg.later_switches
    )


@dataclass(frozen=True, eq=False)
class HalfBlock:
    """A block's attention and the errors that it starts from, at the nodes that the block goes on with.

    Attributes:
        entered: how far off the residual stream before attention is.
        rounded: the rounding of the product with W_O and of its sum with the stream.
    """

    heads: Heads
    done: Attended
    entered: Float[Tensor, " node"]
    rounded: Float[Tensor, " node"]

    @classmethod
    def of(cls, heads: Heads, before: Enclosure, out: Enclosure, after: Enclosure) -> HalfBlock:
        assert out.own is not None and after.own is not None
        return cls(heads, Attended.joined(heads.done), before.norm, out.own + after.own)

    def __getitem__(self, rows: Tensor) -> HalfBlock:
        return HalfBlock(self.heads, self.done[rows], self.entered[rows], self.rounded[rows])

    @property
    def straight(self) -> Float[Tensor, " node"]:
        """What is off apart from the heads' first order."""
        return self.entered + self.done.beyond + self.rounded

    @property
    def norm(self) -> Float[Tensor, " node"]:
        """How far off the residual stream after attention is."""
        return (self.straight + self.done.first) * (1 + KNOWN)


@dataclass(frozen=True, eq=False)
class MLP:
    """An MLP's way through a block: the stream that it is added to, what it reads, and its pre-activations."""

    x: Enclosure
    read: Normed
    pre: Enclosure
    half: HalfBlock | None = None

    def __getitem__(self, rows: Tensor) -> MLP:
        return MLP(self.x[rows], self.read[rows], self.pre[rows], None if self.half is None else self.half[rows])


@dataclass(frozen=True, eq=False)
class Slopes:
    """The derivatives ``W_in D W_out`` of an MLP at many nodes, which differ in its units' slopes D.

    The slopes at the nodes are close to a space of few dimensions. So each derivative is ``mean + sum_k c_k basis_k``,
    and ``off`` bounds the rest and all rounding in Frobenius norm. ``size`` bounds the Frobenius norms of its terms.
    """

    mean: Float[Tensor, "d d"]
    basis: Float[Tensor, "k d_d"]
    coordinates: Float[Tensor, "node k"]
    off: Float[Tensor, " node"]
    size: Float[Tensor, " node"]

    @classmethod
    def of(cls, slope: Float[Tensor, "node unit"], w_in: Tensor, w_out: Tensor) -> Slopes:
        """The space is that of the first principal components, where a unit counts as much as its weights are long.

        Where slopes are not known, ``off`` is infinite.
        """
        length = (w_in.norm(dim=0) * w_out.norm(dim=1)).clamp_min(1e-30)
        known = slope.isfinite().all(-1)
        slope = torch.where(known[:, None], slope, 0.0)
        middle = slope.mean(0)
        weighted = (slope - middle) * length
        vectors = torch.linalg.eigh(weighted.T @ weighted).eigenvectors[:, -MOST_SLOPES:]
        coordinates, kept = (weighted @ vectors).float(), (vectors / length[:, None]).T
        rest = slope - middle - coordinates.double() @ kept
        products = (w_in.T @ w_in) * (w_out @ w_out.T)  # of the units' matrices, entry by entry
        lost = cancelled(len(length), len(w_in)) * (rest.abs() @ length)
        rest = ((rest @ products) * rest).sum(-1).clamp_min(0.0).sqrt() + lost
        mean, basis = (w_in * middle) @ w_out, torch.stack([(w_in * one) @ w_out for one in kept])
        size = mean.norm() + coordinates.double().norm(dim=-1) * basis.norm()
        off = rest + 1.01 * SINGLE * (len(basis) + 8) * size
        return cls(mean.float(), basis.float().flatten(1), coordinates, torch.where(known, off, torch.inf), size)

    def derivatives(self, rows: Tensor) -> Float[Tensor, "n d d"]:
        """In float32."""
        return self.mean + (self.coordinates[rows] @ self.basis).view(-1, *self.mean.shape)


class Steepness(Stages):
    """Bounds for the blocks of one model in the arithmetic of ``weights``. Precondition: :func:`applies`."""

    def __init__(self, weights: EnclosedWeights):
        super().__init__(weights)
        self.steep, self.curved = SHAPES[weights.config.act_fn][3], CURVED[weights.config.act_fn]
        names = [in_block(layer, "attn") for layer in range(weights.config.n_layers)]
        self.maps = {n: HeadMaps.of(*(weights.weights[f"{n}.W_{c}"] for c in "QKVO")) for n in names}

    def heads(self, name: str, q: Enclosure, k: Enclosure, v: Enclosure, read: Normed) -> Heads:
        return Heads.of(self, self.maps[name], q, k, v, read.whole.norm)

    def _displacement(self, name: str, mlp: MLP) -> Float[Tensor, " node"]:
        """How far the norm before the MLP is from its derivative, its roundings included."""
        assert mlp.read.own is not None
        return mlp.read.own + self.curve_of_norm(self._centred(mlp.x), self.enclosed.weights[f"{name}.ln2.w"])

    def _centred(self, x: Enclosure) -> ErrorBall:
        return self.centred(ErrorBall(x.mid, x.norm))

    def after_mlp(self, name: str, mlp: MLP, hidden: Enclosure, out: Enclosure) -> Float[Tensor, " node"]:
        """The length of the error of ``x + MLP(norm(x))``, before the rounding of that sum."""
        w_in, w_out = (self.enclosed.matrices[f"{name}.mlp.W_{c}"] for c in ("in", "out"))
        pre = mlp.pre
        assert pre.own is not None and hidden.own is not None and out.own is not None
        curve = (self.curved / 2 * pre.rad**2).norm(dim=-1)
        inner = self.steep * (float(w_in.stretch[0]) * self._displacement(name, mlp) + pre.own)
        off = self._followed(name, mlp) + float(w_out.stretch[0]) * (inner + curve + hidden.own)
        return (off + out.own) * (1 + KNOWN)

    def _followed(self, name: str, mlp: MLP) -> Float[Tensor, " node"]:
        """The error of what enters a block, through the derivatives of its halves at each node.

        That of ``x + MLP(norm(x))`` is computed in float32. Its error is bounded in Frobenius norm: :class:`Slopes` has
        that of the MLP's own, and the norm's projection adds (d + 32) u times the matrices' norms. What enters the
        first block is all but exact, and is not followed through its heads.
        """
        weights, cfg, half = self.enclosed.weights, self.enclosed.config, mlp.half
        assert half is not None
        gain, w_in, w_out = (weights[f"{name}.{part}"] for part in ("ln2.w", "mlp.W_in", "mlp.W_out"))
        d, scaled, c = len(w_in), gain[:, None] * w_in, self._centred(mlp.x).mid
        if cfg.normalization_type == "LN":
            scaled = scaled - scaled.mean(0)
        slopes = Slopes.of(self.activation(mlp.pre.mid)[1], scaled, w_out)
        square = (c**2).mean(-1) + cfg.eps
        unsure = (slopes.off + 1.01 * SINGLE * (d + 32) * slopes.size) / square.sqrt() + 4.1 * d * SINGLE
        c, found = c.float(), []
        for rows in torch.arange(len(c)).split(AT_ONCE):
            here, scale, b = c[rows], square[rows].float()[:, None, None], slopes.derivatives(rows)
            b = (b - here[..., None] * ((here[:, None] @ b) / (d * scale))) / scale.sqrt() + torch.eye(d)
            part, stretch, norm = half[rows], _stretches(b), mlp.x.norm[rows]
            off = norm * stretch
            if name != "blocks.0":
                off = torch.minimum(off, part.straight * stretch + part.heads.through(part.done, b))
            found.append(off + norm * unsure[rows])
        return torch.cat(found)

    def lead_errors(self, name: str, mlp: MLP, away: Float[Tensor, "d other"]) -> Float[Tensor, "n other"]:
        """How far products of the stream after the last MLP with some vectors may be off.

        Each is followed back through the MLP, its norm and attention, so that an error there meets ``J' away``.
        """
        parts = torch.arange(len(mlp.x.mid)).split(AT_ONCE)
        return torch.cat([self._lead_errors(name, mlp[rows], away) for rows in parts])

    def _lead_errors(self, name: str, mlp: MLP, away: Tensor) -> Tensor:
        weights, cfg, half, pre = self.enclosed.weights, self.enclosed.config, mlp.half, mlp.pre
        assert half is not None
        w_in, w_out, gain = (weights[f"{name}.{part}"] for part in ("mlp.W_in", "mlp.W_out", "ln2.w"))
        (d, units), back = w_in.shape, w_out @ away
        through = (self.activation(pre.mid)[1][:, None] * back.T) @ w_in.T  # [n, other, d]
        c = self._centred(mlp.x).mid[:, None]
        square = (c**2).mean(-1, keepdim=True) + cfg.eps
        direct = through * gain
        direct = (direct - (direct * c).sum(-1, keepdim=True) / (d * square) * c) / square.sqrt()
        if cfg.normalization_type == "LN":
            direct = direct - direct.mean(-1, keepdim=True)
        direct = away.T + direct
        off = direct.norm(dim=-1) * half.straight[:, None] + half.heads.along(half.done, direct.mT)
        off = off + through.norm(dim=-1) * self._displacement(name, mlp)[:, None]
        b_in, b_out = (weights.get(f"{name}.mlp.{bias}", torch.zeros(())).abs() for bias in ("b_in", "b_out"))
        own = self.grown(d + 3) * (mlp.read.whole.size @ w_in.abs() + b_in) + (d + 3) * self.tiny
        own = self.steep * own + self.curved / 2 * pre.rad**2 + self.rounding_of_activation * pre.size
        off = off + (own + self.tiny) @ back.abs()
        sums = pre.size @ w_out.abs()  # an activation is not larger than its argument
        own = self.grown(units + 4) * sums + self.grown(4) * (sums + mlp.x.size + b_out) + (units + 4) * self.tiny
        known = KNOWN * (mlp.read.whole.length * float(w_in.norm()) + pre.length + 1) * float(w_out.norm())
        return (off + own @ away.abs()) * (1 + KNOWN) + known[:, None] * away.norm(dim=0)


def _stretches(b: Float[Tensor, "n d d"]) -> Float[Tensor, " n"]:
    """Upper bounds of the largest singular values of float32 matrices.

    ``|B|^2`` is the largest eigenvalue of ``G = B' B``. That is at most ``m + |G - m|`` for any m, here the mean one,
    and ``|G - m|^2`` at most the length of ``(G - m)'(G - m)``. Most eigenvalues of a derivative such as B's are close
    to m, so that they count for little. Each product is off by at most d u times its factors' lengths. Precondition:
    nothing underflows, as with derivatives of ``x + f(x)``, whose largest singular values are about 1 or more.
    """
    d = b.shape[-1]
    grown, g = 1.01 * d * SINGLE, b.mT @ b
    mean = g.diagonal(dim1=1, dim2=2).mean(1)
    apart = g - mean[:, None, None] * torch.eye(d)
    square, length = apart.mT @ apart, lengths_of(b)
    found = (lengths_of(square) + grown * lengths_of(apart) ** 2).sqrt() + mean.double()
    return (found + (grown + 3 * SINGLE) * length**2).sqrt()
