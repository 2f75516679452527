"""The temperatures at which the hand-built transformer is right: a window with a failure on either side."""

from __future__ import annotations

import math

import hypothesis
import pytest
from hypothesis import strategies as st

import models
from interp.core.operand_problems import grid_problems
from interp.papers.position_coupling.hand_built import run_cell
from models.hand_built.temperature import DTYPES, eta_window, tie_error

NAME = "position-coupling-hand-built"


def right(model, operands: int, digits: int, n: int = 6, seed: int = 0) -> bool:
    """Whether every one of ``n`` problems (the extremes among them) is answered entirely right."""
    return run_cell(model, grid_problems(operands, digits, n, seed)).correct == n


def lead(model, operands: int, digits: int) -> float:
    return run_cell(model, grid_problems(operands, digits, 4, seed=0)).min_margin


@pytest.mark.parametrize(("operands", "digits"), [(1, 1), (3, 2), (12, 12), (30, 3), (1, 30)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_temperature_in_the_window_is_right(dtype: str, operands: int, digits: int):
    low, high = eta_window(operands, digits, dtype)
    assert low < 5 and high > 250
    for eta in (low, 1.3 * low, 7.0, 100.0, math.sqrt(low * high), 0.99 * high, high):
        model = models.build(NAME, max_operands=operands, max_digits=digits, eta=eta, dtype=dtype)
        assert lead(model, operands, digits) > 0, eta


@pytest.mark.parametrize(("operands", "digits", "eta"), [(30, 3, 2.5), (12, 12, 2.5), (3, 2, 1.0), (1, 30, 2.0)])
def test_below_the_window_attention_leaks_and_answers_are_wrong(operands: int, digits: int, eta: float):
    low, _ = eta_window(operands, digits)
    model = models.build(NAME, max_operands=operands, max_digits=digits, eta=eta, dtype="float64")
    assert eta < low and not right(model, operands, digits)


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1.0), ("float64", 2.0**29)])
def test_above_the_window_the_tie_with_bos_breaks_and_answers_are_wrong(dtype: str, scale: float):
    """At most temperatures a thousand times above it; where the roots are exact by luck, or low, it still adds.

    A processor may round a score in one product of matrices and not in another, so that a tie may break unseen.
    """
    _, high = eta_window(12, 12, dtype)
    failures, seen = 0, 0
    for eta in (91234.5 * scale * (1 + 0.137 * i) for i in range(8)):
        model = models.build(NAME, max_operands=12, max_digits=12, eta=eta, dtype=dtype)
        failed = not right(model, 12, 12, n=2)
        failures, seen = failures + failed, seen + (failed and max(map(abs, tie_error(model))) > 1 / 200)
        assert eta > high
    assert failures >= seen >= 4


def test_an_arbitrarily_large_temperature_answers_nothing_in_float32():
    """The text's "arbitrarily large" eta: at 100,000 not one problem is right."""
    model = models.build(NAME, eta=1e5)
    assert run_cell(model, grid_problems(12, 12, 6, seed=0)).correct == 0


@pytest.mark.parametrize(("eta", "shape"), [(2.7, (30, 2)), (2997.0, (3, 3))])
def test_failures_begin_close_outside_the_window_of_the_grids_size(eta: float, shape: tuple[int, int]):
    low, high = eta_window(30, 30)
    assert 0.7 * low < eta < low or high < eta < 7 * high
    assert not right(models.build(NAME, eta=eta), *shape, n=8)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_default_temperature_is_right_in_every_dtype_at_every_number_of_bits(dtype: str):
    for P1 in range(3, 12):
        for P2 in (1 + P1 % 3, 10):
            model = models.build(NAME, max_operands=1, max_digits=3, P1=P1, P2=P2, dtype=dtype)
            assert right(model, 1, 3, n=4), (P1, P2)
            if dtype in ("bfloat16", "float16"):
                assert tie_error(model) == [0.0] * 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_two_rounded_roots_are_no_tie_in_half_precision(dtype: str):
    """The text's sqrt(eta P) in W_Q and W_K: off by a whole unit at 7 + 7 bits, by none at 5 + 4."""
    for digits, P2, works in ((14, 4, True), (100, 7, False)):
        model = models.build(
            NAME, max_operands=2, max_digits=digits, P1=5 + 2 * (P2 == 7), P2=P2, bos_tie="paper", dtype=dtype
        )
        assert (max(map(abs, tie_error(model))) == 0) == works
        assert right(model, 2, 3) == works
    low, high = eta_window(30, 30, dtype)
    assert low > high  # no temperature is safe but those whose roots are exact


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_right_on_carry_heavy_problems(dtype: str):
    model = models.build(NAME, dtype=dtype)
    assert all(right(model, *shape, n=12) for shape in ((2, 20), (12, 12), (30, 2)))


@hypothesis.given(st.integers(1, 2000), st.integers(1, 2000))
def test_the_default_lies_in_the_window_of_float32_at_any_size(operands: int, digits: int):
    low, high = eta_window(operands, digits)
    assert low < 16 < high
    assert eta_window(operands + 500, digits)[0] >= low
