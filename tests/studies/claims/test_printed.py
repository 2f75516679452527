"""Printed numbers: what they say, and to how many digits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import UserError
from studies.claims.printed import read_numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("57", [57]),
        ("10,010/10,010", [10_010, 10_010]),
        ("2 out of 5", [2, 5]),
        ("99.80%", [0.998]),
        ("0.82 M", [820_000]),
        ("0.8 Million", [800_000]),
        ("60K", [60_000]),
        ("-29.4", [-29.4]),
        ("−4.3%", [-0.043]),
        ("+13.0%", [0.13]),
        ("36-40", [36, 40]),
        ("2–3", [2, 3]),
        ("~7.7", [7.7]),
        ("14 (LN) 14 (LN) 7 (RMS) 7", [14, 14, 7, 7]),
        ("Failed (61.5%)", [0.615]),
    ],
)
def test_numbers_are_read_as_papers_print_them(text, values):
    assert [number.value for number in read_numbers(text)] == pytest.approx(values)


@given(st.integers(-10_000, 10_000), st.integers(0, 4))
def test_a_number_agrees_with_what_it_is_printed_as(n, decimals):
    value = n / 10**4
    (printed,) = read_numbers(f"{value:.{decimals}f}")
    assert printed.agrees(value)
    assert not printed.agrees(value + 3 * 10.0**-decimals)


def test_words_have_no_number():
    with pytest.raises(UserError, match="no number"):
        read_numbers("essentially free")
