"""A counter-based generator: its numbers depend only on (seed, step, row).

They do not depend on the other seeds of a stack, on what was drawn before, or on the device. So a seed trains in the
same way alone and in a stack, a resumed run needs no generator state, and C repeats the draws bit by bit
(``native/carry_mix.c``).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def signed(x: int) -> int:
    """``x`` modulo 2^64 as a signed int64."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


GAMMA = signed(0x9E3779B97F4A7C15)
_MULTIPLIERS = (signed(0xBF58476D1CE4E5B9), signed(0x94D049BB133111EB))


def mix(z: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014); int64 products wrap around as needed."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        z = (z ^ _logical_shift(z, shift)) * multiplier
    return z ^ _logical_shift(z, 31)


def _logical_shift(z: Int[Tensor, "*n"], bits: int) -> Int[Tensor, "*n"]:
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def uniform(base: Int[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Draw number ``k`` of each row, uniform in [0, 1) with 53 bits.

    ``floor(u * limit)`` is then a uniform integer below ``limit``, up to a bias of limit / 2^53.
    """
    return _logical_shift(mix(base + signed((k + 1) * GAMMA)), 11).double() * 2.0**-53


def uniform_table(base: Int[Tensor, " n"], first: int, n_draws: int) -> Float[Tensor, "n draw"]:
    """Draws ``first`` to ``first + n_draws - 1`` of each row, the same as :func:`uniform` gives one by one."""
    steps = torch.arange(first + 1, first + 1 + n_draws, device=base.device) * GAMMA
    return _logical_shift(mix(base[:, None] + steps), 11).double() * 2.0**-53


def row_keys(seed: int | Int[Tensor, " seed"], step: int, rows: int, device: torch.device) -> Int[Tensor, " row"]:
    """One 64-bit key per row, from which :func:`uniform` draws; of several seeds, all rows of the first come first."""
    stream = mix(mix(torch.as_tensor(seed, device=device) + GAMMA) + torch.tensor(step, device=device) * GAMMA)
    return mix(stream[..., None] + torch.arange(1, rows + 1, device=device) * GAMMA).flatten()


def hashed(problems: Int[Tensor, "n field"]) -> Int[Tensor, " n"]:
    """One 64-bit number per problem; different problems almost never agree."""
    found = torch.zeros_like(problems[:, 0])
    for column in problems.T:
        found = (found ^ (found >> 29)) * GAMMA + column
    return found


def is_listed(values: Int[Tensor, " n"], ordered: Int[Tensor, " m"]) -> Bool[Tensor, " n"]:
    """Which values occur in a sorted list (torch.isin would sort the list at every call)."""
    return ordered[torch.searchsorted(ordered, values).clamp(max=len(ordered) - 1)] == values
