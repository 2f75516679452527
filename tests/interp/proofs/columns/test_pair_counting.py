"""Counts from window verdicts: equal to enumeration on small domains, and moved by every verdict."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.proofs.columns.column_rule import ColumnRule
from interp.proofs.columns.pair_counting import OPEN, RIGHT, WRONG, Diagram, count, diagram_of_windows, reduced, symbols
from models.errors import UserError
from models.tasks.columns.schoolbook import schoolbook
from tests.sampling import sampled

VERDICTS = np.array([RIGHT, OPEN, WRONG])


def digits_of_all(columns: int, base: int) -> np.ndarray:
    """[2, column, pair], units first."""
    numbers = np.arange(base**columns)
    digits = np.stack([numbers // base**j % base for j in range(columns)])
    return np.stack((np.repeat(digits, len(numbers), 1), np.tile(digits, len(numbers))))


def enumerated(tables: list[np.ndarray], rule: ColumnRule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every pair's verdict at every target [target, pair], the worst of them, and its longest chain: one by one."""
    columns, base = rule.digits, rule.base
    digits = digits_of_all(columns, base)
    if rule.subtracts:
        numbers = (digits * base ** np.arange(columns)[:, None]).sum(1)
        digits = digits[:, :, numbers[0] >= numbers[1]]
    a, b = digits
    carry = np.zeros((columns + 1, a.shape[1]), dtype=np.int64)
    chain = carry.copy()
    for j in range(columns):
        carry[j + 1] = a[j] - b[j] - carry[j] < 0 if rule.subtracts else a[j] + b[j] + carry[j] >= base
        passes = a[j] == b[j] if rule.subtracts else a[j] + b[j] == base - 1
        makes = a[j] < b[j] if rule.subtracts else a[j] + b[j] >= base
        chain[j + 1] = np.where(passes, (chain[j] + 1) * carry[j], makes)
    found = []
    for target, table in enumerate(tables):
        top, depth = min(target, columns - 1), table.ndim - 1
        window = [base * a[j] + b[j] for j in range(top - depth + 1, top + 1)]
        found.append(table[(carry[top - depth + 1], *window)])
    verdict = np.stack(found)
    return verdict, verdict.min(0) * (verdict.min(0) < 0) + (verdict == 1).all(0), chain.max(0)


def random_tables(columns: int, base: int, depth: int, seed: int, share: float, n_targets: int) -> list[np.ndarray]:
    """``share``: of verdicts that are 1; the others are 0 or -1."""
    rng = np.random.default_rng(seed)
    shapes = [(2, *[base**2] * min(depth, min(t, columns - 1) + 1)) for t in range(n_targets)]
    return [
        np.where(rng.random(shape) < share, 1, rng.integers(-1, 1, shape)).astype(np.int8) for shape in shapes
    ]  # fmt: skip


def by_chain(chosen: np.ndarray, chain: np.ndarray, columns: int) -> tuple[int, ...]:
    return tuple(int((chosen & (chain == length)).sum()) for length in range(columns + 1))


DOMAINS = [(2, 10, 1), (2, 10, 2), (3, 10, 2), (3, 4, 3), (5, 3, 3), (1, 10, 1)]


@pytest.mark.parametrize("subtracts", [False, True])
@pytest.mark.parametrize(("columns", "base", "depth"), sampled(DOMAINS, *(d for d in DOMAINS if d != (3, 10, 2))))
@given(seed=st.integers(0, 10**6), share=st.sampled_from([0.5, 0.97, 1.0]), n_more=st.integers(0, 2))
@settings(max_examples=6)
def test_counts_of_random_verdicts_are_those_of_enumeration(columns, base, depth, subtracts, seed, share, n_more):
    rule = ColumnRule(columns, columns + 1, subtracts=subtracts, base=base)
    tables = random_tables(columns, base, depth, seed, share, columns + n_more)
    verdict, worst, chain = enumerated(tables, rule)
    diagrams = [diagram_of_windows(table, target, rule) for target, table in enumerate(tables)]
    found = count(diagrams, rule, by_chain=True)
    assert found.right == by_chain(worst == 1, chain, columns)
    assert found.open == by_chain(worst == 0, chain, columns)
    assert found.wrong == by_chain(worst == -1, chain, columns)
    for diagram, row in zip(diagrams, verdict, strict=True):  # and target by target
        one = count([diagram], rule)
        assert (one.right, one.open, one.wrong) == tuple((int((row == v).sum()),) for v in (1, 0, -1))


def test_the_programme_knows_chains_as_the_task_does():
    digits = torch.from_numpy(digits_of_all(3, 10)).permute(0, 2, 1)
    room = torch.zeros_like(digits[..., :1])
    a, b = torch.cat((digits, room), -1)
    chain = schoolbook(a, b)["chain"].max(1).values
    found = count([], ColumnRule(3), by_chain=True)
    assert found.right == tuple(torch.bincount(chain, minlength=4).tolist()) and found.total == 10**6


def test_ten_columns_are_counted_to_the_last_pair():
    """No verdict but one on the highest column of all 10^20 pairs, and one on a window of three columns."""
    table = np.ones((2, 100, 100, 100), dtype=np.int8)
    table[1, 57, 23, 99] = -1
    found = count([diagram_of_windows(table, 9)], by_chain=True)
    # Pairs of 7 columns with a carry out: those with a + b >= 10^7.
    assert sum(found.wrong) == 10**7 * (10**7 - 1) // 2 and sum(found.open) == 0 and found.total == 10**20


def test_chains_of_all_pairs_add_up_and_the_longest_are_counted_by_hand():
    found = count([], by_chain=True)
    assert found.total == 10**20 and found.open == found.wrong == (0,) * 11
    assert found.right[10] == 45 * 10**9  # units that generate, and nine columns of sum nine
    assert found.right[0] == 55**10


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_one_verdict_changed_moves_the_counts_by_its_pairs(seed):
    rng = np.random.default_rng(seed)
    tables = [np.ones((2, *[100] * min(2, t + 1)), dtype=np.int8) for t in range(3)]
    at = (int(rng.integers(2)), int(rng.integers(100)), int(rng.integers(100)))
    tables[2][at] = -1
    before = count([diagram_of_windows(x, t, ColumnRule(3)) for t, x in enumerate(tables)], ColumnRule(3))
    tables[2][at] = 1
    after = count([diagram_of_windows(x, t, ColumnRule(3)) for t, x in enumerate(tables)], ColumnRule(3))
    assert after.wrong == (0,) and before.wrong == ((45, 55)[1 - at[0]],)  # units with, or without, a carry out


def test_verdicts_on_a_carry_into_the_units_are_ignored():
    table = np.ones((2, 100), dtype=np.int8)
    table[1] = -1
    assert count([diagram_of_windows(table, 0)]).right == (10**20,)


def test_a_window_verdict_of_a_carry_that_its_column_cannot_have_is_no_pair():
    """Minimisation must not take columns apart that only impossible carries tell apart."""
    table = np.ones((2, 100, 100), dtype=np.int8)
    diagram = diagram_of_windows(table, 5)
    assert diagram.root == RIGHT and not any(len(level) for level in diagram.levels)


@given(seed=st.integers(0, 10**6))
def test_reduction_keeps_every_count(seed):
    """A random automaton of three columns in base 2, with nodes twice, is counted as after its reduction."""
    rng = np.random.default_rng(seed)
    size = 8
    levels = [VERDICTS[rng.integers(3, size=(4, size))].astype(np.int32)]
    shares = [0.3, 0.1, 0.1, 0.2, 0.1, 0.1, 0.1]
    levels += [rng.choice(7, size=(4, size), p=shares) for _ in range(2)]
    levels = [np.concatenate((level, level[:1])).astype(np.int32) for level in levels]
    full = Diagram(3, tuple(levels))
    small = reduced(3, levels)
    rule = ColumnRule(3, base=2)
    assert count([full], rule, by_chain=True) == count([small], rule, by_chain=True)
    assert all(len(a) < len(b) for a, b in zip(small.levels, levels, strict=True))


@pytest.mark.slow
def test_three_columns_without_structure_take_seconds_and_not_minutes():
    tables = random_tables(10, 10, 3, 0, 0.9, 12)
    found = count([diagram_of_windows(table, t) for t, table in enumerate(tables)], by_chain=True)
    assert found.total == 10**20 and min(sum(found.right), sum(found.open), sum(found.wrong)) > 0


def test_more_pairs_than_64_bits_hold_are_refused():
    with pytest.raises(UserError, match="more than can be counted"):
        count([], ColumnRule(11))


def test_symbols_are_schoolbook_addition():
    known = symbols()
    assert (known.written + 10 * known.carry_out == known.x + known.y + known.carry_in).all()
    assert known.possible(0).sum() == 100 and known.possible(1, 1).sum() == 100 and known.possible(0, 1).sum() == 45
