"""Training problems, from a counter-based generator.

The problems of (seed, step) depend on nothing else: not on the other seeds of a stack, not on what was drawn before,
not on the device. So a seed trains alike alone and in a stack, and a resumed run needs no generator state.
"""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor

from models.tasks.addition import TenDigitAddition, digit_rows
from models.tasks.base import Task
from models.training.native import library
from models.training.recipes import Recipe


def _signed(x: int) -> int:
    """``x`` modulo 2^64 as torch's int64 holds it."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


_GAMMA = _signed(0x9E3779B97F4A7C15)
_MULTIPLIERS = (_signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB))


def _mix(z: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
    """SplitMix64's finaliser (Steele, Lea and Flood, 2014); int64 products wrap around as needed."""
    for shift, multiplier in zip((30, 27), _MULTIPLIERS, strict=True):
        z = (z ^ _logical_shift(z, shift)) * multiplier
    return z ^ _logical_shift(z, 31)


def _logical_shift(z: Int[Tensor, "*n"], bits: int) -> Int[Tensor, "*n"]:
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _uniform(base: Int[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Draw number ``k`` of each row, uniform in [0, 1) with 53 bits.

    ``floor(u * limit)`` is then a uniform integer below ``limit``, up to a bias of limit / 2^53.
    """
    return _logical_shift(_mix(base + _signed((k + 1) * _GAMMA)), 11).double() * 2.0**-53


def carry_rich_problems(base: Int[Tensor, " n"], max_digits: int) -> Int[Tensor, "n 2"]:
    """MicroAdder's four carry patterns in equal shares, with nd ~ U{1..max_digits} digits.

    * single: one column with both digits 5-9, every other digit 0-4;
    * chain: 10^nd - 1 plus U{1..10^min(nd, 3)};
    * place: a random nd-digit number plus U{1..9} times a power of ten below 10^nd;
    * boundary: 10^nd - U{1..10} plus U{1..20}.
    """
    power = 10.0 ** torch.arange(11, device=base.device, dtype=torch.float64)
    nd = 1 + (_uniform(base, 3) * max_digits).long()
    column = (_uniform(base, 4) * nd).long()
    kind = (_uniform(base, 5) * 4).long()
    full = power[nd]

    # floor(u * limit) with each pattern's own limits; a is counted down from 10^nd except in "place".
    low = torch.where(nd == 1, 0.0, full / 10)
    a_limit = torch.where(kind == 2, full - low, torch.where(kind == 3, 10.0, 1.0))
    b_limit = torch.where(kind == 2, 9.0, torch.where(kind == 3, 20.0, power[nd.clamp(max=3)]))
    below = (_uniform(base, 6) * a_limit).floor()
    a = torch.where(kind == 2, low + below, (full - 1 - below).clamp(min=0))
    b = (1 + (_uniform(base, 7) * b_limit).floor()) * torch.where(kind == 2, power[column], 1.0)
    problems = torch.stack((a, b), 1).long()

    where = (kind == 0).nonzero()[:, 0]
    drawn = torch.cat([(_uniform(base[where], k) * 5.0**10).floor() for k in (8, 9)])
    digits = digit_rows(drawn, 10, base=5).view(10, 2, -1)
    columns = torch.arange(10, device=base.device)[:, None]
    digits = digits + 5.0 * (columns == column[where])[:, None]
    single = (digits * power[:10, None, None]).sum(0) % full[where]  # the digits above nd are cut off
    problems[where] = single.T.long()
    return problems


def training_problems(recipe: Recipe, seed: int, step: int, device: torch.device) -> Int[Tensor, "row 2"]:
    """The problems of one seed at one step, [batch_size, 2]: the definition that the native sampler repeats."""
    stream = _mix(_mix(torch.tensor(seed, device=device) + _GAMMA) + torch.tensor(step, device=device) * _GAMMA)
    rows = torch.arange(1, recipe.batch_size + 1, device=device)
    base = _mix(stream + rows * _GAMMA)
    max_digits = recipe.max_digits_at(step)
    problems = torch.stack([(_uniform(base, k) * 10.0**max_digits).long() for k in (0, 1)], 1)
    share = recipe.carry_mix.at(step) if recipe.carry_mix else 0.0
    where = (_uniform(base, 2) < share).nonzero()[:, 0]
    problems[where] = carry_rich_problems(base[where], max_digits)
    return problems


class TrainingStream:
    """Batches for a group of seeds: ``batch(step)`` is (tokens [seed, pos, row], targets [seed, target, row]).

    Rows come last because the position-only objective wants long contiguous rows of one feature; tokens are bytes.
    """

    def __init__(self, task: Task, recipe: Recipe, seeds: list[int], device: torch.device):
        self.task, self.recipe, self.seeds, self.device = task, recipe, seeds, device
        fits = isinstance(task, TenDigitAddition) and device.type == "cpu"
        self._native = library("carry_mix.c", "-ffp-contract=off") if fits else None
        self._seed_array = torch.tensor(seeds, dtype=torch.int64)

    def batch(self, step: int) -> tuple[Integer[Tensor, "seed pos row"], Integer[Tensor, "seed target row"]]:
        if self._native is not None:
            return self._native_batch(step)
        encoded = [
            self.task.encode_rows(training_problems(self.recipe, seed, step, self.device)) for seed in self.seeds
        ]
        tokens, targets = zip(*encoded, strict=True)
        return torch.stack(tokens), torch.stack(targets)

    def _native_batch(self, step: int) -> tuple[Tensor, Tensor]:
        recipe, n = self.recipe, len(self.seeds)
        tokens = torch.empty(n, 33, recipe.batch_size, dtype=torch.uint8)
        targets = torch.empty(n, 12, recipe.batch_size, dtype=torch.uint8)
        self._native.batch(
            n,
            ctypes.c_void_p(self._seed_array.data_ptr()),
            ctypes.c_int64(step),
            recipe.batch_size,
            recipe.max_digits_at(step),
            ctypes.c_double(recipe.carry_mix.at(step) if recipe.carry_mix else 0.0),
            ctypes.c_void_p(tokens.data_ptr()),
            ctypes.c_void_p(targets.data_ptr()),
        )
        return tokens, targets
