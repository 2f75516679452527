"""AddLM's attention, eager and compiled, beside torch's dot-product attention on the same queries, keys and values."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.scoring import cpu_seconds
from models.transformer.parts.tropical_kernel import eager_tropical_attention, fused_available, fused_tropical_attention

SHAPES = ((32, 4, 128), (4, 4, 1024), (1, 4, 4096))  # batch, heads, positions: 16,384 queries each
D_HEAD, TOP_K, SCALE = 32, 16, 1.0
ROUNDS, QUICK = 5, 4  # contenders take turns; those that are quick are called a few times a turn

COMPILED = "L1, top 16, compiled"
COMPUTED = ("forward", "forward and backward")

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def _torch_plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


CONTENDERS: dict[str, Attention] = {
    "L1, top 16, eager": lambda q, k, v: eager_tropical_attention(q, k, v, SCALE, TOP_K),
    COMPILED: lambda q, k, v: fused_tropical_attention(q, k, v, SCALE, TOP_K),
    "torch's dot product, plain": _torch_plain,
    "torch's dot product, fused": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
}


def measure(batch: int, heads: int, n_pos: int) -> dict[tuple[str, str], list[float]]:
    """CPU milliseconds of a call, one number a round, by contender and by what is computed."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, d_z = (torch.randn(batch, n_pos, heads, D_HEAD, generator=generator).transpose(1, 2) for _ in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]

    def forward(attention: Attention) -> None:
        with torch.no_grad():
            attention(q, k, v)

    def both(attention: Attention) -> None:
        torch.autograd.grad(attention(*leaves), leaves, d_z)

    times: dict[tuple[str, str], list[float]] = {}
    for round in range(ROUNDS + 1):  # the first builds the kernel and fills caches
        for name, attention in CONTENDERS.items():
            calls = 1 if "eager" in name else QUICK
            for what, call in zip(COMPUTED, (forward, both), strict=True):
                spent = sum(cpu_seconds(lambda a=attention, c=call: c(a)) for _ in range(calls)) / calls
                if round:
                    times.setdefault((name, what), []).append(1e3 * spent)
    return times


def main() -> None:
    if not fused_available(D_HEAD):
        print("No C compiler here: the compiled attention cannot be built, and its rows are the eager form's.")
    print(
        f"16,384 queries, {D_HEAD} coordinates, one CPU thread; CPU milliseconds, median of {ROUNDS} interleaved rounds"
    )
    for batch, heads, n_pos in SHAPES:
        times = measure(batch, heads, n_pos)
        head = f"T = {n_pos}, {batch} x {heads} heads"
        print(f"\n{head:28}{'forward':>9}{'spread':>22}{'with backward':>15}{'spread':>22}")
        for name in CONTENDERS:
            columns = [times[name, what] for what in COMPUTED]
            cells = [f"{median(c):.2f}{f'{min(c):.2f} to {max(c):.2f}':>22}" for c in columns]
            print(f"{name:28}{cells[0]:>31}{cells[1]:>37}")
        for name in CONTENDERS:
            if name != COMPILED:
                ratios = [_ratio(times[name, what], times[COMPILED, what]) for what in COMPUTED]
                print(
                    f"compiled is {ratios[0]:.1f} (forward) and {ratios[1]:.1f} (with backward) times as fast as {name}"
                )


def _ratio(slower: list[float], faster: list[float]) -> float:
    """Median of the ratios within a round."""
    return median(a / b for a, b in zip(slower, faster, strict=True))
