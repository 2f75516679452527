"""Two-digit addition in minGPT's format: 10,000 problems, 500 of them held out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks.counter_rng import row_keys
from models.tasks.named.addition import TwoDigitAddition

TASK = TwoDigitAddition()
NUMBER = st.integers(0, 99)
CPU = torch.device("cpu")


def test_a_sequence_is_both_operands_and_the_sum_reversed():
    assert TASK.encode([(42, 47)]).tolist() == [[4, 2, 4, 7, 9, 8]]
    assert TASK.targets([(42, 47)]).tolist() == [[9, 8, 0]]
    assert TASK.encode("7+99").tolist() == [[0, 7, 9, 9, 6, 0]]
    assert TASK.targets("7+99").tolist() == [[6, 0, 1]]


@given(NUMBER, NUMBER)
def test_the_targets_spell_the_sum_and_the_variables_are_those_of_column_addition(a: int, b: int):
    problem = [(a, b)]
    assert TASK.decode(TASK.targets(problem)) == [a + b]
    found = {name: values[0].tolist() for name, values in TASK.variables(problem).items()}
    assert found["carry_out"][0] == int(a % 10 + b % 10 >= 10) == found["carry_in"][1]
    assert found["carry_out"][1] == int(a + b >= 100) == found["s"][2]
    assert found["digit_sum"] == [a % 10 + b % 10, a // 10 + b // 10, 0]
    passed_on = found["carry_out"][0] and a // 10 + b // 10 == 9
    assert TASK.chain_length(problem).item() == (2 if passed_on else int(any(found["carry_out"])))


def test_the_permutation_with_seed_1337_splits_all_problems():
    order = torch.randperm(10_000, generator=torch.Generator().manual_seed(1337))
    pairs = torch.stack((order // 100, order % 100), 1)
    assert torch.equal(TASK.held_out.problems, pairs[:500])
    assert torch.equal(TASK.held_out.others, pairs[500:])
    assert len(set(map(tuple, TASK.domain.every().tolist()))) == 10_000


def test_neither_training_nor_validation_sees_a_held_out_pair():
    held_out = set(map(tuple, TASK.held_out.problems.tolist()))
    drawn = [TASK.held_out.training(row_keys(3, step, 64, CPU)) for step in range(200)]
    assert not held_out & set(map(tuple, torch.cat(drawn).tolist()))
    assert not held_out & set(map(tuple, TASK.held_out.validation(9_500, 0).tolist()))


def test_training_draws_depend_on_seed_and_step_alone_and_reach_everywhere():
    draw = lambda *keys: TASK.held_out.training(row_keys(*keys, CPU))  # noqa: E731
    assert torch.equal(draw(1, 7, 64), draw(1, 7, 64))
    assert not torch.equal(draw(1, 7, 64), draw(2, 7, 64))
    assert not torch.equal(draw(1, 7, 64), draw(1, 8, 64))
    many = draw(0, 0, 200_000)
    assert len(set(map(tuple, many.tolist()))) == 9_500


def test_the_second_half_of_the_validation_problems_is_the_harder_one():
    problems = TASK.held_out.validation(256, 0)
    chain = TASK.chain_length(problems)
    assert (chain[128:] == 2).all() and (chain[:128] == 0).any()


@pytest.mark.parametrize(
    "problem", [[(100, 3)], torch.tensor([[3, -1]]), [(1, 2, 3)], "1234+1", "one+two", [(True, 1)], [(2**63, 1)]]
)
def test_what_is_no_problem_is_refused(problem: object):
    with pytest.raises(UserError):
        TASK.encode(problem)


@pytest.mark.parametrize("n", [0, 9_501])
def test_there_are_only_so_many_validation_problems(n: int):
    with pytest.raises(UserError):
        TASK.held_out.validation(n, 0)
