"""The symbolic algorithms: one function on true sums, others where the sequence or a variable is tampered with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import UserError
from models.tasks import AdditionFormat, CharacterLanguage, MultiOperandAddition, Multiplication, Parity, formatted
from models.tasks.columns.addition_algorithms import (
    ALGORITHMS,
    CHAINED,
    CHAINED_FROM_ABOVE,
    LOOK_AHEAD,
    RIPPLE,
    Algorithm,
    chained,
    resolve_algorithm,
)
from models.tasks.columns.column_places import column_places
from models.tasks.counter_rng import row_keys
from models.tasks.named.addition import (
    DelimitedAddition,
    PaddedAddition,
    TenDigitAddition,
    TwoDigitAddition,
    UnendedAddition,
)

EVERY = [*ALGORITHMS.values(), *(chained(t) for t in (1, 6, 9))]
TASKS = [TenDigitAddition(), PaddedAddition(), UnendedAddition(), DelimitedAddition(), TwoDigitAddition()]
NUMBERS = st.integers(0, 10**10 - 1)


def by_hand(a: int, b: int) -> dict[str, torch.Tensor]:
    """Inputs of one sum of four columns, with the true outputs before each query."""
    digits = lambda x: torch.tensor([[x // 10**k % 10 for k in range(4)]])  # noqa: E731
    return {"a": digits(a), "b": digits(b), "previous": digits(10 * (a + b))}


@pytest.mark.parametrize("algorithm", EVERY, ids=lambda x: x.name)
def test_every_algorithm_adds_all_pairs_of_two_digits(algorithm: Algorithm):
    task, problems = TwoDigitAddition(), TwoDigitAddition().domain.every()
    layout = column_places(task)
    assert torch.equal(algorithm.answer(layout.inputs(task.encode(problems))), task.targets(problems))


@pytest.mark.parametrize("task", TASKS[:-1], ids=lambda task: task.name)
@settings(max_examples=5)
@given(pairs=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20))
def test_every_algorithm_adds_ten_digits_in_every_format(task, pairs):
    layout = column_places(task)
    inputs = layout.inputs(task.encode(pairs))
    digits = torch.tensor([[(a + b) // 10**k % 10 for k in range(11)] for a, b in pairs])
    for algorithm in EVERY:
        assert torch.equal(algorithm.answer(inputs), digits), algorithm.name


@pytest.mark.parametrize("nines", range(9))
def test_every_algorithm_carries_past_any_number_of_nines(nines):
    task = TenDigitAddition()
    inputs = column_places(task).inputs(task.encode([(10**nines - 1, 1)]))
    for algorithm in EVERY:
        assert algorithm.answer(inputs)[0].tolist() == [int(k == nines) for k in range(11)]


@pytest.mark.parametrize("form", [AdditionFormat(), AdditionFormat(reversed_query=True)], ids=["plain", "reversed"])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_every_step_of_many_operands_is_an_addition(form, step):
    task = MultiOperandAddition(3, 2, form)
    problems = task.sample(300, torch.Generator().manual_seed(step))
    layout = column_places(task, step)
    right = task.targets(problems)[:, list(layout.targets)]
    for algorithm in EVERY:
        assert torch.equal(algorithm.answer(layout.inputs(task.encode(problems))), right), algorithm.name


def test_a_carry_that_is_set_goes_on_in_ripple_alone():
    """199 + 0: a carry into the units makes 200 if carries ripple on, and 190 if every column looks for itself."""
    inputs, setting = by_hand(199, 0), {("carry_in", 0): 1}
    assert RIPPLE.answer(inputs, setting)[0].tolist() == [0, 0, 2, 0]
    assert LOOK_AHEAD.answer(inputs, setting)[0].tolist() == [0, 9, 1, 0]
    assert CHAINED.answer(inputs, setting)[0].tolist() == [0, 9, 1, 0]


def test_generating_in_one_column_reaches_all_that_propagate():
    inputs = by_hand(199, 0)
    found = LOOK_AHEAD.run(inputs, {("generate", 0): 1, ("propagate", 0): 0})
    assert found["carry_in"][0].tolist() == [0, 1, 1, 0]
    assert found["answer"][0].tolist() == [9, 0, 2, 0]


def test_only_the_chained_algorithm_reads_the_output_before():
    inputs = by_hand(55, 44)  # 99: every column propagates
    lied = inputs | {"previous": torch.tensor([[0, 0, 9, 0]])}  # the units are said to be 0, as if one came in
    for algorithm in (RIPPLE, LOOK_AHEAD):
        assert not algorithm.reads_outputs
        assert torch.equal(algorithm.answer(lied), algorithm.answer(inputs))
    assert CHAINED.reads_outputs
    assert CHAINED.run(lied)["carry_in"][0].tolist() == [0, 1, 0, 0]
    assert CHAINED.answer(lied)[0].tolist() == [9, 0, 0, 0]


@given(x=st.integers(0, 18), before=st.integers(0, 18), z=st.integers(0, 9))
def test_the_chained_digit_is_that_of_the_nearest_total_a_column_can_have(x, before, z):
    """``c = (10 (x + y) + x' + y' - z') / 10``, rounded to a whole number in 0..19."""
    digits = lambda total: (min(total, 9), total - min(total, 9))  # noqa: E731
    a, b = zip(digits(before), digits(x), strict=True)
    inputs = {"a": torch.tensor([a]), "b": torch.tensor([b]), "previous": torch.tensor([[0, z]])}
    exact = (10 * x + before - z) / 10
    nearest = min(range(20), key=lambda total: abs(exact + 0.05 - total))  # -1 .. 0 and 9 .. 10 are what occurs
    assert int(CHAINED.answer(inputs)[0, 1]) == nearest % 10


def test_thresholds_are_other_roundings():
    inputs = {"a": torch.tensor([[9, 2]]), "b": torch.tensor([[9, 2]]), "previous": torch.tensor([[0, 0]])}
    assert int(CHAINED.run(inputs)["carry_in"][0, 1]) == 2  # the difference is 18
    at_five = {"a": torch.tensor([[5, 0]]), "b": torch.tensor([[0, 0]]), "previous": torch.tensor([[0, 0]])}
    assert [int(chained(t).run(at_five)["carry_in"][0, 1]) for t in (5, 6)] == [1, 0]


@given(data=st.data(), algorithm=st.sampled_from(list(ALGORITHMS.values())))
def test_setting_a_variable_to_its_own_value_changes_nothing(data, algorithm):
    task = TenDigitAddition()
    inputs = column_places(task).inputs(task.encode([(data.draw(NUMBERS), data.draw(NUMBERS))]))
    plain = algorithm.run(inputs)
    name, column = data.draw(st.sampled_from(algorithm.variables)), data.draw(st.integers(0, 10))
    again = algorithm.run(inputs, {(name, column): plain[name][:, column]})
    assert all(torch.equal(plain[key], again[key]) for key in plain)


def test_the_layout_says_where_digits_and_queries_stand():
    layout = column_places(PaddedAddition())
    assert layout.operands[0] == (9, 20) and layout.operands[10] == () and layout.queries[:2] == (21, 22)
    two = column_places(TwoDigitAddition())
    assert two.operands == ((1, 3), (0, 2), ()) and two.queries == (3, 4, 5)


@pytest.mark.parametrize(
    "task",
    [
        Parity(),
        Multiplication(),
        CharacterLanguage(),
        MultiOperandAddition(3, 2, AdditionFormat(scratchpad=False)),
    ],
    ids=lambda task: task.name,
)
def test_tasks_that_do_not_add_two_numbers_in_a_step_are_refused(task):
    with pytest.raises(UserError):
        column_places(task)


@pytest.mark.parametrize(
    "task",
    [
        formatted("{a:4}+{b:4}={s:5}", "a + b"),
        formatted("{a:4r}+{b:4r}={s:5}", "a + b"),
        formatted("{a:3}-{b:3}={s:3}", "a - b", where="a >= b"),
        formatted("{a:5}+{b:5}={s:6}", "a + b", base=2),
        MultiOperandAddition(3, 2, AdditionFormat(reversed_response=False)),
    ],
    ids=lambda task: task.name,
)
def test_answers_that_start_with_the_highest_digit_have_a_layout_and_algorithms_of_their_own(task):
    layout = column_places(task)
    assert layout.highest_first and list(layout.queries) == sorted(layout.queries, reverse=True)
    assert layout.algorithms == (RIPPLE, LOOK_AHEAD, CHAINED_FROM_ABOVE)
    problems = task.sample(200, torch.Generator().manual_seed(0))
    tokens, right = task.encode(problems), task.targets(problems)[:, list(layout.targets)]
    for algorithm in layout.algorithms:
        assert torch.equal(layout.answer_tokens(layout.answer(algorithm, tokens)), right)
    with pytest.raises(UserError, match="reads the output of the column below, which .* writes later"):
        layout.answer(CHAINED, tokens)
    top = len(layout) - 1
    assert layout.places(top)["previous output"] == [] and layout.places(0)["previous output"] == [layout.queries[0]]
    with pytest.raises(UserError, match="reads the output of the column above"):
        column_places(TenDigitAddition()).values(CHAINED_FROM_ABOVE, [(1, 2)])


def test_from_above_a_carry_is_read_where_it_is_passed_on_and_nowhere_else():
    """555 + 444 = 0999 passes a carry on everywhere, and 111 + 222 = 0333 nowhere: the hundreds are said to be one
    more, as if there had been a carry into them."""
    task = formatted("{a:3}+{b:3}={s:4}", "a + b")
    layout = column_places(task)
    for problem, tens in (((555, 444), 0), ((111, 222), 3)):
        tokens = task.encode([problem])
        at = layout.queries[1]  # where the hundreds stand
        lied = tokens.index_put((torch.tensor([0]), torch.tensor([at])), (tokens[:, at] + 1) % 10)
        assert layout.answer(CHAINED_FROM_ABOVE, lied)[0, 1] == tens
        assert torch.equal(layout.answer(LOOK_AHEAD, lied), layout.answer(LOOK_AHEAD, tokens))


def test_bad_input_is_named():
    inputs = by_hand(12, 34)
    with pytest.raises(UserError, match="Did you mean 'carry_in'"):
        RIPPLE.run(inputs, {("carry-in", 0): 1})
    with pytest.raises(UserError, match="There is no column 4"):
        RIPPLE.run(inputs, {("carry_in", 4): 1})
    with pytest.raises(UserError, match="as many values"):
        RIPPLE.run(inputs, {("carry_in", 1): torch.tensor([1, 0])})
    with pytest.raises(UserError, match="whole numbers, not to values of torch.float32"):
        RIPPLE.run(inputs, {("carry_in", 1): torch.tensor(0.7)})
    with pytest.raises(UserError, match=r"32 positions or more, not \[2, 5\]"):
        column_places(TenDigitAddition()).inputs(torch.zeros(2, 5, dtype=torch.int64))
    with pytest.raises(UserError, match="previous is missing"):
        CHAINED.run({"a": inputs["a"], "b": inputs["b"]})
    with pytest.raises(UserError, match="Did you mean 'look-ahead'"):
        resolve_algorithm("lookahead")
    with pytest.raises(UserError):
        chained(0)
    with pytest.raises(UserError):
        chained(10).run(inputs)
    with pytest.raises(UserError, match="There is no step 4"):
        column_places(MultiOperandAddition(3, 2), 4)
    with pytest.raises(UserError, match="adds in one step"):
        column_places(TwoDigitAddition(), 1)
    task = DelimitedAddition()
    tokens = task.encode([(1, 2)])
    with pytest.raises(UserError, match="other than a digit where the algorithm reads 'previous'"):
        column_places(task).inputs(tokens.index_put((torch.tensor(0), torch.tensor(25)), torch.tensor(10)))


KEYS = row_keys(0, 0, 300, torch.device("cpu"))


@pytest.mark.parametrize("base, width", [(10, 6), (2, 5), (7, 3)])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_algorithm_subtracts_and_its_carries_are_borrows_that_are_not_needed(name: str, base: int, width: int):
    format = f"{{a:{width}r}}-{{b:{width}r}}={{s:{width}r}}"
    task = formatted(format, "a - b", base=base, where="a >= b", variables="subtraction")
    layout = column_places(task)
    problems = torch.cat(
        (task.sample(300, torch.Generator().manual_seed(0)), task.held_out.training(KEYS, long_carries=1.0))
    )
    found = layout.values(ALGORITHMS[name], problems)
    assert layout.subtracts and torch.equal(found["answer"], task.targets(problems))
    borrows = task.variables(problems)
    assert torch.equal(1 - found["carry_in"], borrows["borrow_in"])
    assert torch.equal(found["digit_sum"] - (base - 1), borrows["digit_difference"])


def test_a_borrow_that_is_set_goes_on_in_ripple_only():
    task = formatted("{a:3r}-{b:3r}={s:3r}", "a - b", where="a >= b")
    layout, problem = column_places(task), [(500, 0)]
    needed = {("carry_in", 1): 0}  # a borrow from the tens that nobody needs: 500 - 10 in ripple
    answers = {name: layout.values(ALGORITHMS[name], problem, needed)["answer"].tolist() for name in ALGORITHMS}
    assert answers == {"ripple": [[0, 9, 4]], "look-ahead": [[0, 9, 5]], "chained": [[0, 9, 5]]}


def test_a_signed_difference_has_no_column_algorithm():
    with pytest.raises(UserError):
        column_places(formatted("{a:3r}-{b:3r}={s:+3r}", "a - b"))
