"""The ground truth of addition, against Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import TenDigitAddition
from models.tasks.number_digits import LIMIT

TASK = TenDigitAddition()
N_COLUMNS = 11

operand = st.one_of(
    st.integers(0, LIMIT - 1),
    st.integers(0, 99),
    st.integers(0, 10).map(lambda power: 10**power - 1),  # nines
    st.integers(0, 9).map(lambda power: 10**power),
)
problem = st.tuples(operand, operand)
problem_list = st.lists(problem, min_size=1, max_size=20)


def digits(number: int, width: int) -> list[int]:
    """Least significant first, by way of Python's own decimal text."""
    return [int(character) for character in reversed(str(number).zfill(width))]


@given(problem_list)
def test_tokens_are_the_digits_of_operands_and_sum(problems: list[tuple[int, int]]) -> None:
    expected = [digits(a, 10) + [0] + digits(b, 10) + [0] + digits(a + b, 11) for a, b in problems]
    assert TASK.encode(problems).tolist() == expected


@given(problem)
def test_variables_are_those_of_schoolbook_addition(pair: tuple[int, int]) -> None:
    a, b = pair
    found = {name: values[0].tolist() for name, values in TASK.variables([pair]).items()}
    carry, chain = 0, 0
    for column, (x, y) in enumerate(zip(digits(a, N_COLUMNS), digits(b, N_COLUMNS), strict=True)):
        carry_out = int(x + y + carry >= 10)
        expected = {
            "a": x,
            "b": y,
            "digit_sum": x + y,
            "carry_in": carry,
            "carry_out": carry_out,
            "s": (x + y + carry) % 10,
            "generate": int(x + y >= 10),
            "propagate": int(x + y == 9),
            "chain": chain,
        }
        assert {name: values[column] for name, values in found.items()} == expected
        chain = (chain + 1 if x + y == 9 else 1) if carry_out else 0
        carry = carry_out


@pytest.mark.parametrize(
    ("a", "b", "length"),
    [
        (0, 0, 0),
        (4444444444, 5555555555, 0),  # nines everywhere, but nothing to propagate
        (5, 5, 1),
        (5555, 5555, 1),  # every column generates its own carry
        (99, 1, 2),
        (1, 9999999999, 10),
        (1234567890, 8765432110, 9),
        (95, 905, 3),
        (950, 60, 2),
        (8888, 2222, 1),
    ],
)
def test_chain_length_counts_the_columns_that_one_carry_passes(a: int, b: int, length: int) -> None:
    assert TASK.chain_length([(a, b)]).item() == length


@pytest.mark.parametrize("target", range(1, 10))
def test_relative_roles_name_the_columns_of_a_middle_digit(target: int) -> None:
    labels = {
        name: [TASK.roles[position].label for position in group]
        for name, group in TASK.relative_roles(target).items()
        if name != "rest"
    }
    assert labels == {
        "own operands": [f"a{target}", f"b{target}"],
        "previous operands": [f"a{target - 1}", f"b{target - 1}"],
        "previous output": [f"s{target - 1}"],
        "delimiters": ["+", "="],
    }


def test_roles_describe_every_position_and_target() -> None:
    tokens = TASK.encode([(1234567890, 9876543210)])[0].tolist() + [0]
    assert len(TASK.roles) == len(tokens) == 34
    operands = {0: digits(1234567890, 10), 1: digits(9876543210, 10)}
    answer = digits(1234567890 + 9876543210, 11)
    for role, token in zip(TASK.roles, tokens, strict=True):
        if role.kind == "operand":
            assert token == operands[role.index][role.column]
        if role.kind == "answer":
            assert token == answer[role.column]
    assert [TASK.roles[query + 1] for query in TASK.query_positions] == list(TASK.target_roles)


def test_samples_are_reproducible_and_cover_the_range_uniformly() -> None:
    draw = lambda seed: TASK.sample(20_000, torch.Generator().manual_seed(seed))  # noqa: E731
    problems = draw(0)
    assert torch.equal(problems, draw(0))
    assert not torch.equal(problems, draw(1))
    assert problems.min() >= 0 and problems.max() < LIMIT
    # The mean of 40,000 uniform numbers has a standard error of 0.29 / 200 of the range; five of them are allowed.
    assert abs(problems.double().mean().item() / LIMIT - 0.5) < 5 * 0.289 / 200
    assert abs(torch.corrcoef(problems.T.double())[0, 1].item()) < 5 / 20_000**0.5


@pytest.mark.parametrize(
    "bad",
    [
        (10**10, 0),
        (-1, 0),
        (1, "2"),
        [(1, 2, 3)],
        "57-48",
        "57+",
        "9" * 5000 + "+1",
        f"{10**10}+1",
        [57, 48],
        np.array([["1", "2"]]),
        np.array([[1, 10**30]], dtype=object),
        torch.tensor([1, 2]),
        torch.tensor([[1, LIMIT]]),
        torch.tensor([[True, False]]),
        {},
    ],
)
def test_what_is_not_a_problem_is_refused(bad: object) -> None:
    with pytest.raises(UserError):
        TASK.as_problems(bad)


def test_a_problem_is_read_with_or_without_spaces_and_with_its_answer() -> None:
    for text in ("57+48", "57 + 48", " 57 + 48 = ", "57+48=105"):
        assert TASK.as_problems(text).tolist() == [[57, 48]]
    assert TASK.problem_text((57, 48)) == "57 + 48"
    with pytest.raises(UserError):
        TASK.as_problems("57+48=106")
