"""Test sets of ten-digit addition that somebody else fixed, and validation problems that are disjoint from them.

AdderBoard, a public board, scores on 10,010 problems: ten fixed pairs, then 10,000 pairs drawn with
``random.Random(2025)``. MicroAdder's own trainer selects its checkpoint on 5,000 of them, a leak that
:meth:`FixedPairs.validation` closes.

Section 1.4 of the 456-parameter adder's paper scores on ten sets of 10,000 uniform pairs, which the public code makes
from one generator per set: ``torch.Generator().manual_seed(seed)`` draws 30,000 first operands, then 30,000 second
ones; of these pairs (without repeats) the first 5,000 are left to validation and the next 10,000 are the set.

Uniform pairs hardly test long carries, see :mod:`interp.probes.stress_suites`: no drawn one of AdderBoard has more than
4.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from models.errors import UserError
from models.tasks.columns.long_carries import carry_heavy
from models.tasks.counter_rng import GAMMA, is_listed
from models.tasks.domain import Domain
from models.tasks.held_out import FIXED_TESTS
from models.tasks.number_digits import DIGITS, LIMIT

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
SEEDS = (41, 100, 200, 300, 400, 500, 999, 1234, 7777, 31415)
SKIPPED, SIZE = 5_000, 10_000
VALIDATION_SIZE = 10_000  # training validates on these, half of them uniform, as many as the paper's


def fingerprint(problems: Int[Tensor, "n 2"]) -> Int[Tensor, " n"]:
    """One 64-bit number per pair, ``a G + b`` modulo 2^64 with G odd. Equal pairs agree, others almost never."""
    return problems[:, 0] * GAMMA + problems[:, 1]


@dataclass(frozen=True, eq=False)
class FixedPairs:
    """A test set of pairs of ten-digit numbers, as a function that makes it."""

    made: Callable[[], Int[Tensor, "n 2"]]
    domain: Domain = field(default=Domain.of((DIGITS, DIGITS)))

    @cached_property
    def _problems(self) -> Int[Tensor, "n 2"]:
        return self.made()

    @property
    def problems(self) -> Int[Tensor, "n 2"]:
        """The pairs; the caller may change them."""
        return self._problems.clone()

    @cached_property
    def fingerprints(self) -> Int[Tensor, " n"]:
        """Those of the pairs in either order, sorted."""
        return torch.cat((fingerprint(self._problems), fingerprint(self._problems.flip(1)))).unique()

    def holds(self, problems: Int[Tensor, "n 2"]) -> Bool[Tensor, " n"]:
        """Which problems are in the set, in either order of the operands (by fingerprint)."""
        return is_listed(fingerprint(problems), self.fingerprints.to(problems.device))

    def validation(self, n: int, seed: int) -> Int[Tensor, "n 2"]:
        """``n`` problems outside the set: half uniform, then half
        :func:`models.tasks.columns.long_carries.carry_heavy`, of which two in five have a chain of 4 or more, and some
        reach all ten columns.

        Raises:
            UserError: n is not positive.
        """
        if n < 1:
            raise UserError(f"The number of validation problems must be positive, not {n}.")
        generator, heavy = torch.Generator().manual_seed(seed), n // 2

        def first(n: int, draw: Callable[[int], Tensor]) -> Tensor:
            kept = torch.empty(0, 2, dtype=torch.int64)
            while len(kept) < n:
                drawn = draw(n - len(kept))
                kept = torch.cat((kept, drawn[~self.holds(drawn)]))
            return kept

        uniform = first(n - heavy, lambda m: torch.randint(LIMIT, (m, 2), generator=generator))
        return torch.cat((uniform, first(heavy, lambda m: carry_heavy(m, generator))))


def _adder_board() -> Int[Tensor, "10010 2"]:
    generator = random.Random(SEED)
    drawn = [[generator.randint(0, LIMIT - 1) for _ in range(2)] for _ in range(DRAWN)]
    return torch.tensor([*FIXED_PAIRS, *drawn])


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


ADDER_BOARD = FixedPairs(_adder_board)
TEN_SETS = FixedPairs(lambda: torch.cat(list(ten_test_sets().values())))
FIXED_TESTS.update({"AdderBoard": ADDER_BOARD, "the ten test sets": TEN_SETS})


@cache
def held_out_fingerprints() -> Int[Tensor, " n"]:
    """Sorted fingerprints of pairs that training must not use: the ten test sets, in either order, and validation
    problems."""
    return torch.cat((TEN_SETS.fingerprints, fingerprint(TEN_SETS.validation(VALIDATION_SIZE, seed=0)))).unique()
