"""What a model of one layer computes after attention: its weights as bounds read them, and the exact pass.

A lead is ``U . r / s + constant``, r being the last stream and s the positive scale of the last norm. Norms after one
another are read together: a lead times both scales is ``r . U + s1 u1 + s1 s2 u2``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.rounded_operations import Rounding
from interp.proofs.numbers.rounding_errors import LARGEST
from models import TransformerConfig


@dataclass(frozen=True, eq=False)
class NormOf:
    """A norm: ``cent(x) / scale * gain + bias``, where ``cent`` subtracts the mean in LayerNorm."""

    gain: Float[Tensor, " d"]
    bias: Float[Tensor, " d"]


class AfterAttention:
    """The layers after attention of a model of one layer, in float64."""

    def __init__(self, config: TransformerConfig, weights: dict[str, Tensor], rounding: Rounding):
        self.config, self.rounding, cfg = config, rounding, config
        tiny = rounding.tiny
        w = {name: value.detach().double() for name, value in weights.items()}
        d, self.centred, self.eps_outside = cfg.d_model, cfg.normalization_type == "LN", cfg.norm_eps_outside
        zeros, ones = torch.zeros(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)
        self.cent = torch.eye(d, dtype=torch.float64) - (1 / d if self.centred else 0)
        norm = lambda name: NormOf(w[f"{name}.w"], w.get(f"{name}.b", zeros))  # noqa: E731
        post = cfg.has_post_norm
        self.has_mlp = bool(cfg.d_mlp) and not cfg.parallel_attn_mlp
        #: Whether the stream itself is normalised before the MLP.
        self.stream_scaled = post and self.has_mlp
        self.mid: NormOf | None = None
        if self.has_mlp and (post or cfg.has_pre_norm):
            self.mid = norm("blocks.0.ln1_post" if post else "blocks.0.ln2")
        self.last: list[NormOf] = []
        if post:
            self.last.append(norm("blocks.0.ln2_post" if cfg.d_mlp else "blocks.0.ln1_post"))
        self.final_gain = w["ln_final.w"] if cfg.final_gain else ones
        if cfg.has_final_norm and not cfg.final_gain:
            self.last.append(norm("ln_final"))
        read = NormOf(ones, zeros) if self.mid is None else self.mid
        cent = torch.eye(d, dtype=torch.float64) if self.mid is None else self.cent
        if self.has_mlp:
            mlp = "blocks.0.mlp"
            bias = lambda name, n: w.get(f"{mlp}.{name}", torch.zeros(n, dtype=torch.float64))  # noqa: E731
            self.W_out = w[f"{mlp}.W_out"]
            self.b_in, self.b_out = bias("b_in", cfg.d_mlp), bias("b_out", d)
            readers = [w[f"{mlp}.{name}"] for name in (("W_gate", "W_in") if cfg.gated_mlp else ("W_in",))]
            shifts = [torch.zeros_like(self.b_in), torch.zeros_like(self.b_in)] if cfg.gated_mlp else [self.b_in]
            self.readers = torch.cat(readers, 1)
            #: What neurons read is ``x . G / scale + g``; of a gated MLP the gates come first.
            self.G = cent @ (read.gain[:, None] * self.readers)
            self.g = read.bias @ self.readers + torch.cat(shifts)
        self.stream_in, self.stream_bias = (cent * read.gain, read.bias) if self.stream_scaled else (None, zeros)
        #: What underflow of squares can do to one over a scale, relative to it.
        self.lost = (math.sqrt(2 * tiny) if cfg.norm_eps_outside else 0.0) + 2 * tiny
        self.lost = self.lost / cfg.eps if 0 < cfg.eps < LARGEST else math.inf
        self.W_U, self.b_U = w["unembed.W_U"], w.get("unembed.b_U", torch.zeros(cfg.n_logits, dtype=torch.float64))
        # A lead times the last scales: r @ U + scale * u1 + scale * second scale * u2.
        U = self.final_gain[:, None] * self.W_U
        self.u1, self.u2 = self.b_U, torch.zeros_like(self.b_U)
        for number, one in enumerate(reversed(self.last)):
            if number == 0:
                self.u1 = one.bias @ U + self.b_U
            else:
                self.u1, self.u2 = one.bias @ U, self.u1
            U = self.cent @ (one.gain[:, None] * U)
        self.U = U
        # Of a normed vector of length sqrt d.
        unit = lambda one: math.sqrt(d) * one.gain.abs() + one.bias.abs()  # noqa: E731
        normed = [unit(one) for one in (*self.last, *([self.mid] if self.mid else []))]
        logits = [unit(one) @ (self.final_gain[:, None] * self.W_U).abs() + self.b_U.abs() for one in self.last[-1:]]
        #: With a last norm, an upper bound of the magnitudes of normed numbers, of logits and of their partial sums.
        self.most_logits = torch.cat([torch.zeros(1, dtype=torch.float64), *normed, *logits]).max()
        #: No norm's scale is below it.
        self.least_scale = cfg.eps if cfg.norm_eps_outside else math.sqrt(cfg.eps)
        #: An upper bound of the second scale, where two norms follow each other.
        self.second = 0.0
        if len(self.last) == 2:
            first = self.last[0]
            self.second = float(first.gain.abs().max() + first.bias.pow(2).mean().sqrt()) + math.sqrt(cfg.eps) + cfg.eps

    @property
    def reads(self) -> int:
        """How many numbers the neurons read."""
        return self.G.shape[1] if self.has_mlp else 0

    # ---- the exact pass on single problems

    def hidden(self, z: Float[Tensor, "*n reader"]) -> Float[Tensor, "*n neuron"]:
        """The neurons' activations from what they read."""
        act = ACTIVATIONS[self.config.act_fn].value
        if not self.config.gated_mlp:
            return act(z)
        gate, linear = z.tensor_split(2, -1)
        return act(gate) * linear + self.b_in

    def scale(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n 1"]:
        square = (x @ self.cent).pow(2).mean(-1, keepdim=True)
        return square.sqrt() + self.config.eps if self.config.norm_eps_outside else (square + self.config.eps).sqrt()

    def leads(self, x: Float[Tensor, "*n d"], answer: Int[Tensor, "*n"]) -> tuple[Tensor, Tensor]:
        """Of single streams after attention: leads over every other token in logits, inf at the token itself; and what
        the neurons read."""
        scale = torch.ones_like(x[..., :1]) if self.mid is None else self.scale(x)
        z = x.new_zeros(*x.shape[:-1], 0)
        r = x if self.stream_in is None else x @ self.stream_in / scale + self.stream_bias
        if self.has_mlp:
            z = x @ self.G / scale + self.g
            r = r + self.hidden(z) @ self.W_out + self.b_out
        for one in self.last:
            r = (r @ self.cent) / self.scale(r) * one.gain + one.bias
        logits = (r * self.final_gain) @ self.W_U + self.b_U
        lead = logits.gather(-1, answer[..., None]) - logits
        return lead.scatter(-1, answer[..., None], torch.inf), z
