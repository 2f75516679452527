"""Adders as anyone would write them first: one seed, ordinary PyTorch modules, the yardsticks of the benchmark."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, d: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class PlainMicroAdder(nn.Module):
    """MicroAdder-57: 57 parameters, attention per example over 33 positions, logits at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.arc = nn.Parameter(torch.tensor([2.5, -1.2, 0.29]))
        self.equals, self.z_hi = nn.Parameter(torch.randn(3) * 0.02), nn.Parameter(torch.randn(3) * 0.02)
        self.q_proj = nn.Linear(3, 4, bias=False)
        self.phase = nn.Parameter(torch.zeros(1))
        self.out_a, self.out_b = nn.Parameter(torch.rand(5, 1) * 2 - 1), nn.Parameter(torch.zeros(1, 5))
        self.fc1 = nn.Linear(5, 2, bias=False)
        self.head = nn.Linear(5, 2, bias=False)
        self.norm = RMSNorm(5, 1e-5)
        for linear in (self.q_proj, self.fc1, self.head):
            nn.init.xavier_uniform_(linear.weight)
        i = torch.arange(10)
        angle = 2 * math.pi * i / 10
        self.register_buffer("spiral", torch.stack((3.5 * angle.cos(), 3.5 * angle.sin(), 0.15 * i), -1))
        self.register_buffer("mask", torch.ones(33, 33, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        angle = self.arc[1] + self.arc[2] * torch.arange(10)
        table = self.arc[0] * torch.stack((angle.cos(), angle.sin()), -1)
        zero = torch.zeros(1, 3)
        position = torch.cat((self.spiral, zero, self.spiral, self.equals[None], self.spiral, self.z_hi[None]))
        x = torch.cat((table[tokens], position.expand(len(tokens), -1, -1)), -1)
        h = self.norm(x)
        k = self.q_proj(h[..., 2:])
        cos, sin = self.phase.cos(), self.phase.sin()
        first, second = k[..., 0::2], k[..., 1::2]
        q = torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)
        v = h[..., :2] @ self.head.weight
        scores = (q @ k.transpose(1, 2) / 2).masked_fill(self.mask, float("-inf"))
        x = x + F.softmax(scores, -1) @ v @ self.out_a @ self.out_b
        x = x + F.gelu(self.fc1(self.norm(x))) @ self.head.weight
        return self.head(self.norm(x)) @ table.T


class LowRankLinear(nn.Module):
    def __init__(self, rows: int, columns: int, rank: int):
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.randn(*shape) * 0.4) for shape in ((rows, rank), (rank, columns)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.a @ self.b


class PlainLowRankAdder(nn.Module):
    """456 parameters, logits at every one of the 33 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Parameter(torch.randn(14, 7) * 0.02)
        self.pos_a, self.pos_b = nn.Parameter(torch.randn(33, 3) * 0.02), nn.Parameter(torch.randn(3, 7) * 0.02)
        self.ln1, self.ln2, self.ln_f = RMSNorm(7, 1e-8), RMSNorm(7, 1e-8), RMSNorm(7, 1e-8)
        self.a = nn.Parameter(torch.randn(7, 3) * 0.4)
        self.b_q, self.b_kv = nn.Parameter(torch.randn(3, 7) * 0.4), nn.Parameter(torch.randn(3, 7) * 0.4)
        self.out = LowRankLinear(7, 7, 2)
        self.up, self.down = LowRankLinear(7, 14, 3), LowRankLinear(14, 7, 3)
        self.register_buffer("mask", torch.ones(33, 33, dtype=torch.bool).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed[tokens] + self.pos_a @ self.pos_b
        h = self.ln1(x) @ self.a
        q, kv = h @ self.b_q, h @ self.b_kv
        scores = (q @ kv.transpose(1, 2) / 7**0.5).masked_fill(self.mask, float("-inf"))
        x = x + self.out(F.softmax(scores, -1) @ kv)
        x = x + self.down(F.gelu(self.up(self.ln2(x))))
        return self.ln_f(x) @ self.embed.T
