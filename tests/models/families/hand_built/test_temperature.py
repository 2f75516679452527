"""The temperatures at which the hand-built transformer is right, with failures on either side of them."""

from __future__ import annotations

import pytest

import models
from interp.proofs.hand_built.shape_problems import grid_problems
from studies.position_coupling.hand_built import run_cell

NAME = "position-coupling-hand-built"


def right(model, operands: int, digits: int, n: int = 6) -> bool:
    """Whether every one of ``n`` problems (the extremes among them) is answered entirely right."""
    return run_cell(model, grid_problems(operands, digits, n, seed=0)).correct == n


@pytest.mark.parametrize(("operands", "digits"), [(1, 1), (3, 2), (12, 12), (30, 3), (1, 30)])
def test_temperatures_between_six_and_four_hundred_are_right(operands: int, digits: int):
    for eta in (6.0, 13.7, 100.0, 400.0):
        assert right(models.build(NAME, max_operands=operands, max_digits=digits, eta=eta), operands, digits), eta


@pytest.mark.parametrize(
    ("eta", "shape", "dtype"),
    [
        (2.5, (12, 12), "float64"),
        (1.0, (3, 2), "float64"),
        (2.0, (1, 30), "float64"),
        (2.7, (30, 2), "float32"),
        (2997.0, (3, 3), "float32"),
    ],
)
def test_failures_begin_close_outside(eta: float, shape: tuple[int, int], dtype: str):
    sizes = {} if dtype == "float32" else dict(zip(("max_operands", "max_digits"), shape, strict=True))
    assert not right(models.build(NAME, eta=eta, dtype=dtype, **sizes), *shape, n=8)


def test_an_arbitrarily_large_temperature_answers_nothing_in_float32():
    """The text's "arbitrarily large" eta: at 100,000 not one problem is right."""
    assert run_cell(models.build(NAME, eta=1e5), grid_problems(12, 12, 6, seed=0)).correct == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize(("P1", "P2"), [(3, 10), (4, 2), (7, 10), (11, 3)])
def test_the_default_temperature_is_right_in_every_dtype_at_every_number_of_bits(dtype: str, P1: int, P2: int):
    assert right(models.build(NAME, max_operands=1, max_digits=3, P1=P1, P2=P2, dtype=dtype), 1, 3, n=4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("digits", "P1", "P2", "works"), [(14, 5, 4, True), (100, 7, 7, False)])
def test_two_rounded_roots_are_no_tie_in_half_precision(dtype: str, digits: int, P1: int, P2: int, works: bool):
    """The text's sqrt(eta P) in W_Q and W_K: off by a whole unit at 7 + 7 bits, by none at 5 + 4."""
    options = {"max_operands": 2, "max_digits": digits, "P1": P1, "P2": P2, "dtype": dtype}
    assert right(models.build(NAME, **options, bos_tie="paper"), 2, 3) == works


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_right_on_carry_heavy_problems(dtype: str):
    model = models.build(NAME, dtype=dtype)
    assert all(right(model, *shape, n=12) for shape in ((2, 20), (12, 12), (30, 2)))
