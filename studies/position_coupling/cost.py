"""Rough costs of training, so that nobody starts days of work by accident."""

from __future__ import annotations

import functools
import time

import torch

from models.families.position_coupling import CouplingVariant
from models.training.recipes import Recipe
from models.training.sequence_problems import make_buckets

#: The share of a large matrix product's speed that a training step reaches, from one-layer models of width 128.
CPU_SHARE = 0.35
GPU_FLOPS = 1.5e14  # for a training step in bfloat16 on a data-centre GPU


def training_seconds(variant: CouplingVariant, recipe: Recipe, device: str) -> float:
    """The floating-point operations of all steps divided by the device's speed, right to a factor of about two.

    Forward and backward take 6 operations per weight and token in each block, where the last one computes everything
    but keys and values for the response only, and attention takes 12 d per token and key.
    """
    source = variant.training_set
    problems = source.numbered(torch.arange(64))
    buckets = make_buckets(variant.make_task(), problems, source.buckets)
    size = variant.size
    d, inner = size.d_model, size.n_heads * size.head
    work = 0.0
    for bucket in buckets:
        rows, length = bucket.tokens.shape
        queries = length - bucket.first
        block = 4 * d * inner + 3 * d * size.d_mlp
        last = length * 2 * d * inner + queries * (2 * d * inner + 3 * d * size.d_mlp)
        scores = 12 * inner * length * ((size.n_layers - 1) * length + queries)
        work += rows * (6 * ((size.n_layers - 1) * length * block + last) + scores)
    work *= recipe.batch_size / len(problems.digits) * recipe.steps
    return work / (GPU_FLOPS if device == "cuda" else CPU_SHARE * _cpu_flops())


@functools.cache
def _cpu_flops() -> float:
    """The speed of a large float32 matrix product, with the current number of threads."""
    a, best = torch.rand(768, 768), float("inf")
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(a, a)
        best = min(best, time.perf_counter() - start)
    return 2 * 768**3 / best


def duration(seconds: float) -> str:
    """A duration in words: "40 s", "25 minutes", "3.5 hours", "12 days"."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and unit != "minutes" else f"{value:,.0f} {unit}"
    return f"{seconds:.0f} s"
