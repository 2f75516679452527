"""The test set of ten-digit addition, AdderBoard's, and validation problems that are disjoint from it.

That public board scores ten-digit adders on 10,010 problems: ten fixed pairs, then 10,000 pairs drawn with
``random.Random(2025)``. The carry chains of the drawn pairs are never longer than 4, so a full score says little
about long carries. MicroAdder's own trainer selects its checkpoint on 5,000 of these problems, a leak that
:func:`validation_problems` closes.
"""

from __future__ import annotations

import random
from functools import cache

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.tasks.carries import half_carry_heavy
from models.tasks.ten_digits import LIMIT, as_problems

SEED, DRAWN = 2025, 10_000
FIXED_PAIRS = (
    (0, 0),
    (0, 1),
    (9999999999, 0),
    (9999999999, 1),
    (9999999999, 9999999999),
    (5000000000, 5000000000),
    (1111111111, 8888888889),
    (1234567890, 9876543210),
    (9999999999, 9999999999),  # twice, as in the original
    (1, 9999999999),
)


@cache
def _pairs() -> tuple[tuple[int, int], ...]:
    generator = random.Random(SEED)
    drawn = ((generator.randint(0, LIMIT - 1), generator.randint(0, LIMIT - 1)) for _ in range(DRAWN))
    return (*FIXED_PAIRS, *drawn)


@cache
def _either_order() -> frozenset[tuple[int, int]]:
    return frozenset(_pairs()) | frozenset((b, a) for a, b in _pairs())


def ten_digit_test_set() -> Int[Tensor, "n 2"]:
    """AdderBoard's 10,010 problems [10010, 2], the ten fixed pairs first."""
    return torch.tensor(_pairs(), dtype=torch.int64)


def in_ten_digit_test_set(problems: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
    """Which problems are in the AdderBoard set, in either order of the operands."""
    taken = _either_order()
    flags = [tuple(pair) in taken for pair in as_problems(problems).tolist()]
    return torch.tensor(flags, dtype=torch.bool)


def validation_problems(n: int, seed: int) -> Int[Tensor, "n 2"]:
    """``n`` problems, half uniform, then half carry-heavy, none in AdderBoard in either order.

    Two in five of the carry-heavy ones have a chain of 4 or more, the longest among AdderBoard's drawn pairs, and some
    reach all ten columns.

    Raises:
        UserError: n is not positive.
    """
    return half_carry_heavy(n, seed, in_ten_digit_test_set)
