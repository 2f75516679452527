"""The ten test sets of the 456-parameter adder's paper, and problems that are disjoint from them.

Section 1.4 scores on ten sets of 10,000 uniform pairs, which the public code makes from one generator per set:
``torch.Generator().manual_seed(seed)`` draws 30,000 first operands, then 30,000 second ones; of these pairs (without
repeats) the first 5,000 are left to validation and the next 10,000 are the set. Uniform pairs hardly test long carries:
see :mod:`interp.probes.stress`.
"""

from __future__ import annotations

from functools import cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.tasks.carries import half_carry_heavy
from models.tasks.ten_digits import LIMIT

SEEDS = (41, 100, 200, 300, 400, 500, 999, 1234, 7777, 31415)
SKIPPED, SIZE = 5_000, 10_000


def stream(seed: int) -> Int[Tensor, "n 2"]:
    """The 15,000 pairs of one seed: 5,000 for validation, then 10,000 for the test."""
    generator = torch.Generator().manual_seed(seed)
    n = 2 * (SKIPPED + SIZE)
    pairs = torch.stack([torch.randint(0, LIMIT, (n,), generator=generator) for _ in range(2)], 1)
    # Repeated pairs would be left out. With these seeds there are none; the tests check this.
    return pairs[: SKIPPED + SIZE]


@cache
def ten_test_sets() -> dict[int, Int[Tensor, "10000 2"]]:
    """The 10,000 problems of each test seed."""
    return {seed: stream(seed)[SKIPPED:] for seed in SEEDS}


def all_test_problems() -> Int[Tensor, "100000 2"]:
    """The problems of all ten sets."""
    return torch.cat(list(ten_test_sets().values()))


VALIDATION_SIZE = 10_000  # training validates on these, half of them uniform, as many as the paper's
_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # as torch's int64 holds it


def fingerprint(problems: Int[Tensor, "n 2"]) -> Int[Tensor, " n"]:
    """One 64-bit number per pair, ``a G + b`` modulo 2^64 with G odd. Equal pairs agree, others almost never."""
    return problems[:, 0] * _GOLDEN + problems[:, 1]


@cache
def _fingerprints() -> Int[Tensor, " n"]:
    pairs = all_test_problems()
    return torch.cat((fingerprint(pairs), fingerprint(pairs.flip(1)))).unique()


@cache
def held_out_fingerprints() -> Int[Tensor, " n"]:
    """Sorted fingerprints of pairs that training must not use: test sets, in either order, and validation problems."""
    return torch.cat((_fingerprints(), fingerprint(validation_problems(VALIDATION_SIZE, seed=0)))).unique()


def in_test_sets(problems: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
    """Which problems are in one of the test sets, in either order of the operands (by fingerprint)."""
    return is_listed(fingerprint(problems), _fingerprints().to(problems.device))


def is_listed(values: Int[Tensor, " n"], ordered: Int[Tensor, " m"]) -> Bool[Tensor, " n"]:
    """Which values occur in a sorted list (torch.isin would sort the list at every call)."""
    return ordered[torch.searchsorted(ordered, values).clamp(max=len(ordered) - 1)] == values


def validation_problems(n: int, seed: int) -> Int[Tensor, "n 2"]:
    """``n`` problems, half uniform, then half carry-heavy, none in a test set in either order.

    The paper validates on uniform pairs alone, which says little about long carries; training reports both halves.

    Raises:
        UserError: n is not positive.
    """
    return half_carry_heavy(n, seed, in_test_sets)
