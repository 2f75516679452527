"""The ground truth of multiplication, against Python's own integers and the paper's example."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import Multiplication
from tests.models.tasks.named.position_coupling.task_sequences import (
    assert_predictions_are_the_response,
    assert_uniform,
    from_digits,
    padded,
    texts,
)

Shaped = tuple[int, int, list[tuple[int, int]]]
scratchpads = pytest.mark.parametrize("scratchpad", [True, False], ids=["scratchpad", "answer alone"])


@st.composite
def products(draw: st.DrawFn) -> Shaped:
    """(M, N, problems of that shape), with nines and zeros more often than by chance."""
    M, N = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    number = lambda n: st.one_of(  # noqa: E731
        st.integers(0, 10**n - 1), st.integers(0, n).map(lambda k: 10**k - 1), st.just(0)
    )
    return M, N, draw(st.lists(st.tuples(number(M), number(N)), min_size=1, max_size=4))


def written(a: int, b: int, M: int, N: int, scratchpad: bool) -> str:
    """The sequence of a product, by Python's own integers and text."""
    steps = [b // 10**k % 10 for k in range(N)]
    stage1 = "+".join(padded(a * digit, M + 1)[::-1] for digit in steps)
    stage2 = ">".join(padded(a * (b % 10 ** (k + 1)), M + N)[::-1] for k in range(N))
    response = f"{stage1}={stage2}" if scratchpad else padded(a * b, M + N)[::-1]
    return f"${padded(a, M)}*{padded(b, N)}={response}$"


# ---- tokens


def test_figure_8b_to_the_letter() -> None:
    task = Multiplication(2, 3)
    assert texts(task, "37*925") == ["$37*925=581+470+333=58100>52900>52243$"]
    ids = task.position_ids(task.encode("37*925"))[0].T.tolist()
    assert ids[0] == [0, *map(int, "320000123412341234000000000000000000")]
    assert ids[1] == [0, *map(int, "000321111122223333111111222222333333")]
    assert ids[2] == [0, *map(int, "000000123423453456123456123456123456")]


@scratchpads
@given(shaped=products())
def test_sequences_are_written_as_in_the_paper(scratchpad: bool, shaped: Shaped) -> None:
    M, N, problems = shaped
    task = Multiplication(M, N, scratchpad)
    assert texts(task, problems) == [written(a, b, M, N, scratchpad) for a, b in problems]
    assert_predictions_are_the_response(task, problems)
    targets = task.targets(problems)
    assert torch.equal(torch.cat((task.encode_prompt(problems), targets), 1), task.sequences(problems).tokens)
    assert task.decode(targets) == [a * b for a, b in problems]
    assert task.decode(targets * 0 + task.vocabulary.index("+")) == [None] * len(problems)  # what spells no number


@pytest.mark.parametrize(("M", "N"), [(400, 3), (3, 200), (120, 120)])
def test_numbers_of_hundreds_of_digits_multiply(M: int, N: int) -> None:
    task = Multiplication(M, N)
    digits = task.sample(2, torch.Generator().manual_seed(M))
    expected = [from_digits(a) * from_digits(b) for a, b in digits.tolist()]
    assert task.decode(task.targets(digits)) == expected
    nines = torch.stack([torch.where(torch.arange(task.n_digits) < n, 9, 0) for n in (M, N)])[None]
    assert task.decode(task.targets(nines)) == [(10**M - 1) * (10**N - 1)]


# ---- position ids


@given(shaped=products())
def test_digits_that_belong_together_share_an_id(shaped: Shaped) -> None:
    """Level 1 couples A with every product, level 2 B with products and sums, level 3 products with sums."""
    M, N, problems = shaped
    task = Multiplication(M, N)
    ids = task.position_ids(task.encode(problems[:1]))[0].tolist()
    at = lambda segment, column: ids[task.position_of(segment, column)]  # noqa: E731
    for k in range(N):
        assert at(1, k)[1] == 1 + k
        for column in range(M + 1):
            product = at(2 + k, column)
            assert product == [2 + column, 1 + k, 2 + column + k]
            if column < M:
                assert at(0, column) == [product[0], 0, 0]
        for column in range(M + N):
            assert at(2 + N + k, column) == [0, 1 + k, 2 + column]


def test_the_answer_alone_has_the_significance_as_its_only_level() -> None:
    task = Multiplication(2, 3, scratchpad=False)
    tokens = task.encode("37*925")
    assert task.token_text(tokens[0]) == "$37*925=52243"
    assert task.position_ids(tokens)[0, :, 0].tolist() == [0, 3, 2, 1, 4, 3, 2, 1, 2, 3, 4, 5, 6]


# ---- ground truth


def test_roles_describe_every_token() -> None:
    task = Multiplication(2, 3)
    a, b = 37, 925
    for role, token in zip(task.roles, task.sequences("37*925").tokens[0].tolist(), strict=True):
        if role.column is None:
            assert task.token_text(token) == (role.label if role.kind == "delimiter" else "$")
            continue
        assert role.index is not None
        if role.kind == "operand":
            number = (a, b)[role.index - 1]
        elif role.label.startswith("p"):
            number = a * (b // 10 ** (role.index - 1) % 10)
        else:
            number = a * (b % 10**role.index)
            assert (role.kind == "answer") == (role.index == 3)
        assert token == number // 10**role.column % 10, role
    alone = Multiplication(1, 2, scratchpad=False)
    assert [role.label for role in alone.target_roles] == ["c[0]", "c[1]", "c[2]", "EOS"]


def prediction(task: Multiplication, target: int, tokens: list[int]) -> str:
    """The next token from the tokens that the relative roles name, the query's own, and where it stands.

    With x the column before (a product of digits, or a sum of two) and o written there, the carry is (x - o) / 10
    rounded up.
    """
    role, groups = task.target_roles[target], task.relative_roles(target)
    value = lambda name: sum(tokens[position] for position in groups[name])  # noqa: E731  (a missing digit is 0)
    assert groups["previous output"] in ([], [task.query_positions[target]])
    if role.column is None:
        return "$" if role.kind == "eos" else role.label
    if role.label.startswith("p"):
        own, before = (value(name) * value("multiplier") for name in ("own operand", "previous operand"))
    else:
        own, before = (value(f"{name} product") + value(f"{name} running sum") for name in ("own", "previous"))
    carry = -((value("previous output") - before) // 10)
    return str((own + carry) % 10)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 1), (3, 5), (5, 3)], ids=str)
def test_the_next_token_follows_from_the_named_positions(shape: tuple[int, int]) -> None:
    task = Multiplication(*shape)
    nines = torch.stack([torch.where(torch.arange(task.n_digits) < n, 9, 0) for n in shape])[None]
    problems = torch.cat((task.sample(20, torch.Generator().manual_seed(1)), nines, 0 * nines))
    for tokens, targets in zip(task.encode(problems).tolist(), task.targets(problems), strict=True):
        for target in range(len(targets)):
            assert prediction(task, target, tokens) == task.token_text(targets[target]), task.target_roles[target]


@given(shaped=products())
def test_variables_are_products_running_sums_and_their_carries(shaped: Shaped) -> None:
    M, N, problems = shaped
    task = Multiplication(M, N)
    found = {name: values.tolist() for name, values in task.variables(problems).items()}
    chains = task.chain_length(problems).tolist()
    for row, (a, b) in enumerate(problems):
        longest = 0
        for step in range(N):
            digit = b // 10**step % 10
            before, shifted = a * (b % 10**step), a * digit * 10**step
            assert from_digits(found["product"][row][step]) == a * digit
            assert from_digits(found["running_sum"][row][step]) == before + shifted
            product_carry = [a % 10**k * digit // 10**k for k in range(M + 1)]
            sum_carry = [int(before % 10**k + shifted % 10**k >= 10**k) for k in range(M + N)]
            assert found["product_carry"][row][step] == product_carry
            assert found["sum_carry"][row][step] == sum_carry
            longest = max(longest, max(map(len, "".join(map(str, sum_carry)).split("0"))))
        assert chains[row] == longest


# ---- sampling


def test_samples_are_uniform_numbers_of_exactly_the_given_lengths() -> None:
    task = Multiplication(3, 2)
    draw = lambda seed: task.sample(5000, torch.Generator().manual_seed(seed))  # noqa: E731
    digits = draw(0)
    assert torch.equal(digits, draw(0)) and not torch.equal(digits, draw(1))
    assert digits.shape == (5000, 2, 3) and not digits[:, 1, 2].any()
    for operand, length in enumerate((3, 2)):
        for column in range(length - 1):
            assert_uniform(digits[:, operand, column], 10)
        assert_uniform(digits[:, operand, length - 1], 10, first=1)
    assert_uniform(10 * digits[:, 0, 0] + digits[:, 1, 0], 100)  # operands are independent
    assert_uniform(Multiplication(1, 1).sample(5000, torch.Generator().manual_seed(0)), 10)


# ---- bad input


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ((1000, 1), "at most 3 digits, not 4"),
        ("37+925", "'37+925' is not a problem of multiplication; write it like '37*925'"),
        ((100, 1), "first operand has at most 2 digits in this shape, not 3"),
        (torch.full((1, 2, 3), 1), "first operand has at most 2 digits in this shape, not 3"),
    ],
)
def test_what_is_not_a_problem_of_this_shape_is_refused_with_a_reason(bad: object, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        Multiplication(2, 3).as_problems(bad)
    assert complaint in str(error.value)


def test_shapes_beyond_the_models_limits_are_refused() -> None:
    task = Multiplication(2, 3, max_digits=3)
    for shape in ((4, 1), (1, 4)):
        with pytest.raises(UserError, match="at most 3 digits"):
            task.at(*shape)
    with pytest.raises(UserError, match="at most 3 digits"):
        task.for_problems("1*1000")
    with pytest.raises(UserError, match="at least one digit, not 0 and 1"):
        Multiplication(0, 1)
    with pytest.raises(UserError, match="two operands, not 3"):
        task.for_problems("1*2*3")
