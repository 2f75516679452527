"""Verdicts follow from both numbers by stated rules."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from interp.core.results import Provenance
from interp.core.significance import holm
from interp.core.stats import mean_interval
from models.errors import UserError
from studies.claims.ours import Ours, number, one_more, share
from studies.claims.printed import Printed, read_numbers
from studies.claims.rules import Inside, LessFar, Near, SameRate, Within, fisher_p

numbers = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
SOURCE = Provenance(10, 0, "numbers")


def ours(value: float, low: float | None = None, high: float | None = None) -> Ours:
    return Ours(value, SOURCE, low, high)


def printed(value: float) -> tuple[Printed, ...]:
    return (Printed(value, 0.0),)


@given(numbers, st.floats(0, 10), st.floats(0, 10), numbers)
def test_a_bound_is_met_missed_or_left_open_by_where_the_interval_lies(value, below, above, bound):
    low, high = value - below, value + above
    at_least = Within(bound).judge(ours(value, low, high), ())
    left_open = "compatible" if value >= bound else "undecided"
    assert at_least == ("reproduced" if low >= bound else "differs" if high < bound else left_open)
    mirrored = Within(most=-bound).judge(ours(-value, -high, -low), ())
    assert mirrored == at_least


@given(numbers, numbers)
def test_without_an_interval_a_bound_is_never_left_open(value, bound):
    for rule in (Within(bound), Within(most=bound)):
        assert rule.judge(ours(value), ()) in ("reproduced", "differs")


@given(numbers, st.floats(0, 5, allow_subnormal=False), st.floats(0, 5, allow_subnormal=False), numbers)
def test_a_printed_number_outside_the_interval_differs_and_one_inside_does_not(value, below, above, stated):
    low, high = value - below, value + above
    verdict = Inside().judge(ours(value, low, high), printed(stated))
    assert (verdict == "differs") == (stated < low or stated > high)
    assert verdict != "reproduced" or high - low <= 0.2 * abs(stated)


def test_a_wide_interval_confirms_nothing():
    assert Inside().judge(ours(0.5, 0.46, 0.54), read_numbers("50%")) == "reproduced"
    assert Inside().judge(ours(0.5, 0.05, 0.95), read_numbers("50%")) == "compatible"
    assert Inside().judge(ours(0.03, 0.01, 0.06), read_numbers("3.4%")) == "compatible"  # narrow, but wide for 3.4%
    assert Inside().judge(ours(23e3, 0.0, 84e3), read_numbers("22,000")) == "undecided"  # any step would be inside
    assert Inside().judge(ours(100.0, 95.0, 105.0), read_numbers("102")) == "reproduced"
    assert Inside().judge(one_more([0.4, 0.6], "seeds"), read_numbers("50%")) == "undecided"  # no ends


@given(st.lists(st.integers(0, 500), min_size=3, max_size=8))
def test_the_interval_of_one_more_seed_is_around_the_mean_and_wider_than_that_of_the_mean(right):
    values = [k / 500 for k in right]
    found = one_more(values, "seeds")
    _, low, high = mean_interval(np.array(values))
    (lowest, highest), value = found.ends, found.value
    assert lowest - 1e-9 <= low <= value + 1e-9 and value - 1e-9 <= high <= highest + 1e-9


def test_digits_are_compared_as_printed():
    assert Near(0.0).judge(ours(795_392.0), read_numbers("0.8 Million")) == "reproduced"
    assert Near(0.0).judge(ours(795_392.0), read_numbers("0.79 Million")) == "differs"
    with pytest.raises(UserError):
        Near(0.0).judge(ours(14.0), ())


@given(st.floats(0.1, 1e4), st.floats(0.5, 1.5))
def test_near_is_within_a_share_of_the_printed_number(stated, factor):
    verdict = Near(0.1).judge(ours(stated * factor), printed(stated))
    assert abs(abs(factor - 1) - 0.1) < 1e-9 or (verdict == "reproduced") == (abs(factor - 1) < 0.1)


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_fishers_test_is_scipys(n, n2, data):
    k, k2 = data.draw(st.integers(0, n)), data.draw(st.integers(0, n2))
    assert math.isclose(fisher_p(k, n, k2, n2), fisher_exact([[k, n - k], [k2, n2 - k2]])[1], rel_tol=1e-6)


def test_shares_are_compared_by_their_counts():
    assert SameRate().judge(share(1, 16, "seeds"), read_numbers("3/3")) == "differs"
    assert SameRate().judge(share(3, 32, "seeds"), read_numbers("2 out of 5")) == "compatible"  # few seeds
    assert SameRate().judge(share(10_010, 10_010, "sums"), read_numbers("10,010/10,010")) == "reproduced"
    assert SameRate(100_000).judge(share(0, 100_000, "sums"), read_numbers("12")) == "differs"
    assert SameRate(100_000).judge(share(0, 100_000, "sums"), read_numbers("0")) == "reproduced"
    for printed_errors in ("1", "2", "3", "5"):  # not told apart from 0 errors, and not confirmed by them
        assert SameRate(100_000).judge(share(0, 100_000, "sums"), read_numbers(printed_errors)) == "compatible"
    assert SameRate(10_000).judge(share(480, 10_000, "sums"), read_numbers("500")) == "reproduced"
    with pytest.raises(UserError, match="counts"):
        SameRate().judge(ours(0.5), read_numbers("1/2"))


def test_ranks_tell_variants_apart_only_with_a_small_p():
    lower, higher = ours(0.2), ours(0.8)
    assert LessFar().judge(replace(lower, p=0.01), ()) == "reproduced"
    assert LessFar().judge(replace(higher, p=0.01), ()) == "differs"
    assert LessFar().judge(replace(lower, p=0.2), ()) == "compatible"
    assert LessFar().judge(replace(lower, p=0.2, able=False), ()) == "undecided"
    with pytest.raises(UserError, match="p-value"):
        LessFar().judge(lower, ())


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8))
def test_holm_counts_the_smallest_p_once_for_each_comparison_and_keeps_the_order(p):
    corrected = holm(p)
    assert corrected[p.index(min(p))] == pytest.approx(min(1.0, len(p) * min(p)))
    assert all(after >= before for before, after in zip(p, corrected, strict=True))
    by_p = [after for _, after in sorted(zip(p, corrected, strict=True))]
    assert by_p == sorted(by_p) and max(corrected) <= 1


def test_a_share_between_two_bounds_may_be_too_large_as_well():
    rule = Within(0.7, 1.0)
    assert [rule.judge(ours(x), ()) for x in (0.6, 0.8, 1.66)] == ["differs", "reproduced", "differs"]
    assert rule.judge(ours(0.6, 0.5, 0.9), ()) == "undecided"
    assert rule.judge(ours(0.8, 0.6, 0.9), ()) == "compatible"


def test_what_was_tried_as_a_whole_has_no_interval():
    assert share(9, 10, "all").ends != (0.9, 0.9)
    assert share(9, 10, "all", "exhaustive").ends == (0.9, 0.9)
    assert number(57, 57, "parameters").provenance.strength == "exhaustive"
