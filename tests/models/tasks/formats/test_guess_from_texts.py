"""A guess of a task names everything that fits the examples, and refuses what nothing fits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import formatted
from models.tasks.formats.guess_from_texts import guess
from models.tasks.formats.operations import OPERATIONS

orders = st.sampled_from(["", "r"])
bases = st.sampled_from([2, 7, 10])


@given(
    st.sampled_from([name for name, each in OPERATIONS.items() if not each.compares]),
    orders,
    orders,
    bases,
    st.integers(0, 99),
    st.integers(1, 9),
)
def test_the_task_that_wrote_the_examples_is_among_those_that_fit(
    answer: str, up: str, answer_up: str, base: int, seed: int, n: int
):
    sign = "+" if answer in ("a - b", "b - a") else ""
    format = f"<BOS>{{a:3{up}}} ? {{b:3{up}}} = {{s:{sign}6{answer_up}}}."
    task = formatted(format, answer, base=base)
    problems = task.sample(n, torch.Generator().manual_seed(seed))
    rows = torch.cat((task.encode(problems), task.targets(problems)[:, -1:]), 1)
    found = guess([task.token_text(row) for row in rows])
    definitions = [found.task.definition, *found.alternatives]
    wanted = {"format": format, "answer": answer, "base": base}
    assert any(wanted.items() <= definition.items() for definition in definitions)
    assert found.n == n and str(found)


def test_an_unsigned_difference_is_one_where_it_exists():
    found = guess(["83-12=71", "99-98=01"])
    assert found.task.definition["where"] == "a >= b" and found.task.families == ("subtraction",)
    assert "abs(a - b)" in str(found)


def test_many_examples_leave_one_task():
    assert guess(["012+034=0046", "907+105=1012"]).alternatives == ()


@pytest.mark.parametrize(
    "examples",
    [
        [],
        ["12+13=98"],
        ["12+3=15", "1+22=23"],
        ["1234=2"],
        ["12-13=-01", "13-12=01"],
        ["1+2=3", "1*2=2"],
        ["no numbers"],
        [3],
    ],
    ids=str,
)
def test_what_nothing_fits_is_refused(examples: list[str]):
    with pytest.raises(UserError):
        guess(examples)


@pytest.mark.parametrize("name, sign, p", [("a + b", "+", 113), ("a - b", "-", 59), ("a * b", "*", 97)])
def test_numbers_between_spaces_are_one_token_each_and_the_modulus_is_found(name: str, sign: str, p: int):
    pairs = [(p - 1, 1), (2, p - 2), (p - 3, p - 4), (0, 7)]
    found = guess([f"{a} {sign} {b} = {OPERATIONS[name](a, b) % p}" for a, b in pairs])
    assert found.task.definition["answer"] == f"({name}) % {p}" and found.task.base == p
    assert found.task.answers(torch.tensor(pairs)).tolist() == [OPERATIONS[name](a, b) % p for a, b in pairs]


def test_a_modulus_that_the_examples_leave_open_is_said_to_be_open():
    found = guess(["5 * 8 = 40", "112 * 1 = 112", "57 * 80 = 40"])
    assert {each["base"] for each in (found.task.definition, *found.alternatives)} == {113, 226, 452, 565, 904}


@pytest.mark.parametrize("examples", [["57+80=24", "5+8=13"], ["05 + 8 = 13", "15 + 18 = 33"]])
def test_unpadded_numbers_without_spaces_and_padded_ones_are_no_tokens_of_their_own(examples: list[str]):
    with pytest.raises(UserError):
        guess(examples)


@given(
    st.sampled_from(["a + b", "a - b", "b - a", "a * b", "max(a, b)"]),
    st.sampled_from(["", "+"]),
    bases,
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_where_an_answer_does_not_fit_its_field_the_proposal_says_where_it_does(
    answer: str, sign: str, base: int, width: int, seed: int
):
    """Of every operation and width: what fits the examples is proposed, and holds for exactly the problems that fit."""
    least = "" if sign else f" & ({answer} >= 0)"
    task = formatted(
        f"{{a:2}}?{{b:2}}={{s:{sign}{width}}}", answer, base, where=f"(abs({answer}) < {base**width}){least}"
    )
    problems = task.sample(6, torch.Generator().manual_seed(seed))
    rows = torch.cat((task.encode(problems), task.targets(problems)[:, -1:]), 1)
    found = guess([task.token_text(row) for row in rows])
    same = [
        each
        for each in (found.task.definition, *found.alternatives)
        if each["answer"] == answer and each["base"] == base
    ]
    proposed = [formatted(**each) for each in same if each["format"] == task.format]
    assert [each.domain.size for each in proposed] == [task.domain.size]


def test_last_digits_are_proposed_where_an_answer_can_be_longer():
    assert "a + b where a + b < 100" in str(guess(["12+34=46"])) and "(a + b) % 100" in str(guess(["12+34=46"]))
    assert guess(["12+34=46", "99+99=98"]).task.definition["answer"] == "(a + b) % 100"


@pytest.mark.parametrize(
    "sign, answer", [(">", "a > b"), ("-", "a - b"), (">=", "a >= b"), ("!=", "a != b"), ("*", "a * b")]
)
def test_what_the_examples_write_is_proposed_first(sign: str, answer: str):
    a, b = (1, 1) if answer == "a * b" else (3, 2)
    assert guess([f"{a}{sign}{b}=1"]).task.definition["answer"] == answer


def test_the_reason_of_a_refusal_is_the_tasks_own():
    digits = "1".zfill(40)
    with pytest.raises(UserError, match="40 digits"):
        guess([f"{digits}+{digits}={'2'.zfill(41)}"])
