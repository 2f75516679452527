"""Lower bounds of the right token's lead over all problems of a node: one enclosed forward pass of a class.

A lead is ``U . r / s + constant``, r being the last stream and s the positive scale of the last norm. So ``U . r`` plus
the constant times s has its sign. What stands between that and what attention writes is made linear step by step:

* each neuron's activation lies between two lines on the interval of what it reads;
* the scale of the norm before the MLP lies between ``u . x / sqrt d`` and the same plus delta, for the direction u of
  the node's mean. For any guess tau of ``g . x / scale``, it equals ``tau + (g . x - tau scale) / scale``, whose
  numerator is bounded by one functional near zero;

and so the lead is bounded by the least value of one functional of what attention writes, which
:mod:`interp.proofs.machine.ratio_extremes` finds. Directions, guesses and lines come from some sampled problems; the
bounds hold whatever they are.

Rounding: what is computed after attention differs from the exact stream by at most ``Reading.off``, and every
functional of the stream pays for it. What the MLP, the norms and the unembedding round is charged once, to the lead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.machine.activation_lines import Neurons
from interp.proofs.machine.lead_roundings import Ranges, rounding_of_leads
from interp.proofs.machine.post_attention import AfterAttention
from interp.proofs.machine.ratio_extremes import Nodes
from interp.proofs.numbers.rounding_errors import OWN

FEW_WRITTEN = 8  # numbers that all heads write together


@dataclass(frozen=True, eq=False)
class Bounds:
    """What is proved of some nodes: ``margin``, a lower bound of the lead in logits, and where it is loose.

    ``sampled`` is the least lead among the sampled paths, and ``sample`` the path that has it. For splitting: ``loose``
    [node, reader] says how much is lost per unit of what each neuron reads, and ``scale`` is the middle of the scale
    that this is divided by; ``functional`` [node, d] is the lead's functional of the stream.
    """

    margin: Float[Tensor, " node"]
    sampled: Float[Tensor, " node"]
    sample: Int[Tensor, "node step"]
    loose: Float[Tensor, "node reader"]
    scale: Float[Tensor, " node"]
    functional: Float[Tensor, "node d"]


def margin_bounds(
    layers: AfterAttention, nodes: Nodes, answers: Int[Tensor, " node"], samples: Int[Tensor, "node sample step"]
) -> Bounds:
    """Lower bounds of the lead of each node's right token over all of its problems, from one enclosed pass. Guesses
    come from the sampled paths."""
    return _Pass(layers, nodes, answers, samples).bounds()


@dataclass(frozen=True, eq=False)
class ScaleBounds:
    """Bounds of the scale of the norm before the MLP, for each node; 1 without one.

    For every stream x that attention may write, ``low <= scale <= high`` and ``direction . x <= scale <= direction . x
    + gap``. ``spread`` bounds the root mean square of how far a centred stream can be from the samples' mean.
    """

    low: Float[Tensor, " node"]
    high: Float[Tensor, " node"]
    direction: Float[Tensor, "node d"]
    gap: Float[Tensor, " node"]
    spread: Float[Tensor, " node"]


class _Pass:
    """One enclosed pass over some nodes: of the scale, then of what the neurons read, then of the lead."""

    scale: ScaleBounds
    neurons: Neurons | None

    def __init__(self, layers: AfterAttention, nodes: Nodes, answers: Tensor, samples: Tensor):
        self.layers, self.nodes, self.answers = layers, nodes, answers
        self.cfg, reading = layers.config, nodes.reading
        self.base, self.size = reading.base, reading.size
        self.levels = nodes.written(samples)
        self.x = self.base + torch.einsum("hbse,hed->bsd", self.levels, reading.W_O)
        each = answers[:, None].expand(self.x.shape[:2])
        #: How far the computed stream may be off: for all problems of the query, or closely where heads write few
        #: numbers and where a node cannot be split any more.
        self.off = reading.off(reading.mixed_off).expand(nodes.n, -1)
        if layers.rounding.unit32 and (reading.mixed_off.numel() <= FEW_WRITTEN or nodes.has_single):
            self.off = reading.off(torch.minimum(nodes.mixed_off(self.levels), reading.mixed_off))
        lead, self.z = layers.leads(self.x, each)
        least = lead.amin(-1)
        self.sampled, at = least.min(1)
        self.sample = samples[torch.arange(len(at)), at]
        vocab = torch.arange(lead.shape[-1])
        self.others = torch.stack([vocab[vocab != a] for a in answers.tolist()])

    def upper_bounds(
        self, functionals: Float[Tensor, "node n d"], size: Tensor | None = None
    ) -> Float[Tensor, "node n"]:
        """Upper bounds of functionals of the computed stream; ``size`` are magnitudes of what they were made of."""
        size = functionals.abs() if size is None else size
        own = (functionals.abs() @ self.off[..., None])[..., 0] + OWN * (size @ self.size)
        return self.nodes.largest(functionals, self.levels) + functionals @ self.base + own

    # ---- the scale before the MLP

    def bounds_of_scale(self) -> ScaleBounds:
        layers, d = self.layers, self.cfg.d_model
        b = len(self.x)
        if layers.mid is None:
            one, zero = torch.ones(b, dtype=torch.float64), torch.zeros(b, dtype=torch.float64)
            return ScaleBounds(one, one, torch.zeros(b, d, dtype=torch.float64), zero, zero)
        centred = self.x @ layers.cent
        basis, middle = directions(centred, layers.centred)
        functionals = basis @ layers.cent
        ends = self.upper_bounds(torch.cat((functionals, -functionals), 1))
        most, least = ends.tensor_split(2, 1)
        least = -least
        far = torch.maximum(most.abs(), least.abs())
        near = torch.where((least < 0) & (most > 0), 0.0, torch.minimum(most.abs(), least.abs()))
        scale = lambda ends: self.with_eps(ends.norm(dim=1) / math.sqrt(d))  # noqa: E731
        low, high = scale(near) * (1 - OWN), scale(far) * (1 + OWN)
        first = least[:, 0] / math.sqrt(d)
        rest = (far[:, 1:] ** 2).sum(1) / d
        eps = self.cfg.eps
        tail = rest / (2 * first) + eps if self.cfg.norm_eps_outside else (rest + eps) / (2 * first)
        gap = torch.where(first > 0, tail, high - first) * (1 + OWN) + 1e-300
        at = (basis @ middle[..., None])[..., 0]
        spread = torch.maximum(most - at, at - least).norm(dim=1) / math.sqrt(d)
        return ScaleBounds(low, high, functionals[:, 0] / math.sqrt(d), gap, spread)

    # ---- the neurons

    def bounds_of_neurons(self, before: ScaleBounds) -> Neurons:
        """The interval of what each neuron reads, and lines around its activation."""
        layers, n = self.layers, self.layers.G.shape[1]
        raw = self.z - layers.g
        G = layers.G.T.expand(len(self.x), -1, -1)
        if layers.mid is None:
            ends = self.upper_bounds(torch.cat((G, -G), 1))
        else:
            tau = torch.cat((raw.amax(1), -raw.amin(1)), 1)
            both = torch.cat((G, -G), 1)
            shift = tau[..., None] * before.direction[:, None]
            ends = (
                self.upper_bounds(both - shift, both.abs() + shift.abs()) + (-tau).clamp_min(0.0) * before.gap[:, None]
            )
            # No scale is 0, as a model's eps is not (:data:`interp.proofs.machine.machine_method.LEAST_EPS`).
            ends = tau + torch.where(ends > 0, ends / before.low[:, None], ends / before.high[:, None])
            ends = ends + OWN * (tau.abs() + ends.abs())
        slack = OWN * (layers.g.abs() + 1)
        return Neurons(layers, layers.g - ends[:, n:] - slack, ends[:, :n] + layers.g + slack, self.z)

    def lower_bound_after_mlp(self, direct: Tensor, hidden: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
        """Lower bounds [node, row] of ``direct . r' + hidden . activations + constant``, where r' is the stream that
        the MLP's output is added to; and the chosen functionals of x [node, row, d], between the scale's ends."""
        layers, size = self.layers, constant.abs()
        scaled = torch.zeros_like(direct)
        own = direct
        if layers.stream_in is not None:
            scaled, own = direct @ layers.stream_in.T, torch.zeros_like(direct)
            constant = constant + direct @ layers.stream_bias
            size = size + direct.abs() @ layers.stream_bias.abs()
        choices = [(scaled, constant, size, scaled.abs())]
        if self.neurons is not None:
            choices = []
            for slopes, more, other in self.neurons.linear(hidden):
                made = scaled + slopes @ layers.G.T
                choices.append((made, constant + more, size + other, scaled.abs() + slopes.abs() @ layers.G.abs().T))
        options = [self._ends(own, *choice) for choice in choices]
        # Which lines to use is guessed from the samples; the bound is computed for that choice.
        tried = torch.stack([self._sampled(*option[:2]) for option in options])
        best = tried.argmax(0)
        F, k, big, sizes = (
            torch.stack(part).gather(0, best[None, None, ..., None].expand(1, 2, *best.shape, part[0].shape[-1]))[0]
            if part[0].ndim == 4
            else torch.stack(part).gather(0, best[None, None].expand(1, 2, *best.shape))[0]
            for part in zip(*options, strict=True)
        )
        ends = 1 if layers.mid is None else 2
        flat = lambda x: x[:ends].transpose(0, 1).flatten(1, 2)  # noqa: E731
        bound = -self.upper_bounds(-flat(F), flat(big)) + flat(k) - OWN * flat(sizes)
        bound = bound.view(len(F[0]), ends, -1).amin(1)
        return bound, F.mean(0)

    def _ends(self, own: Tensor, scaled: Tensor, constant: Tensor, size: Tensor, big: Tensor) -> tuple[Tensor, ...]:
        """The functional of x and the constant at both ends of the scale: [end, node, row, d] and [end, node, row]."""
        if self.layers.mid is None:
            made, reach = own + scaled, own.abs() + big
            return tuple(torch.stack((part, part)) for part in (made, constant, reach, size))
        mean = (self.x / self.layers.scale(self.x)).mean(1)
        tau = (scaled @ mean[..., None])[..., 0]
        shift = tau[..., None] * self.scale.direction[:, None]
        lost = tau.clamp_min(0.0) * self.scale.gap[:, None]
        low_high = (self.scale.low[:, None], self.scale.high[:, None])
        F = torch.stack([own + (scaled - shift) / end[..., None] for end in low_high])
        k = torch.stack([constant + tau - lost / end for end in low_high])
        reach = torch.stack([own.abs() + (big + shift.abs()) / end[..., None] for end in low_high])
        sizes = torch.stack([size + tau.abs() + lost / end for end in low_high])
        return F, k, reach, sizes

    def _sampled(self, F: Tensor, k: Tensor) -> Tensor:
        return ((F @ self.x.mT).amin(-1) + k).amin(0)

    # ---- the lead

    def bounds(self) -> Bounds:
        layers, cfg = self.layers, self.cfg
        self.scale = self.bounds_of_scale()
        self.neurons = self.bounds_of_neurons(self.scale) if layers.has_mlp else None
        last_low, high = self.last_scale()
        rows, right = self.others, self.answers[:, None]
        pairs = lambda table: table[..., right] - table[..., rows]  # noqa: E731
        away = pairs(layers.U).permute(1, 2, 0)  # [node, other, d]
        constant = away @ layers.b_out if layers.has_mlp else torch.zeros_like(away[..., 0])
        first, second = pairs(layers.u1), pairs(layers.u2)
        hidden = away @ layers.W_out.T if layers.has_mlp else away[..., :0]
        direct = away
        if layers.last:
            # scale * (first + second scale * second): a lower bound of the scale where that is positive is linear.
            fixed = first + torch.where(second < 0, layers.second * second, 0.0)
            along = self.last_direction()
            up = fixed.clamp_min(0.0)[..., None] * along[:, None]
            direct = away + up
            if layers.has_mlp:
                hidden = hidden + up @ layers.W_out.T
                constant = constant + up @ layers.b_out
        else:
            fixed, constant = torch.zeros_like(first), constant + first
        raw, functional = self.lower_bound_after_mlp(direct, hidden, constant)
        charged = lambda high: rounding_of_leads(  # noqa: E731
            self.ranges(last_low), hidden, high, (first, second), torch.cat((right, rows), 1)
        )
        bound = raw + fixed.clamp_max(0.0) * high[:, None] - charged(high)
        if layers.last and bool((bound <= 0).any()) and bool((fixed < 0).any()):
            high = torch.minimum(high, self.closer_last_scale())
            bound = raw + fixed.clamp_max(0.0) * high[:, None] - charged(high)
        scale = high * (layers.second if len(layers.last) == 2 else 1)
        # The scale is positive as eps is. What is NaN has no bound; an infinite rounding makes the bound -inf.
        bound = torch.where(bound > 0, bound / scale[:, None] * (1 - OWN), bound)
        bound = bound.nan_to_num(nan=-math.inf)
        margin, at = bound.min(1)
        chosen = at[:, None, None]
        loose = torch.zeros(len(at), 0, dtype=torch.float64)
        if self.neurons is not None:
            loose = self.neurons.looseness(hidden.gather(1, chosen.expand(-1, 1, hidden.shape[-1]))[:, 0].abs())
        functional = functional.gather(1, chosen.expand(-1, 1, cfg.d_model))[:, 0]
        middle = (self.scale.low + self.scale.high) / 2
        return Bounds(margin, self.sampled, self.sample, loose, middle, functional)

    def ranges(self, last_low: Float[Tensor, " node"]) -> Ranges:
        """What rounding depends on."""
        own = self.neurons
        neurons = None if own is None else (own.low, own.high, *own.act_range)
        return Ranges(self.layers, self.size.expand(len(self.x), -1), self.scale.low, last_low, neurons)

    def last_streams(self) -> Float[Tensor, "node sample d"]:
        """The last streams of the samples, before any last norm."""
        layers = self.layers
        scale = torch.ones_like(self.x[..., :1]) if layers.mid is None else layers.scale(self.x)
        r = self.x if layers.stream_in is None else self.x @ layers.stream_in / scale + layers.stream_bias
        return r + layers.hidden(self.z) @ layers.W_out + layers.b_out if layers.has_mlp else r

    def last_direction(self) -> Float[Tensor, "node d"]:
        """v with ``v . r <= scale``: a unit vector over sqrt d."""
        mean = (self.last_streams() @ self.layers.cent).mean(1)
        return (mean / mean.norm(dim=-1, keepdim=True).clamp_min(1e-300)) @ self.layers.cent / math.sqrt(len(mean[0]))

    def last_scale(self) -> tuple[Float[Tensor, " node"], Float[Tensor, " node"]]:
        """A lower and an upper bound of the scale of the norm after the MLP, or 1 without one.

        The stream is within some distance of the samples' mean: that of what attention writes (from the box of the norm
        stage, or of magnitudes), and that of the neurons' ranges.
        """
        layers = self.layers
        if not layers.last:
            one = torch.ones(len(self.x), dtype=torch.float64)
            return one, one
        d = self.cfg.d_model
        rms = lambda x: (x @ layers.cent).pow(2).mean(-1).sqrt()  # noqa: E731
        if layers.mid is None:
            functionals = layers.cent.expand(len(self.x), -1, -1)
            ends = self.upper_bounds(torch.cat((functionals, -functionals), 1))
            most, least = ends.tensor_split(2, 1)
            x_mean = (self.x @ layers.cent).mean(1)
            apart = torch.maximum(most - x_mean, least + x_mean).norm(dim=1) / math.sqrt(d)
        elif layers.stream_in is None:
            apart = self.scale.spread
        else:  # x / scale, whose mean square is at most one, against the samples' mean of it
            gain = layers.mid.gain.abs().max()
            mean = (self.x / layers.scale(self.x)).mean(1)
            reach = self.scale.spread / self.scale.low + rms(self.x.mean(1)) * (
                1 / self.scale.low - 1 / self.scale.high
            )
            apart = gain * torch.minimum(reach + rms(self.x.mean(1) / self.scale.high[:, None] - mean), 1 + rms(mean))
        r = self.last_streams().mean(1)
        if self.neurons is not None:
            h = layers.hidden(self.z).mean(1)
            rad = torch.maximum(self.neurons.most - h, h - self.neurons.least)
            apart = apart + (rad @ layers.W_out.abs()).pow(2).mean(-1).sqrt()
            # The samples' mean of x and of the MLP's output are parts of r's mean, exactly.
        low = self.with_eps((rms(r) - apart).clamp_min(0.0)) * (1 - OWN)
        return low, self.with_eps(rms(r) + apart) * (1 + OWN)

    def with_eps(self, root: Float[Tensor, " node"]) -> Float[Tensor, " node"]:
        """The scale of a norm, from the root of the mean square."""
        eps = self.cfg.eps
        return root + eps if self.cfg.norm_eps_outside else (root**2 + eps).sqrt()

    def closer_last_scale(self) -> Float[Tensor, " node"]:
        """As :meth:`last_scale`, from the extremes of the last stream along an orthonormal basis: more work."""
        layers, d = self.layers, self.cfg.d_model
        basis, _ = directions(self.last_streams() @ layers.cent, layers.centred)
        functionals = basis @ layers.cent
        both = torch.cat((functionals, -functionals), 1)
        if layers.has_mlp:
            ends, _ = self.lower_bound_after_mlp(both, both @ layers.W_out.T, both @ layers.b_out)
        else:
            ends, _ = self.lower_bound_after_mlp(both, both[..., :0], torch.zeros_like(both[..., 0]))
        far = (-ends).clamp_min(0.0).view(len(ends), 2, -1).amax(1)
        return self.with_eps(far.norm(dim=1) / math.sqrt(d)) * (1 + OWN)


def directions(x: Float[Tensor, "node sample d"], centred: bool) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of the (centred) space for each node, its mean's direction first and then the directions in
    which samples vary most; and the mean. Bounds hold for any orthonormal basis; this one makes them close."""
    b, _, d = x.shape
    mean = x.mean(1)
    first = mean / mean.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    away = x - mean[:, None]
    try:
        _, vectors = torch.linalg.eigh((away.mT @ away).nan_to_num(0.0, 0.0, 0.0))
    except RuntimeError:  # as of samples that are all but equal
        vectors = torch.eye(d, dtype=torch.float64).expand(b, -1, -1)
    # What centring removes comes first, so that the rest spans the centred space whatever the mean is, even zero.
    rows = (first[:, None], vectors.flip(-1).mT)
    if centred:
        rows = (torch.full((b, 1, d), 1 / math.sqrt(d), dtype=torch.float64), *rows)
    q = torch.linalg.qr(torch.cat(rows, 1).mT)[0].mT[:, int(centred) :]  # rows are orthonormal
    sign = torch.where((q[:, :1] * first[:, None]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return torch.cat((q[:, :1] * sign, q[:, 1:]), 1), mean
