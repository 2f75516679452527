"""Pairs of problems: what each kind promises, recomputed with Python's own integers."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

import models
from models.errors import UserError
from models.tasks import (
    MultiOperandAddition,
    Multiplication,
    Parity,
    ProblemPairs,
    Task,
    TenDigitAddition,
    TwoDigitAddition,
    carry_pairs,
    chain_pairs,
    digit_pairs,
    formatted,
    pairs,
    problem_pairs,
    same_carry_pairs,
    variable_pairs,
)
from models.tasks.named.addition import PaddedAddition
from studies.adderboard.framed_addition import Frame, framed_addition
from tests.other_tasks import column_addition
from tests.sampling import sampled

TEN, PADDED, TWO = TenDigitAddition(), PaddedAddition(), TwoDigitAddition()
ADDITIONS: dict[str, tuple[Task, int]] = {"ten": (TEN, 10), "padded": (PADDED, 10), "two": (TWO, 2)}
SEEDS = st.integers(0, 2**31 - 1)
FEW = settings(max_examples=8)


@pytest.mark.parametrize("name", ADDITIONS)
def test_pairs_are_printed_in_one_line(name: str):
    shown = repr(problem_pairs(ADDITIONS[name][0], "made carry", column=1, n=300))
    assert "300 pairs" in shown and len(shown) < 250 and "\n" not in shown


class Sum:
    """One addition, in Python integers: digits, carries and how far each has travelled, column by column."""

    def __init__(self, a: int, b: int, width: int):
        digit = lambda number, k: number // 10**k % 10  # noqa: E731
        self.a = [digit(a, k) for k in range(width + 1)]
        self.b = [digit(b, k) for k in range(width + 1)]
        self.s = [digit(a + b, k) for k in range(width + 1)]
        self.sum = [x + y for x, y in zip(self.a, self.b, strict=True)]
        self.carry = [int(a % 10**k + b % 10**k >= 10**k) for k in range(width + 2)]  # into column k
        self.chain = [self._travelled(k) for k in range(width + 1)]

    def _travelled(self, column: int) -> int:
        if not self.carry[column]:
            return 0
        start = column - 1
        while self.sum[start] == 9:
            start -= 1
        return column - start


def sums(pairs: ProblemPairs, width: int) -> list[tuple[Sum, Sum]]:
    problems = zip(pairs.clean.tolist(), pairs.corrupted.tolist(), strict=True)
    return [(Sum(one[0], one[1], width), Sum(other[0], other[1], width)) for one, other in problems]


def assert_distinct(pairs: ProblemPairs) -> None:
    """No pair of two equal problems, and none twice, in either order."""
    task = pairs.task
    both = list(zip(task.numbers(pairs.clean), task.numbers(pairs.corrupted), strict=True))
    assert all(one != other for one, other in both)
    assert len({frozenset(pair) for pair in both}) == len(both)


def assert_recorded(pairs: ProblemPairs, width: int) -> None:
    """``changed`` and the tokens of sums."""
    for i, (one, other) in enumerate(sums(pairs, width)):
        for name, key in (("a", "a"), ("b", "b"), ("s", "s"), ("digit_sum", "sum"), ("chain", "chain")):
            expected = [x != y for x, y in zip(getattr(one, key), getattr(other, key), strict=True)]
            assert pairs.changed[name][i].tolist() == expected, name
        carries = [x != y for x, y in zip(one.carry, other.carry, strict=True)]
        assert pairs.changed["carry_in"][i].tolist() == carries[:-1]
        assert pairs.changed["carry_out"][i].tolist() == carries[1:]
    differs = pairs.clean_tokens != pairs.corrupted_tokens
    for i, role in enumerate(pairs.task.roles[: pairs.task.input_length]):
        if role.kind == "answer":
            assert torch.equal(differs[:, i], pairs.changed["s"][:, role.column])


# ---- the carry into a column


@FEW
@given(
    name=st.sampled_from(sorted(ADDITIONS)),
    column=st.integers(1, 10),
    seed=SEEDS,
    way=st.sampled_from(["made", "passed", None]),
    flipped=st.booleans(),
)
def test_carry_pairs_differ_in_the_carry_into_their_column_and_in_no_digit_from_there_up(
    name: str, column: int, seed: int, way: str | None, flipped: bool
):
    task, width = ADDITIONS[name]
    assume(column <= width and not (way == "passed" and column == 1))
    pairs = (carry_pairs if flipped else same_carry_pairs)(task, column, 24, seed, way)
    assert len(pairs) == 24 and pairs.target == column
    assert_distinct(pairs)
    assert_recorded(pairs, width)
    ways = set()
    for one, other in sums(pairs, width):
        assert one.a[column:] == other.a[column:] and one.b[column:] == other.b[column:]
        assert (one.carry[column] != other.carry[column]) == flipped == (one.s[column] != other.s[column])
        below = column - 1
        passed = one.sum[below] == other.sum[below] == 9 and (one.a[below], one.b[below]) == (
            other.a[below],
            other.b[below],
        )
        ways.add(not passed)
        if passed:
            assert (one.s[below] != other.s[below]) == flipped and one.s[below] in (0, 9)
        else:
            assert one.a[:below] == other.a[:below] and one.b[:below] == other.b[:below]
            assert one.s[:column] == other.s[:column]
            assert abs(one.sum[below] - other.sum[below]) == 10 * flipped
        if not flipped:
            assert one.carry[column:] == other.carry[column:] and one.s[column:] == other.s[column:]
    assert ways == ({way == "made"} if way is not None else {True} if column == 1 else {True, False})


@pytest.mark.parametrize("way", ["made", "passed", None])
@pytest.mark.parametrize("name", ADDITIONS)
def test_the_clean_problem_has_the_carry_always(name: str, way: str | None):
    task, column = ADDITIONS[name][0], 2 if way == "passed" else 1
    pairs, mixed = (carry_pairs(task, column, 24, 0, way, side=side) for side in ("clean", "mixed"))
    carry = [task.variables(side)["carry_in"][:, column] for side in (pairs.clean, pairs.corrupted)]
    assert (carry[0] == 1).all() and (carry[1] == 0).all() and pairs.check() is pairs
    own, either = (
        {frozenset(both) for both in zip(task.numbers(x.clean), task.numbers(x.corrupted), strict=True)}
        for x in (pairs, mixed)
    )
    assert own == either


def test_the_difference_of_means_is_the_carry_s_direction():
    """The mean difference is about as long as the differences; with mixed sides they cancel."""
    model = models.load("microadder-57")
    effects = {}
    for side in ("clean", "mixed"):
        pairs = problem_pairs(model.task, "made carry", column=4, n=256, side=side)
        name, query = "blocks.0.hook_resid_mid", pairs.task.query_positions[pairs.target]
        clean, other = (
            model.run_with_cache(tokens)[1][name][:, query] for tokens in (pairs.clean_tokens, pairs.corrupted_tokens)
        )
        effects[side] = float((clean - other).mean(0).norm() / (clean - other).norm(dim=-1).mean())
    assert effects["mixed"] < 0.2 < 0.9 < effects["clean"]


@pytest.mark.parametrize("kind", ["borrow", "made borrow", "passed borrow", "same borrow"])
def test_a_sum_has_no_borrows(kind: str):
    with pytest.raises(UserError):
        problem_pairs(TEN, kind, column=4, n=8)
    assert len(problem_pairs(TEN, kind.replace("borrow", "carry"), column=4, n=8)) == 8
    with pytest.raises(UserError):
        problem_pairs(TEN, "carry", column=4, n=8, side="corrupted")


def test_of_mixed_sides_either_problem_is_equally_likely_to_have_the_carry():
    for way in ("made", "passed"):
        pairs = carry_pairs(TEN, 5, 2000, 0, way, side="mixed")
        with_carry = int(TEN.variables(pairs.clean)["carry_in"][:, 5].sum())
        assert binomtest(with_carry, 2000).pvalue > 1e-3


def test_draws_are_uniform_over_the_pairs_of_a_kind():
    """For the carry made in the units: (s + 1)(9 - s) pairs of columns with the sums s and s + 10."""
    pairs = carry_pairs(TEN, 1, 4000, 0, "made")
    low = torch.minimum(*(TEN.variables(x)["digit_sum"][:, 0] for x in (pairs.clean, pairs.corrupted)))
    expected = torch.tensor([(s + 1) * (9 - s) for s in range(9)], dtype=torch.float64)
    assert chisquare(torch.bincount(low, minlength=9), 4000 * expected / expected.sum()).pvalue > 1e-3


# ---- every order and base


def all_by_going_through(base: int, digits: int, column: int) -> dict[str, set[frozenset[tuple[int, int]]]]:
    """All pairs of each kind, by their definitions, among all pairs of problems."""
    problems = list(product(range(base**digits), repeat=2))
    a, b = torch.tensor(problems).T
    rows, others = torch.triu_indices(len(a), len(a), 1)
    powers = base ** torch.arange(digits + 1)
    x, y = (number[:, None] // powers % base for number in (a, b))
    total = x + y
    carry = a[:, None] % powers + b[:, None] % powers >= powers  # into each column
    same = (x[rows] == x[others]) & (y[rows] == y[others])  # both digits of a column
    equal = lambda part: same[:, part].all(1)  # noqa: E731
    below = column - 1
    flipped = carry[rows, column] != carry[others, column]
    apart = total[rows, below] - total[others, below]
    above, lower = equal(slice(column, None)), equal(slice(below))
    nine = same[:, below] & (total[rows, below] == base - 1)
    one_digit = ((x[rows] != x[others]).sum(1) + (y[rows] != y[others]).sum(1)) == 1
    found = {
        "made carry": above & lower & flipped & (apart.abs() == base),
        "passed carry": above & nine & flipped,
        "same carry": above & ~flipped & ((lower & ~same[:, below] & (apart == 0))
                                         | (nine & (carry[rows, below] == carry[others, below]))),
        "digit": one_digit & ~same[:, column] & (carry[rows] == carry[others]).all(1),
    }  # fmt: skip
    pair = lambda i, j: frozenset((problems[i], problems[j]))  # noqa: E731
    return {kind: set(map(pair, rows[mask].tolist(), others[mask].tolist())) for kind, mask in found.items()}


def as_set(pairs: ProblemPairs) -> set[frozenset[tuple[int, ...]]]:
    numbers = pairs.task.numbers
    return {frozenset(pair) for pair in zip(numbers(pairs.clean), numbers(pairs.corrupted), strict=True)}


@pytest.mark.parametrize(
    ("base", "digits", "answer_down"),
    sampled([(b, n, down) for b, n in ((2, 3), (3, 2), (4, 2)) for down in (False, True)], (3, 2, False)),
)
def test_pairs_are_drawn_evenly_from_all_of_their_kind_in_every_order_and_base(
    base: int, digits: int, answer_down: bool
):
    task = column_addition(base, digits, answer_down, operands_down=base != 3)
    for column in range(1, digits + 1):
        for kind, expected in all_by_going_through(base, digits, column).items():
            if (kind == "passed carry" and column < 2) or (kind == "digit" and column == digits):
                continue
            if not expected:
                with pytest.raises(UserError, match="No pair differs"):
                    problem_pairs(task, kind, column=column, n=None)
                continue
            every = problem_pairs(task, kind, column=column, n=None)
            assert task.target_roles[every.target].column == column
            assert as_set(every) == expected, (kind, column)
            if kind in ("made carry", "passed carry") and column == digits - 1 and len(expected) >= 8:
                share, seeds = len(expected) // 4, 20
                drawn = [as_set(problem_pairs(task, kind, column=column, n=share, seed=k)) for k in range(seeds)]
                counts = [sum(pair in some for some in drawn) for pair in expected]
                # draws without replacement vary by a factor 1 - share less than independent ones
                spread = sum((count - seeds * share / len(expected)) ** 2 for count in counts)
                independent = seeds * share / len(expected) * (1 - share / len(expected)) * len(expected)
                assert 0.3 < spread / independent < 2.5


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("kind", ["made carry", "passed carry"])
def test_a_carry_s_own_column_is_as_often_nine_as_any_other(kind: str, down: bool):
    """In the tasks that write the highest digit first too, whose query does not read the previous column."""
    frame = Frame(between=(10,), after=(11,), operands_down=True, answer_down=down, vocabulary="0123456789+=")
    task = framed_addition(frame)
    pairs = problem_pairs(task, kind, column=4, n=2000)
    own = task.variables(pairs.clean)["digit_sum"][:, 4]
    expected = torch.tensor([10 - abs(9 - s) for s in range(19)], dtype=torch.float64)
    assert chisquare(torch.bincount(own, minlength=19), 2000 * expected / expected.sum()).pvalue > 1e-3
    top = problem_pairs(task, kind, column=10, n=64)
    assert (top.clean_targets[:, top.target] != top.corrupted_targets[:, top.target]).all()


# ---- a digit, a chain


@FEW
@given(name=st.sampled_from(sorted(ADDITIONS)), column=st.integers(0, 9), seed=SEEDS)
def test_digit_pairs_differ_in_one_operand_digit_and_in_no_carry(name: str, column: int, seed: int):
    task, width = ADDITIONS[name]
    assume(column < width)
    pairs = digit_pairs(task, column, 24, seed)
    assert_distinct(pairs)
    assert_recorded(pairs, width)
    for one, other in sums(pairs, width):
        differing = [
            (i, k) for i, x in enumerate("ab") for k in range(width) if getattr(one, x)[k] != getattr(other, x)[k]
        ]
        assert len(differing) == 1 and differing[0][1] == column
        assert one.carry == other.carry
        assert [k for k in range(width + 1) if one.s[k] != other.s[k]] == [column] == [pairs.target]


@FEW
@given(name=st.sampled_from(sorted(ADDITIONS)), column=st.integers(1, 10), seed=SEEDS, data=st.data())
def test_chain_pairs_differ_in_one_column_and_in_how_far_the_carry_has_travelled(
    name: str, column: int, seed: int, data: Any
):
    task, width = ADDITIONS[name]
    assume(column <= width)
    lengths = data.draw(st.lists(st.integers(0, column), min_size=2, max_size=2, unique=True).map(tuple))
    pairs = chain_pairs(task, column, 16, seed, lengths)
    assert_distinct(pairs)
    assert_recorded(pairs, width)
    short, long = min(lengths), max(lengths)
    query = task.query_positions[pairs.target]
    own = pairs.clean_tokens[:, query] != pairs.corrupted_tokens[:, query]
    assert own.tolist() == [short == 1 or (short == 0 and long > 1)] * 16
    changed = column - (short or long)
    for one, other in sums(pairs, width):
        assert (one.chain[column], other.chain[column]) == lengths
        columns = {k for k in range(width) if (one.a[k], one.b[k]) != (other.a[k], other.b[k])}
        assert columns == {changed}
        for k in range(column - long + 1, column):
            assert k == changed or one.sum[k] == other.sum[k] == 9
        if short:
            assert one.carry == other.carry and one.s[column] == other.s[column]
        else:
            assert one.carry[column] != other.carry[column] and one.s[column] != other.s[column]


# ---- any variable of any task


@FEW
@given(name=st.sampled_from(sorted(ADDITIONS)), column=st.integers(1, 10), seed=SEEDS)
def test_variable_pairs_of_sums_keep_what_is_named(name: str, column: int, seed: int):
    task, width = ADDITIONS[name]
    assume(column <= width)
    keep = [f"a[{column}:]", f"b[{column}:]", f"carry_in[:{column}]"]
    pairs = variable_pairs(task, "carry_in", column, 8, seed, keep)
    assert_distinct(pairs)
    assert_recorded(pairs, width)
    for one, other in sums(pairs, width):
        assert one.carry[column] != other.carry[column] and one.carry[:column] == other.carry[:column]
        assert one.a[column:] == other.a[column:] and one.b[column:] == other.b[column:]
        digits = zip(one.a + one.b, other.a + other.b, strict=True)
        assert sum(x != y for x, y in digits) == 1  # by one digit


@FEW
@given(bits=st.integers(3, 24), seed=SEEDS, data=st.data())
def test_variable_pairs_of_parity(bits: int, seed: int, data: Any):
    column = data.draw(st.integers(1, bits - 1))
    pairs = variable_pairs(Parity(bits), "before", column, 2, seed, keep=["bit[" + f"{column}:]"])
    assert_distinct(pairs)
    assert pairs.target == column and (pairs.clean_tokens != pairs.corrupted_tokens).any(1).all()
    for one, other in zip(pairs.task.numbers(pairs.clean), pairs.task.numbers(pairs.corrupted), strict=True):
        assert sum(one[:column]) % 2 != sum(other[:column]) % 2 and one[column:] == other[column:]
        assert sum(x != y for x, y in zip(one, other, strict=True)) == 1
    recorded = pairs.changed["parity"].tolist()
    for row, one, other in zip(
        recorded, pairs.task.numbers(pairs.clean), pairs.task.numbers(pairs.corrupted), strict=True
    ):
        assert row == [(sum(one[: k + 1]) + sum(other[: k + 1])) % 2 == 1 for k in range(bits)]


@FEW
@given(operands=st.integers(2, 5), digits=st.integers(1, 6), seed=SEEDS, data=st.data())
def test_variable_pairs_of_sums_of_several_numbers(operands: int, digits: int, seed: int, data: Any):
    task = MultiOperandAddition(operands, digits)
    step, column = data.draw(st.integers(1, operands - 1)), data.draw(st.integers(1, digits))
    pairs = variable_pairs(task, "carry_in", (step, column), 6, seed, keep=[f"a[{step}]"])
    assert_distinct(pairs)
    role = task.target_roles[pairs.target]
    assert (role.index, role.column) == (step + 1, column)
    power = 10**column
    for one, other in zip(task.numbers(pairs.clean), task.numbers(pairs.corrupted), strict=True):
        carries = [sum(x[:step]) % power + x[step] % power >= power for x in (one, other)]
        assert carries[0] != carries[1] and one[step] == other[step]
        assert all(len(str(number)) == digits for number in one + other) or digits == 1
        answers = [sum(x[: step + 1]) // power % 10 for x in (one, other)]
        assert answers[0] != answers[1]


@FEW
@given(first=st.integers(1, 4), second=st.integers(1, 4), seed=SEEDS, data=st.data())
def test_variable_pairs_of_products(first: int, second: int, seed: int, data: Any):
    task = Multiplication(first, second)
    step, column = data.draw(st.integers(0, second - 1)), data.draw(st.integers(0, first - 1))
    pairs = variable_pairs(task, "product", (step, column), 6, seed)
    assert_distinct(pairs)
    role = task.target_roles[pairs.target]
    assert (role.label, role.column) == (f"p{step + 1}[{column}]", column)
    for one, other in zip(task.numbers(pairs.clean), task.numbers(pairs.corrupted), strict=True):
        digits = [a * (b // 10**step % 10) // 10**column % 10 for a, b in (one, other)]
        assert digits[0] != digits[1]
    total = step + column
    pairs = variable_pairs(task, "running_sum", (step, total), 6, seed, answer="different")
    for one, other in zip(task.numbers(pairs.clean), task.numbers(pairs.corrupted), strict=True):
        digits = [a * (b % 10 ** (step + 1)) // 10**total % 10 for a, b in (one, other)]
        assert digits[0] != digits[1]
    if step:
        assert task.target_roles[pairs.target].label == f"c{step + 1}[{total}]"


@pytest.mark.parametrize("rule", ["equal", "different"])
def test_the_answer_can_be_asked_for(rule: str):
    target = 0 if rule == "equal" else 4  # the units do not hang on the digits of another column
    for task, variable, column in ((TEN, "digit_sum", 4), (PADDED, "carry_in", 4)):
        pairs = variable_pairs(task, variable, column, 12, 0, answer=rule, keep=["a[0]", "b[0]"], target=target)
        answers = pairs.clean_targets[:, pairs.target] == pairs.corrupted_targets[:, pairs.target]
        assert answers.tolist() == [rule == "equal"] * 12


# ---- all there are


def two_digit_set(pairs: ProblemPairs) -> set[frozenset[tuple[int, ...]]]:
    return {frozenset(p) for p in zip(TWO.numbers(pairs.clean), TWO.numbers(pairs.corrupted), strict=True)}


@pytest.mark.slow
def test_all_pairs_of_two_digit_sums_are_those_that_going_through_them_finds():
    everything = list(product(range(100), repeat=2))
    units = list(product(range(10), repeat=2))
    made, passed, digit = set(), set(), set()
    for (x, y), (z, w) in product(units, repeat=2):
        if x + y < 10 <= z + w:  # no carry, and one
            for a, b in product(range(0, 100, 10), repeat=2):
                pair = frozenset(((a + x, b + y), (a + z, b + w)))
                if x + y + 10 == z + w:
                    made.add(pair)
                if a + b == 90:
                    passed.add(pair)
    for a, b in everything:
        for tens in range(10):
            other = 10 * tens + a % 10
            if other != a and (other + b >= 100) == (a + b >= 100):
                digit.add(frozenset(((a, b), (other, b))))
    for found, expected in (
        (carry_pairs(TWO, 1, None, 0, "made"), made),
        (carry_pairs(TWO, 2, None, 0, "passed"), passed),
        (digit_pairs(TWO, 1, None, 0), digit | {frozenset((y, x) for x, y in pair) for pair in digit}),
        (variable_pairs(TWO, "a", 1, None, 3, keep=["carry_in"]), digit),
    ):
        assert found.exhaustive
        assert_distinct(found)
        assert two_digit_set(found) == expected
    both = carry_pairs(TWO, 2, None)
    assert both.exhaustive and two_digit_set(both) >= passed
    assert len(both) == len(passed) + 100 * sum((s + 1) * (9 - s) for s in range(9))


def test_as_many_as_there_are_can_be_had_and_not_one_more():
    every = chain_pairs(TWO, 2, None, lengths=(1, 2))  # tens that carry or are nine, units that carry
    n = 45 * sum(x + y >= 10 for x, y in product(range(10), repeat=2)) * 10
    assert len(every) == n and every.exhaustive
    again = chain_pairs(TWO, 2, n, lengths=(1, 2))
    assert again.exhaustive and two_digit_set(again) == two_digit_set(every)
    fewer = chain_pairs(TWO, 2, n - 1, lengths=(1, 2))
    assert not fewer.exhaustive and two_digit_set(fewer) < two_digit_set(every)
    with pytest.raises(UserError, match=f"Only {n:,} pairs differ in the length.*; {n + 1:,} are asked for"):
        chain_pairs(TWO, 2, n + 1, lengths=(1, 2))
    assert len(variable_pairs(Parity(3), "bit", 1, None, answer=None)) == 4
    with pytest.raises(UserError, match="too many"):
        carry_pairs(TEN, 3, None)


# ---- pairs that are typed


def test_pairs_of_bits_are_named_as_they_are_written():
    assert pairs(Parity(4), ["0101"], ["0100"]).what == "the problem (0101 or 0100)"


@pytest.mark.parametrize("task", ["add", None, 3])
def test_typed_pairs_need_a_task(task):
    with pytest.raises(UserError):
        pairs(task, [(1, 1)], [(1, 2)])


# ---- subtraction: a borrow for a carry

SUBTRACTION = formatted("{a:2r}-{b:2r}={s:2r}", "a - b", base=5, where="a >= b", variables="subtraction")


def _unordered(one: Any, other: Any) -> set[frozenset[tuple[int, ...]]]:
    return {frozenset((tuple(x), tuple(y))) for x, y in zip(one, other, strict=True)}


@pytest.mark.parametrize("kind", ["made borrow", "same borrow", "digit"])
def test_all_pairs_of_differences_are_those_that_going_through_them_finds(kind: str):
    """With the units' digits d = a - b: a borrow is made in one of two problems where d differs by the base; controls
    have equal d and other digits. Both have equal higher digits."""
    column = 0 if kind == "digit" else 1
    found = problem_pairs(SUBTRACTION, kind, column=column, n=None)
    units = lambda x: (x[0] % 5, x[1] % 5)  # noqa: E731
    borrows = lambda x: x[0] % 5 < x[1] % 5  # noqa: E731
    high = lambda x: (x[0] // 5, x[1] // 5)  # noqa: E731
    rules = {
        "made borrow": lambda x, y: abs((x[0] - x[1]) % 5 - (y[0] - y[1]) % 5) == 0 and borrows(x) != borrows(y),
        "same borrow": lambda x, y: units(x)[0] - units(x)[1] == units(y)[0] - units(y)[1] and units(x) != units(y),
        "digit": lambda x, y: (
            sum(i != j for i, j in zip(units(x), units(y), strict=True)) == 1 and borrows(x) == borrows(y)
        ),
    }
    problems = [x for x in product(range(25), repeat=2) if x[0] >= x[1]]
    right = {
        frozenset((x, y)) for x in problems for y in problems if x != y and high(x) == high(y) and rules[kind](x, y)
    }
    assert found.exhaustive and _unordered(found.clean.tolist(), found.corrupted.tolist()) == right


@pytest.mark.parametrize("where, width", [("a >= b", 4), (None, 3)])
@pytest.mark.parametrize("kind", ["borrow", "made borrow", "passed borrow", "same borrow"])
def test_pairs_of_differences_keep_what_their_kind_promises(kind: str, where: str | None, width: int):
    sign = "" if where else "+"
    task = formatted(f"{{a:{width}}}-{{b:{width}}}={{s:{sign}{width}}}", "a - b", where=where, variables="subtraction")
    found = problem_pairs(task, kind, column=2, n=40)
    one, other = (task.variables(x) for x in (found.clean, found.corrupted))
    differs = one["borrow_in"][:, 2] != other["borrow_in"][:, 2]
    assert bool(differs.all()) if kind != "same borrow" else not bool(differs.any())
    assert torch.equal(one["a"][:, 2:], other["a"][:, 2:]) and torch.equal(one["b"][:, 2:], other["b"][:, 2:])
    if kind == "passed borrow":
        assert bool((one["digit_difference"][:, 1] == 0).all())


@pytest.mark.parametrize("lengths", [(0, 1), (0, 2), (2, 1)])
def test_chains_of_borrows_are_as_long_as_asked(lengths: tuple[int, int]):
    task = formatted("{a:4r}-{b:4r}={s:4r}", "a - b", where="a >= b", variables="subtraction")
    found = problem_pairs(task, "chain", column=2, n=20, lengths=lengths)
    for problems, length in zip((found.clean, found.corrupted), lengths, strict=True):
        assert set(task.variables(problems)["chain"][:, 2].tolist()) == {length}


@given(st.permutations(range(4)), st.integers(0, 3))
def test_pairs_are_about_a_target_that_depends_on_the_variable(order: list[int], column: int):
    """Digits that are written in another order: the digit of a column shows in one target alone, wherever it is."""
    task = formatted("{a:4}={s:4}", lambda a: sum(a // 10**old % 10 * 10**new for new, old in enumerate(order)))
    pairs = variable_pairs(task, "a", column, 8)
    assert task.target_roles[pairs.target].column == order.index(column)
    assert (pairs.clean_targets[:, pairs.target] != pairs.corrupted_targets[:, pairs.target]).all()
    kept = variable_pairs(task, "a", column, 8, answer=None)
    assert kept.target == pairs.target


def test_a_variable_that_no_target_depends_on_is_refused_with_the_target():
    with pytest.raises(UserError, match=r"No pair differs in b\[0\].* at the target s1"):
        variable_pairs(formatted("{a:2}+{b:2}={s:2}", lambda a, b: a), "b", 0, 8)
