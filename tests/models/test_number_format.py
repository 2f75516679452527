"""How shares are written: none below one reads as all, and none above zero as nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.number_format import distinct_percent, in_percent
from models.rates import Rate


@given(st.floats(0, 1), st.integers(0, 3))
def test_only_one_reads_as_all_and_only_zero_as_nothing(share, digits):
    for text in (in_percent(share, digits, counted=True), distinct_percent(share, digits)):
        number = float(text.removeprefix("over ").removeprefix("under ").removesuffix("%"))
        assert ("over" in text or number != 100) == (share < 1) or share == 1
        assert "under" in text or number != 0 or share == 0
        assert abs(number - 100 * share) <= 1.01 * 10.0**-digits


@given(st.integers(1, 10**7), st.data())
def test_a_rate_and_its_interval_never_read_as_certain(n, data):
    correct = data.draw(st.integers(0, n) | st.sampled_from([0, 1, n - 1, n]).filter(lambda k: k >= 0))
    rate = Rate(n, correct)
    share = str(rate).split("(")[1].split("%")[0]
    assert (float(share) == 100) == (correct == n) and (float(share) == 0) == (correct == 0)
    low, high = (float(end) for end in rate.span.removesuffix("%").split("-"))
    assert low < high
    assert (high == 100) == math.isclose(rate.interval[1], 1, abs_tol=1e-15)
    assert (low == 0) == math.isclose(rate.interval[0], 0, abs_tol=1e-15)


@pytest.mark.parametrize(("correct", "text"), [(99_999, "99.999%"), (50_000, "50.00%"), (1, "0.001%")])
def test_a_rate_is_written_in_as_many_digits_as_it_takes(correct, text):
    assert text in str(Rate(100_000, correct))
