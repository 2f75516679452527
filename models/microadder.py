"""MicroAdder: ten-digit addition in 74, 67 or 57 free numbers (Zarechnev, 2026, sections 2 and 4).

The effective model is a stock one-layer, one-head RMSNorm decoder with d_model = d_head = 5. Its residual
stream is split: dimensions 0-1 hold the digit (a point on a circular arc), dimensions 2-4 the column (a point on
a spiral). Queries and keys read only the position dimensions, values only the token dimensions. Because all
digits lie on one circle, the RMS of the stream depends on the position alone, and so does the attention pattern.

    e(d)  = A [cos(start + d stride), sin(start + d stride)]
    x_t   = [e(d_t) | p_t]                        one norm n(x) = x / sqrt(mean(x^2) + 1e-5) * w, used three times
    k_t   = W n(x_t)[2:5],  q_t = R(theta) k_t    W is qk_dim x 3, scores divided by sqrt(qk_dim)
    v_t   = n(x_t)[0:2] H                         H is 2 x 5
    y_t   = x_t + ((sum_j a_tj v_j) . o_A) o_B    rank 1
    y'_t  = y_t + gelu(W1 n(y_t)) F               F is H (57) or a matrix of its own (67, 74)
    logit = (H n(y'_t)) . e(d)

``W_Q`` and ``W_K`` are padded with zero columns from qk_dim to 5, and ``attn_scale`` is sqrt(qk_dim).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from models.config import TransformerConfig
from models.parts.weights import Weights
from models.registry import ModelSpec, register
from models.tasks.addition import TenDigitAddition
from models.weight_maps.base import WeightMap, fill_, normal_, uniform_, xavier_uniform_
from models.weight_maps.geometry import circular_arc, rotate_pairs, spiral

TOKEN_DIM, POSITION_DIM = 2, 3
D_MODEL = TOKEN_DIM + POSITION_DIM
COLUMNS, BASE = 10, 10


@dataclass(frozen=True)
class MicroAdderOptions:
    """Which of the ladder's last three constraints hold (paper, section 4.1, steps 10 to 12)."""

    qk_dim: int = 4  # 74: 5
    freeze_spiral: bool = True  # 74: the four spiral numbers are learned
    tie_fc2: bool = True  # 57: the MLP writes through the head's matrix; 67 and 74 have 10 more numbers


def microadder_config(options: MicroAdderOptions) -> TransformerConfig:
    return TransformerConfig(
        n_layers=1,
        d_model=D_MODEL,
        n_heads=1,
        d_head=D_MODEL,
        d_mlp=2,
        d_vocab=BASE,
        n_ctx=34,
        act_fn="gelu",
        normalization_type="RMS",
        eps=1e-5,
        attn_scale=math.sqrt(options.qk_dim),
    )


class MicroAdderWeights(WeightMap):
    """57 free numbers: arc 3, equals 3, z_hi 3, angle 1, W_qk 12, o_A and o_B 10, W_fc1 10, W_head 10, norm 5."""

    split_stream = TOKEN_DIM
    spiral_amp: torch.Tensor  # learned or frozen, as the options say
    spiral_phase: torch.Tensor
    spiral_slope: torch.Tensor
    spiral_offset: torch.Tensor

    def __init__(self, options: MicroAdderOptions = MicroAdderOptions()):
        super().__init__(microadder_config(options))
        self.options = options
        self.arc_A = nn.Parameter(torch.tensor(2.5))
        self.arc_start = nn.Parameter(torch.tensor(-1.2))
        self.arc_stride = nn.Parameter(torch.tensor(0.29))
        for name, value in (("amp", 3.5), ("phase", 0.0), ("slope", 0.15), ("offset", 0.0)):
            if options.freeze_spiral:
                self.register_buffer(f"spiral_{name}", torch.tensor(value), persistent=False)
            else:
                self.register_parameter(f"spiral_{name}", nn.Parameter(torch.tensor(value)))
        self.pos_equals = nn.Parameter(torch.zeros(POSITION_DIM))
        self.pos_z_hi = nn.Parameter(torch.zeros(POSITION_DIM))
        self.q_angle = nn.Parameter(torch.tensor(0.0))
        self.W_qk = nn.Parameter(torch.zeros(options.qk_dim, POSITION_DIM))
        self.out_A = nn.Parameter(torch.zeros(D_MODEL))
        self.out_B = nn.Parameter(torch.zeros(D_MODEL))
        self.W_fc1 = nn.Parameter(torch.zeros(self.config.d_mlp, D_MODEL))
        if not options.tie_fc2:
            self.W_fc2 = nn.Parameter(torch.zeros(self.config.d_mlp, D_MODEL))
        self.W_head = nn.Parameter(torch.zeros(TOKEN_DIM, D_MODEL))
        self.norm_w = nn.Parameter(torch.ones(D_MODEL))

    def initialise(self, generator: torch.Generator) -> None:
        fill_(self.arc_A, 2.5)
        fill_(self.arc_start, -1.2)
        fill_(self.arc_stride, 0.29)
        if not self.options.freeze_spiral:
            for name, value in (("amp", 3.5), ("phase", 0.0), ("slope", 0.15), ("offset", 0.0)):
                fill_(getattr(self, f"spiral_{name}"), value)
        normal_(self.pos_equals, 0.02, generator)
        normal_(self.pos_z_hi, 0.02, generator)
        fill_(self.q_angle, 0.0)
        xavier_uniform_(self.W_qk, generator)
        uniform_(self.out_A, 1.0, generator)  # Kaiming uniform with a = sqrt(5) and fan-in 1
        fill_(self.out_B, 0.0)
        xavier_uniform_(self.W_fc1, generator)
        if not self.options.tie_fc2:
            xavier_uniform_(self.W_fc2, generator)
        xavier_uniform_(self.W_head, generator)
        fill_(self.norm_w, 1.0)

    def forward(self) -> Weights:
        arc = circular_arc(self.arc_A, self.arc_start, self.arc_stride, BASE)
        column = spiral(self.spiral_amp, self.spiral_phase, self.spiral_slope, self.spiral_offset, COLUMNS)
        zero = torch.zeros_like(column[:1])  # plus and EOS are frozen at zero
        equals, z_hi = self.pos_equals[None], self.pos_z_hi[None]
        positions = torch.cat((column, zero, column, equals, column, z_hi, zero))

        def from_positions(matrix: torch.Tensor) -> torch.Tensor:  # [qk_dim, 3] -> [1, 5, 5]
            return F.pad(matrix.T, (0, D_MODEL - self.options.qk_dim, TOKEN_DIM, 0))[None]

        fc2 = self.W_head if self.options.tie_fc2 else self.W_fc2
        return {
            "embed.W_E": F.pad(arc, (0, POSITION_DIM)),
            "pos_embed.W_pos": F.pad(positions, (TOKEN_DIM, 0)),
            "blocks.0.ln1.w": self.norm_w,
            "blocks.0.attn.W_Q": from_positions(rotate_pairs(self.W_qk, self.q_angle)),
            "blocks.0.attn.W_K": from_positions(self.W_qk),
            "blocks.0.attn.W_V": F.pad(self.W_head, (0, 0, 0, POSITION_DIM))[None],
            "blocks.0.attn.W_O": (self.out_A[:, None] * self.out_B)[None],
            "blocks.0.attn.W_O_left": self.out_A[None, :, None],  # factors of W_O, for the training fast path
            "blocks.0.attn.W_O_right": self.out_B[None, None],
            "blocks.0.ln2.w": self.norm_w,
            "blocks.0.mlp.W_in": self.W_fc1.T,
            "blocks.0.mlp.W_out": fc2,
            "ln_final.w": self.norm_w,
            "unembed.W_U": self.W_head.T @ arc.T,
        }


def _register(name: str, options: MicroAdderOptions, recipe: str) -> None:
    register(
        ModelSpec(
            name=name,
            weight_map=lambda: MicroAdderWeights(options),
            task=TenDigitAddition,
            recipe=recipe,
            source="MicroAdder (Zarechnev 2026), sections 2 and 4.1",
        )
    )


_register("microadder-57", MicroAdderOptions(), "microadder")
_register("microadder-67", MicroAdderOptions(tie_fc2=False), "microadder")
_register("microadder-74", MicroAdderOptions(qk_dim=5, freeze_spiral=False, tie_fc2=False), "microadder-74")
