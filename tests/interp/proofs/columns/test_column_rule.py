"""The rule of a column, and how many problems there are, against all pairs of few digits."""

from __future__ import annotations

import numpy as np
import pytest

from interp.proofs.columns.column_rule import ColumnRule, column_rule
from models.errors import UserError
from models.tasks.columns.column_places import column_places
from models.tasks.formats.formatted_task import formatted
from models.tasks.named.addition import PaddedAddition

RULES = [
    ColumnRule(2),
    ColumnRule(2, 2, subtracts=True),
    ColumnRule(1, 1, subtracts=True),
    ColumnRule(3, 3, subtracts=True, base=4),
    ColumnRule(2, 2, base=3),
    ColumnRule(2, 3, True, subtracts=True),
    ColumnRule(1, 2, True, subtracts=True, base=4),
]


def problems(rule: ColumnRule) -> np.ndarray:
    a, b = (x.reshape(-1) for x in np.meshgrid(range(rule.limit), range(rule.limit), indexing="ij"))
    return np.stack((a, b), 1)[a >= b] if rule.ordered else np.stack((a, b), 1)


@pytest.mark.parametrize("rule", RULES)
def test_columns_one_by_one_give_the_answer(rule: ColumnRule):
    a, b = problems(rule).T
    digit = lambda numbers, column: numbers // rule.base**column % rule.base  # noqa: E731
    answer, carry = a - b if rule.subtracts else a + b, np.zeros_like(a)
    for column in range(rule.digits):
        total = rule.total(digit(a, column), digit(b, column))
        assert np.array_equal(rule.carry_into(a, b, column), carry) and np.isin(total, rule.totals).all()
        assert np.array_equal(rule.digit(total, carry), digit(answer, column))
        carry = rule.out(total, carry)
    assert set(carry.tolist()) == set(rule.ends)
    for index in range(0, len(a), max(1, len(a) // 50)):
        wanted = [int(digit(answer[index : index + 1], i)[0]) for i in range(rule.written)]
        if rule.signed:
            wanted[-1] = int(carry[index])
        assert rule.targets(int(a[index]), int(b[index])) == wanted


@pytest.mark.parametrize("rule", RULES)
def test_problems_and_what_is_free_above_a_column_are_counted_exactly(rule: ColumnRule):
    n = rule.limit
    every = np.stack([x.reshape(-1) for x in np.meshgrid(range(-1, n + 1), range(-1, n + 1), indexing="ij")])
    assert rule.size == len(problems(rule)) == rule.holds(*every).sum()
    for columns in range(rule.digits + 1):
        high = np.arange(rule.base**columns)
        left = [high[:, None] - carry >= high if rule.ordered else np.ones((len(high),) * 2) for carry in (0, 1)]
        assert rule.free(columns) == tuple(int(x.sum()) for x in left)


def test_half_of_all_pairs_and_the_equal_ones_can_be_subtracted():
    assert ColumnRule(10, 10, subtracts=True).size == 50_000_000_005_000_000_000 == (10**20 + 10**10) // 2
    assert ColumnRule(10, 10, subtracts=True).all_pairs == "all 50,000,000,005,000,000,000 pairs with a >= b"
    assert ColumnRule().size == 10**20 and ColumnRule().all_pairs == "all 10^20 pairs"


def of(format: str, answer: str, **more: object) -> ColumnRule:
    return column_rule(column_places(formatted(format, answer, **more)))


def test_a_task_gives_its_rule():
    assert column_rule(column_places(PaddedAddition())) == ColumnRule()
    assert of("{a:10r}+{b:10r}={s:11r}", "a + b") == ColumnRule()
    assert of("{a:4}-{b:4}={s:4r}.", "a - b", where="a >= b") == ColumnRule(4, 4, subtracts=True)
    for rule in ("b <= a", "a - b >= 0", "b < a + 1", "(a > b) | (a == b)"):
        assert of("{a:4}-{b:4}={s:5r}.", "a - b", where=rule) == ColumnRule(4, 5, subtracts=True)


@pytest.mark.parametrize(
    ("format", "answer", "where"),
    [
        ("{a:3r}-{b:3r}={s:3r}", "a - b", "a > b"),  # another domain
        ("{a:3r}-{b:3r}={s:3r}", "a - b", lambda a, b: a >= b),  # Python code, of which nothing is known
        ("{a:3r}+{b:3r}={s:4r}", "a + b", "a >= b"),
        ("{a:3r}-{b:2r}={s:3r}", "a - b", "a >= b"),  # numbers of two lengths
        ("{a:3r}-{b:3r}={s:3}", "a - b", "a >= b"),  # from the highest digit down
        ("{a:3r}*{b:3r}={s:6r}", "a * b", None),
    ],
)
def test_tasks_with_other_problems_or_answers_have_none(format, answer, where):
    with pytest.raises(UserError):
        of(format, answer, where=where)
