"""AdderBoard's problems are what their definition says, and validation never touches them."""

from __future__ import annotations

import hashlib

import pytest
import torch

from models.errors import UserError
from models.tasks import TenDigitAddition
from models.tasks.columns.long_carries import carry_heavy
from models.tasks.named.adder_test_sets import ADDER_BOARD, FIXED_PAIRS, FixedPairs
from models.tasks.number_digits import LIMIT

TASK = TenDigitAddition()


def test_ten_fixed_pairs_come_before_the_drawn_ones() -> None:
    problems = ADDER_BOARD.problems
    assert problems.shape == (10_010, 2)
    assert problems[:10].tolist() == [list(pair) for pair in FIXED_PAIRS]
    assert problems[10].tolist() == [2395527356, 9334186774]  # the first drawn pair, as published


def test_the_drawn_pairs_are_python_s_generator_with_its_seed() -> None:
    import random

    generator = random.Random(2025)
    expected = [[generator.randint(0, 9_999_999_999) for _ in range(2)] for _ in range(10_000)]
    assert ADDER_BOARD.problems[10:].tolist() == expected


def test_the_problems_never_change() -> None:
    text = "\n".join(f"{a}+{b}" for a, b in ADDER_BOARD.problems.tolist())
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "3fa22c2599e8832f9c19c5aa580f5b37cd43467b87ff5522549715b6d9ae293a"
    )


def test_drawn_pairs_have_the_known_carry_chains() -> None:
    lengths, counts = TASK.chain_length(ADDER_BOARD.problems[10:]).unique(return_counts=True)
    assert dict(zip(lengths.tolist(), counts.tolist(), strict=True)) == {0: 24, 1: 6453, 2: 3198, 3: 292, 4: 33}


def test_the_caller_s_copy_can_be_changed_without_harm() -> None:
    ADDER_BOARD.problems.zero_()
    assert ADDER_BOARD.problems[10].tolist() == [2395527356, 9334186774]


def test_it_is_the_task_s_test_set() -> None:
    name, problems = TASK.held_out.name, TASK.held_out.problems
    assert name == "AdderBoard"
    assert torch.equal(problems, ADDER_BOARD.problems)


def test_membership_holds_in_either_order() -> None:
    assert ADDER_BOARD.holds(ADDER_BOARD.problems).all()
    assert ADDER_BOARD.holds(ADDER_BOARD.problems.flip(1)).all()
    assert ADDER_BOARD.holds(torch.tensor([[123, 456], [0, 1]])).tolist() == [False, True]


@pytest.mark.parametrize("n", [1, 2, 5000])
@pytest.mark.parametrize("seed", [0, 1])
def test_validation_problems_are_disjoint_from_the_test_set(n: int, seed: int) -> None:
    problems = ADDER_BOARD.validation(n, seed)
    assert problems.shape == (n, 2)
    assert problems.min() >= 0 and problems.max() < LIMIT
    taken = {frozenset(pair) for pair in ADDER_BOARD.problems.tolist()}
    assert not any(frozenset(pair) in taken for pair in problems.tolist())


def test_validation_problems_that_hit_the_test_set_are_drawn_again() -> None:
    free = ADDER_BOARD.validation(50, seed=3)
    larger = FixedPairs(lambda: torch.cat((ADDER_BOARD.problems, free[::2])))
    again = larger.validation(50, seed=3)
    assert len(again) == 50
    assert not {tuple(pair) for pair in free[::2].tolist()} & {tuple(pair) for pair in again.tolist()}


def test_validation_is_reproducible_and_differs_by_seed() -> None:
    assert torch.equal(ADDER_BOARD.validation(100, 5), ADDER_BOARD.validation(100, 5))
    assert not torch.equal(ADDER_BOARD.validation(100, 5), ADDER_BOARD.validation(100, 6))


def test_half_of_the_validation_problems_are_carry_heavy() -> None:
    problems = ADDER_BOARD.validation(4000, 0)
    longest = TASK.chain_length(problems)
    uniform, heavy = longest[:2000], longest[2000:]
    assert (uniform >= 4).float().mean() < 0.02
    assert (heavy >= 4).float().mean() > 0.3
    assert set(heavy.tolist()) >= set(range(1, 11))  # up to a carry through all ten columns


def test_every_carry_heavy_problem_has_a_carry() -> None:
    problems = carry_heavy(5000, torch.Generator().manual_seed(0))
    assert problems.min() >= 0 and problems.max() < LIMIT
    assert (TASK.chain_length(problems) >= 1).all()


def test_a_number_of_validation_problems_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="positive"):
        ADDER_BOARD.validation(0, seed=0)
