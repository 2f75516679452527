"""The ground truth of multi-operand addition, against Python's own integers and the paper's examples."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import AdditionFormat, MultiOperandAddition
from tests.models.tasks.named.position_coupling.task_sequences import (
    FORMATS,
    assert_predictions_are_the_response,
    assert_uniform,
    from_digits,
    padded,
    texts,
)
from tests.sampling import sampled

OF_FIGURE_14 = [form for form in FORMATS if form.scratchpad and form.zero_start]
PADDED_FORMATS = [form for form in FORMATS if form.zero_padding]


def name_of(form: AdditionFormat) -> str:
    words = [
        word for word, on in zip(("scratchpad", "padded"), (form.scratchpad, form.zero_padding), strict=True) if on
    ]
    words += [("reversed " if form.reversed_query else "plain ") + "query"]
    words += [("reversed " if form.reversed_response else "plain ") + "response"]
    return ", ".join([*words, *([] if form.zero_start else ["no zeros"])])


formats = pytest.mark.parametrize("form", FORMATS, ids=name_of)
padded_formats = pytest.mark.parametrize("form", PADDED_FORMATS, ids=name_of)


@st.composite
def additions(draw: st.DrawFn, most_operands: int = 12, most_digits: int = 8) -> tuple[int, int, list[tuple[int, ...]]]:
    """(operands, digits, problems of that shape), with nines and zeros more often than by chance."""
    m, n = draw(st.integers(1, most_operands)), draw(st.integers(1, most_digits))
    operand = st.one_of(st.integers(0, 10**n - 1), st.integers(0, n).map(lambda k: 10**k - 1), st.just(0))
    return m, n, draw(st.lists(st.tuples(*[operand] * m), min_size=1, max_size=4))


def length(m: int, n: int) -> int:
    """The paper's ``n + 1 + floor(log10 m)``."""
    return n + 1 + math.floor(math.log10(m))


def written(numbers: tuple[int, ...], n: int, form: AdditionFormat) -> str:
    """The sequence of a sum, by Python's own integers and text."""
    width = length(len(numbers), n) if form.zero_padding else 1
    sums = [sum(numbers[:i]) for i in range(len(numbers) + 1)][0 if form.zero_start else 1 :]
    sums = sums if form.scratchpad else sums[-1:]
    query = [padded(a, width)[:: -1 if form.reversed_query else 1] for a in numbers]
    response = [padded(b, width)[:: -1 if form.reversed_response else 1] for b in sums]
    return f"${'+'.join(query)}={'>'.join(response)}$"


# ---- tokens


def test_figure_4_to_the_letter() -> None:
    task = MultiOperandAddition(3, 2)
    assert texts(task, "57+48+96") == ["$057+048+096=000>750>501>102$"]
    ids = task.position_ids(task.encode("57+48+96"))[0].T.tolist()
    assert ids[0] == [0, *map(int, "432143214321234123412341234")]
    assert ids[1] == [0, *map(int, "111122223331111222233334444")]  # under '=' the id of b_0, as in equation 2


@formats
@given(shaped=additions())
def test_sequences_are_written_as_the_format_says(
    form: AdditionFormat, shaped: tuple[int, int, list[tuple[int, ...]]]
) -> None:
    m, n, problems = shaped
    task = MultiOperandAddition(m, n, form)
    expected = [written(numbers, n, form) for numbers in problems]
    if not form.zero_padding:
        expected = [text.ljust(max(map(len, expected)), "$") for text in expected]
    assert texts(task, problems) == expected
    assert_predictions_are_the_response(task, problems)


def test_the_six_formats_of_figure_14() -> None:
    found = {name_of(form): texts(MultiOperandAddition(2, 2, form), "9+95")[0] for form in OF_FIGURE_14}
    assert found == {
        "scratchpad, padded, plain query, reversed response": "$009+095=000>900>401$",
        "scratchpad, padded, reversed query, reversed response": "$900+590=000>900>401$",
        "scratchpad, padded, plain query, plain response": "$009+095=000>009>104$",
        "scratchpad, plain query, reversed response": "$9+95=0>9>401$",
        "scratchpad, reversed query, reversed response": "$9+59=0>9>401$",
        "scratchpad, plain query, plain response": "$9+95=0>9>104$",
    }
    with pytest.raises(UserError, match="six formats"):
        AdditionFormat(reversed_query=True, reversed_response=False)


def test_a_scratchpad_may_begin_with_the_first_operand_as_in_footnote_3() -> None:
    task = MultiOperandAddition(3, 2, AdditionFormat(zero_start=False))
    assert texts(task, "57+48+96") == ["$057+048+096=750>501>102$"]
    ids = task.position_ids(task.encode("57+48+96"))[0].T.tolist()
    assert ids[0] == [0, *map(int, "43214321432123412341234")]
    assert ids[1] == [0, *map(int, "11112222333222233334444")]  # b_1 shares its id with a_2, as with b_0 before it
    assert task.needed_positions(0) == {"sum": [task.operand_position(1, 0)], "carry": []}
    with pytest.raises(UserError):
        task.step_position(0, 0)
    with pytest.raises(UserError):
        AdditionFormat(scratchpad=False, zero_start=False)


@pytest.mark.parametrize(("m", "n"), [(2, 700), (5, 300), (120, 40), (2, 5000)])
def test_numbers_of_hundreds_and_thousands_of_digits_add_up(m: int, n: int) -> None:
    task = MultiOperandAddition(m, n)
    digits = task.sample(2, torch.Generator().manual_seed(m))
    expected = [sum(from_digits(number) for number in numbers) for numbers in digits.tolist()]
    assert task.decode(task.targets(digits)) == expected
    assert [sum(numbers) for numbers in task.numbers(digits)] == expected
    nines = torch.full_like(digits[:1], 9)
    assert task.decode(task.targets(nines)) == [m * (10**n - 1)]


# ---- position ids


def equations_1_and_2(m: int, n: int) -> tuple[list[int], list[int]]:
    """p_1(k) and p_2(k) for k = 1 .. N, as printed, with both offsets 1."""
    s1 = s2 = 1
    ell = length(m, n)
    p1, p2 = {1: 0}, {1: 0}
    for i in range(1, m + 1):
        for k in range((i - 1) * (ell + 1) + 2, i * (ell + 1) + 1 + 1):
            p1[k] = s1 + (i * (ell + 1) + 1) - k
    for i in range(1, m + 1 + 1):
        for k in range((m + i - 1) * (ell + 1) + 1, (m + i) * (ell + 1) + 1):
            p1[k] = s1 - ((m + i - 1) * (ell + 1) + 1) + k
    for k in range(2, m * (ell + 1) + 1):
        p2[k] = s2 + (k - 2) // (ell + 1)
    for k in range(m * (ell + 1) + 1, (2 * m + 1) * (ell + 1) + 1):
        p2[k] = s2 + (k - m * (ell + 1) - 1) // (ell + 1)
    order = range(1, (2 * m + 1) * (ell + 1) + 1)
    return [p1[k] for k in order], [p2[k] for k in order]


@pytest.mark.parametrize("m", [*range(1, 13), 99, 100])
def test_position_ids_are_equations_1_and_2(m: int) -> None:
    for n in (1, 2, 3, 4, 7, 30) if m < 50 else (1, 2):
        task = MultiOperandAddition(m, n)
        tokens = task.encode(task.sample(2, torch.Generator().manual_seed(n)))
        for row in task.position_ids(tokens):
            assert tuple(row.T.tolist()) == equations_1_and_2(m, n)


@formats
def test_ids_are_the_significance_in_every_format(form: AdditionFormat) -> None:
    """Level 1 of every digit is 2 + its power of ten, whatever the direction and padding."""
    task = MultiOperandAddition(3, 3, form)
    sequences = task.sequences(["999+1+85", "0+70+0", "123+456+789"])
    level = task.position_ids(sequences.tokens)[..., 0]
    digit = sequences.column >= 0
    assert torch.equal(level[digit], 2 + sequences.column[digit])
    assert (level[~digit & (sequences.tokens != task.special)] == 1).all()
    assert (level[sequences.tokens == task.special] == 0).all()


# ---- ground truth


@padded_formats
def test_roles_describe_every_token(form: AdditionFormat) -> None:
    task = MultiOperandAddition(3, 2, form)
    numbers = (57, 48, 96)
    tokens = task.sequences([numbers]).tokens[0].tolist()
    assert len(task.roles) == len(tokens)
    for role, token in zip(task.roles, tokens, strict=True):
        if role.kind == "operand":
            assert role.index is not None and role.column is not None
            assert token == numbers[role.index - 1] // 10**role.column % 10
            assert role.label == f"a{role.index}[{role.column}]"
        elif role.kind in ("answer", "scratchpad"):
            assert role.index is not None and role.column is not None
            assert token == sum(numbers[: role.index]) // 10**role.column % 10
            assert (role.kind == "answer") == (role.index == 3)
        else:
            assert task.token_text(token) == (role.label if role.kind == "delimiter" else "$")
    assert [task.roles[query + 1] for query in task.query_positions] == list(task.target_roles)
    assert task.target_roles[-1].kind == "eos" and task.roles[0].kind == "bos"


def prediction(task: MultiOperandAddition, target: int, token: dict[int, int], ids: list[list[int]]) -> str:
    """The next token, from the tokens at the needed positions, the query's own, and position ids alone.

    With x and y (or all operands) in the column before and o written there, the carry is (x + y - o) / 10 rounded up.
    """
    query, needed = task.query_positions[target], task.needed_positions(target)
    top = task.length + 1
    column, step = ids[query][0], ids[query][1] if task.format.scratchpad else task.n_operands + 1
    if column == top:
        return "$" if step == task.n_operands + 1 else ">"
    if step == 1 and task.format.scratchpad:
        assert not needed["sum"] and not needed["carry"]
        return "0"
    total = sum(token[position] for position in needed["sum"])
    carry = 0
    if column > 1:
        below = sum(token[position] for position in needed["carry"])
        carry = -((token[query] - below) // 10)
    return str((total + carry) % 10)


@pytest.mark.parametrize("scratchpad", [True, False], ids=["scratchpad", "answer alone"])
@pytest.mark.parametrize(
    ("m", "n"), sampled([(1, 3), (2, 4), (3, 2), (7, 3), (10, 2), (12, 2)], (1, 3), (3, 2), (12, 2))
)
def test_the_next_token_follows_from_the_needed_positions(m: int, n: int, scratchpad: bool) -> None:
    if m > 10 and not scratchpad:
        pytest.skip("a carry of ten or more is not decided by the digit that it left behind")
    task = MultiOperandAddition(m, n, AdditionFormat(scratchpad=scratchpad))
    random_problems = task.sample(20, torch.Generator().manual_seed(1))
    problems = torch.cat((random_problems, torch.full((1, m, n), 9), torch.zeros(1, m, n, dtype=torch.int64)))
    sequences = task.sequences(problems)
    for row, (tokens, targets) in enumerate(zip(sequences.tokens.tolist(), task.targets(problems), strict=True)):
        ids = task.position_ids(sequences.tokens[row : row + 1])[0].tolist()
        for target, query in enumerate(task.query_positions):
            needed = {p for group in task.needed_positions(target).values() for p in group} | {query}
            seen = {position: tokens[position] for position in needed}
            assert max(needed) <= query
            assert prediction(task, target, seen, ids) == task.token_text(targets[target]), task.target_roles[target]


def test_needed_positions_of_a_middle_digit() -> None:
    task = MultiOperandAddition(3, 2)
    labels = lambda positions: [task.roles[position].label for position in positions]  # noqa: E731
    target = [role.label for role in task.target_roles].index("b2[1]")
    needed = task.needed_positions(target)
    assert labels(needed["sum"]) == ["a2[1]", "b1[1]"]
    assert labels(needed["carry"]) == ["a2[0]", "b1[0]"]
    assert labels(task.relative_roles(target)["previous output"]) == ["b2[0]"]
    assert task.query_positions[target] == task.step_position(2, 0)
    assert task.operand_position(2, 1) == needed["sum"][0] and task.step_position(3, -1) == len(task.roles) - 1
    with pytest.raises(UserError, match="no digit 3"):
        task.operand_position(1, 3)


@given(shaped=additions())
def test_variables_are_those_of_adding_one_number_after_the_other(
    shaped: tuple[int, int, list[tuple[int, ...]]],
) -> None:
    m, n, problems = shaped
    task = MultiOperandAddition(m, n)
    found = {name: values.tolist() for name, values in task.variables(problems).items()}
    chains = task.chain_length(problems).tolist()
    for row, numbers in enumerate(problems):
        longest = 0
        for i in range(m):
            before, operand, chain = sum(numbers[:i]), numbers[i], 0
            for k in range(task.length):
                x, y = operand // 10**k % 10, before // 10**k % 10
                carry = int((operand % 10**k) + (before % 10**k) >= 10**k)
                expected = {
                    "a": x,
                    "b": y,
                    "digit_sum": x + y,
                    "carry_in": carry,
                    "carry_out": int(x + y + carry > 9),
                    "s": (operand + before) // 10**k % 10,
                    "generate": int(x + y > 9),
                    "propagate": int(x + y == 9),
                    "chain": chain,
                }
                assert {name: values[row][i][k] for name, values in found.items()} == expected
                longest = max(longest, chain)
                chain = (chain + 1 if x + y == 9 else 1) if expected["carry_out"] else 0
        assert chains[row] == longest


def test_without_padding_tokens_have_no_fixed_places() -> None:
    task = MultiOperandAddition(2, 2, AdditionFormat(zero_padding=False))
    for ask in (
        lambda: task.roles,
        lambda: task.query_positions,
        lambda: task.targets("1+2"),
        lambda: task.input_length,
    ):
        with pytest.raises(UserError, match="no fixed places; use sequences"):
            ask()
    with pytest.raises(UserError, match="different lengths; encode them one by one"):
        task.encode_prompt(["1+2", "10+2"])
    assert task.token_text(task.encode_prompt("1+20")[0]) == "$1+20="


# ---- sampling


def test_samples_are_uniform_numbers_of_exactly_the_given_length() -> None:
    task = MultiOperandAddition(3, 4)
    draw = lambda seed: task.sample(5000, torch.Generator().manual_seed(seed))  # noqa: E731
    digits = draw(0)
    assert torch.equal(digits, draw(0)) and not torch.equal(digits, draw(1))
    assert digits.shape == (5000, 3, 4)
    for operand in range(3):
        for column in range(3):
            assert_uniform(digits[:, operand, column], 10)
        assert_uniform(digits[:, operand, 3], 10, first=1)
    assert_uniform(10 * digits[:, 0, 0] + digits[:, 1, 0], 100)  # operands are independent, and so are columns
    assert_uniform(10 * digits[:, 2, 1] + digits[:, 2, 2], 100)


def test_samples_of_one_digit_have_zeros_too() -> None:
    assert_uniform(MultiOperandAddition(2, 1).sample(5000, torch.Generator().manual_seed(0)), 10)


# ---- bad input


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ((100, 0), "at most 2 digits, not 3"),
        ((-1, 0), "integers from 0 on, and -1 is not one"),
        ([(1, "2")], "'2'"),
        ([(1, 2, 3)], "has 2 operands, not 3"),
        ((7,), "has 2 operands, not 1"),
        ("57-48", "'57-48' is not a problem of multi-operand-addition; write it like '57+48+96'"),
        ("٣+1", "57+48+96"),
        ("9" * 5000 + "+1", "at most 2 digits, not 5000"),
        ([57, 48], "57 is not a problem"),
        (torch.zeros(1, 2, 3, dtype=torch.int64), "[n, 2, 2], not [1, 2, 3]"),
        (torch.zeros(1, 3, 2, dtype=torch.int64), "[n, 2, 2], not [1, 3, 2]"),
        (torch.full((1, 2, 2), 10), "Digits lie in 0..9"),
        (torch.full((1, 2, 2), -1), "Digits lie in 0..9"),
    ],
)
def test_what_is_not_a_problem_of_this_shape_is_refused_with_a_reason(bad: object, complaint: str) -> None:
    with pytest.raises(UserError) as error:
        MultiOperandAddition(2, 2).as_problems(bad)
    assert complaint in str(error.value)


def test_shapes_beyond_the_models_limits_are_refused() -> None:
    task = MultiOperandAddition(2, 2, max_operands=4, max_digits=3)
    assert task.at(4, 3).shape == (4, 3)
    with pytest.raises(UserError, match="adds at most 4 operands, not 5"):
        task.for_problems("1+2+3+4+5")
    with pytest.raises(UserError, match="operands of at most 3 digits, not 4"):
        task.for_problems("1000+1")
    with pytest.raises(UserError, match="at most 4 operands, not 9"):
        task.at(4, 3).at(9, 1)  # limits outlive a change of shape
    for shape in ((0, 1), (1, 0)):
        with pytest.raises(UserError, match="at least one operand of one digit, not"):
            MultiOperandAddition(*shape)


def test_without_a_scratchpad_there_are_no_arrows() -> None:
    with pytest.raises(UserError, match="does not begin a response"):
        MultiOperandAddition(format=AdditionFormat(scratchpad=False)).tokenise("$1+2=0>3")
