"""Small submissions of our own, in the formats that public AdderBoard models have."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

#: One head with query-key norms, rotary base 3, tied keys and values, gated SiLU; numbers that add nothing rightly.
TIED_VALUES = '''
"""A text that says what it is."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

ROPE_THETA = 3.0
WIDTH = 4


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


def turn(x):
    n, half = x.shape[1], x.shape[2] // 2
    speeds = torch.tensor([1.0 / ROPE_THETA ** (2 * i / x.shape[2]) for i in range(half)])
    angle = torch.arange(n, dtype=x.dtype)[:, None] * speeds[None, :]
    c, s = angle.cos(), angle.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * c - odd * s, odd * c + even * s], dim=-1).flatten(-2)


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, WIDTH)
        self.norm1, self.norm2, self.norm_final = RMSNorm(WIDTH), RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.q_norm, self.k_norm = RMSNorm(4), RMSNorm(4)
        self.W_q, self.W_kv = nn.Linear(WIDTH, 4, bias=False), nn.Linear(WIDTH, 4, bias=False)
        self.W_gate, self.W_up = nn.Linear(WIDTH, 3, bias=False), nn.Linear(WIDTH, 3, bias=False)
        self.W_down = nn.Linear(3, WIDTH, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        h = self.norm1(x)
        q, v = self.W_q(h), self.W_kv(h)
        scores = turn(self.q_norm(q)) @ turn(self.k_norm(v)).transpose(1, 2) / math.sqrt(4)
        n = scores.shape[-1]
        hidden = torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)
        mixed = F.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v
        x = x + F.linear(mixed, self.W_q.weight.t())
        h = self.norm2(x)
        x = x + self.W_down(F.silu(self.W_gate(h)) * self.W_up(h))
        return self.norm_final(x) @ self.embedding.weight.T


def table(rows, columns, seed):
    return torch.tensor([[math.sin(seed + 1.7 * i + 0.9 * j) for j in range(columns)] for i in range(rows)])


STATE = {
    "embedding.weight": table(10, 4, 0.3),
    "norm1.weight": torch.tensor([1.1, 0.9, 1.3, 0.7]),
    "W_q.weight": table(4, 4, 1.3),
    "W_kv.weight": table(4, 4, 2.3),
    "q_norm.weight": torch.tensor([1.5, 0.5, 1.0, 2.0]),
    "k_norm.weight": torch.tensor([0.6, 1.5, 1.2, 0.4]),
    "norm2.weight": torch.tensor([0.8, 1.2, 1.0, 0.9]),
    "W_gate.weight": table(3, 4, 3.3),
    "W_up.weight": table(3, 4, 4.3),
    "W_down.weight": table(4, 3, 5.3),
    "norm_final.weight": torch.tensor([2.0, 1.0, 1.5, 0.5]),
}


def build_model():
    model = Adder()
    model.load_state_dict(STATE)
    model.eval()
    return model, {"name": "ours", "author": "us", "params": sum(p.numel() for p in model.parameters())}


def add(model, a, b):
    if not isinstance(a, int):
        raise ValueError("not an integer")
    up = lambda n: [int(c) for c in reversed(f"{n:010d}")]
    tokens = torch.tensor([[0] + up(a) + [0, 0] + up(b) + [0]], dtype=torch.long)
    digits = []
    with torch.no_grad():
        for _ in range(11):
            best = model(tokens)[0, -1].argmax().item()
            digits.append(best)
            tokens = torch.cat([tokens, torch.tensor([[best]])], dim=1)
    return sum(d * 10**i for i, d in enumerate(digits))
'''

#: Five heads that look at one key each and add rightly: no norms, four ReLU units, a gain before the head.
HARD = """
import math
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    hidden_size: int = 2
    num_attention_heads: int = 5
    head_dim: int = 2
    intermediate_size: int = 4
    rope_offsets: tuple = (0.0, 23.0, 11.0, 22.0, 10.0)


CONST, EPS, SHARP = 1000.0, 0.01, 64.0


class Adder(nn.Module):
    def __init__(self, config: Config = Config()):
        super().__init__()
        self.config = config
        for name, shape in (("embed_tokens", (10, 2)), ("out_scale", (2,)), ("q_proj", (10, 2)), ("k_proj", (2, 2)),
                            ("v_proj", (2, 2)), ("o_proj", (2, 10)), ("w1", (4, 2)), ("b1", (4,)), ("w2", (2, 4)),
                            ("b2", (2,))):
            self.register(name, shape)

    def register(self, name, shape):
        blank = nn.Parameter(torch.zeros(shape))
        self.register_parameter(name, blank)

    def forward(self, tokens):
        x = F.embedding(tokens, self.embed_tokens)
        n = x.shape[1]
        places = torch.arange(n, dtype=x.dtype)
        c, s = torch.cos(places)[:, None], torch.sin(places)[:, None]

        def turned(y):
            return torch.cat([y[..., 0:1] * c - y[..., 1:2] * s, y[..., 0:1] * s + y[..., 1:2] * c], dim=-1)

        q = turned((x @ self.q_proj.t()).view(1, n, 5, 2).transpose(1, 2))
        k, v = turned((x @ self.k_proj.t()).unsqueeze(1)), (x @ self.v_proj.t()).unsqueeze(1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(2)
        scores = scores.masked_fill(torch.triu(torch.ones(n, n), diagonal=1) > 0, float("-inf"))
        found = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(1, n, 10)
        x = x + found @ self.o_proj.t()
        x = x + F.relu(x @ self.w1.t() + self.b1) @ self.w2.t() + self.b2
        return (x * self.out_scale) @ self.embed_tokens.t()


def build_model():
    model = Adder()
    with torch.no_grad():
        model.embed_tokens.copy_(torch.tensor([[CONST - EPS / 2 * d * d, float(d)] for d in range(10)]))
        model.out_scale.copy_(torch.tensor([1.0 / CONST, EPS]))
        for head, offset in enumerate(model.config.rope_offsets):
            model.q_proj[2 * head, 0] = SHARP * math.cos(offset)
            model.q_proj[2 * head + 1, 0] = -SHARP * math.sin(offset)
        model.k_proj[0, 0] = SHARP
        model.v_proj[0, 1] = 1.0
        for row, column, value in ((0, 0, 1), (0, 2, -1), (0, 4, -1), (1, 0, -1), (1, 6, 1), (1, 8, 1)):
            model.o_proj[row, column] = float(value)
        model.w1.copy_(torch.tensor([[-1.0, 0.0], [-1.0, 0.0], [-2.0, 20.0], [-2.0, 20.0]]))
        model.b1.copy_(torch.tensor([CONST - 8.0, CONST - 9.0, 2 * CONST - 188.0, 2 * CONST - 189.0]))
        model.w2.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, -1.0, -10.0, 10.0]]))
    return model.eval(), {"params": sum(p.numel() for p in model.parameters())}


def add(model, a, b):
    tokens = [0] + [a // 10**i % 10 for i in range(10)] + [0, 0] + [b // 10**i % 10 for i in range(10)] + [0]
    for _ in range(11):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return int("".join(str(d) for d in tokens[-11:])[::-1])
"""

#: Qwen3 blocks of mlx_lm, whose numbers add nothing rightly.
QWEN = """
import math
import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models.qwen3 import Model, ModelArgs

MODEL_DIM, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, INTERMEDIATE_SIZE, VOCAB_SIZE = 3, 2, 1, 2, 4, 10


def build_magic_model():
    model = Model(ModelArgs(model_type="qwen3", hidden_size=3, num_hidden_layers=2, intermediate_size=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=2, rms_norm_eps=1e-5, vocab_size=10, rope_theta=100.0,
        tie_word_embeddings=False, max_position_embeddings=99))
    def filled(x):
        return mx.cos(3.7 * mx.arange(math.prod(x.shape), dtype=mx.float32)).reshape(x.shape)

    model.update(tree_map(filled, model.parameters()))
    mx.eval(model.parameters())
    return model


def _generate_output_batch(model, pairs):
    rows = [[0] + [a // 10**i % 10 for i in range(10)] + [0, 0] + [b // 10**i % 10 for i in range(10)] + [0]
            for a, b in pairs]
    for _ in range(11):
        for row, best in zip(rows, mx.argmax(model(mx.array(rows, dtype=mx.int32))[:, -1, :], axis=-1)):
            row.append(int(best))
    return ["".join(map(str, row[-11:])) for row in rows]
"""

#: An architecture of its own, whose numbers are in a checkpoint of a MicroAdder.
OTHER = """
import os
import torch
from studies.checkpoints import load_published


def build_model():
    return load_published(os.path.join(os.path.dirname(__file__), "checkpoint_57p.pt")), {"author": "us"}


def forward(model, tokens):
    return model(tokens)


def add(model, a, b):
    row = [a // 10**i % 10 for i in range(10)] + [0] + [b // 10**i % 10 for i in range(10)] + [0]
    for _ in range(11):
        row.append(int(forward(model, torch.tensor([row]))[0, -1].argmax()))
    return sum(d * 10**i for i, d in enumerate(row[-11:]))
"""


def own_module(text: str) -> Any:
    """What a text of ours defines when Python runs it here."""
    module = sys.modules["submission"] = ModuleType("submission")  # where dataclasses look for their own
    exec(compile(text, "submission.py", "exec"), vars(module))
    return module
