"""What is assumed of float32 and torch's functions, held against this machine; and balls that enclose what it does."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfc
from torch.nn import functional as F

from interp.proofs.numbers import rounding_errors
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.enclosure import Enclosure, TrimmedMatrix
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from models.transformer.config import TransformerConfig
from models.transformer.parts.norms import Norm

DENSE = 2_000_000


def dense_samples(low: float, high: float) -> torch.Tensor:
    """Evenly spaced numbers, and numbers evenly spaced in their logarithm on both sides of zero."""
    n = DENSE // 4
    even = np.linspace(low, high, 2 * n)
    most = max(abs(low), abs(high))
    steps = np.exp(np.linspace(math.log(1e-30), math.log(most), n))
    both = np.concatenate((even, steps, -steps))
    return torch.from_numpy(both[(both >= low) & (both <= high)]).float()


def ulps_off(found: torch.Tensor, exact: np.ndarray) -> float:
    """Largest distance in units in the last place of the exact value; float64 is exact enough to tell."""
    exact32 = np.abs(exact).clip(2.0**-126)
    unit = 2.0 ** (np.floor(np.log2(exact32)) - 23)
    return float((np.abs(found.double().numpy() - exact) / unit).max())


@pytest.mark.parametrize(
    ("function", "reference", "low", "high", "assumed"),
    [
        (torch.exp, np.exp, -87.0, 0.0, rounding_errors.EXP_ULPS),
        (torch.sin, np.sin, -100.0, 100.0, rounding_errors.TRIG_ULPS),
        (torch.cos, np.cos, -100.0, 100.0, rounding_errors.TRIG_ULPS),
        (torch.sqrt, np.sqrt, 0.0, 1e6, 1),
    ],
    ids=["exp", "sin", "cos", "sqrt"],
)
def test_torch_is_as_exact_as_assumed(function: Callable, reference: Callable, low: float, high: float, assumed: int):
    x = dense_samples(low, high)
    for values in (x, x[: len(x) // 8 * 8 + 3], x[:7]):  # vectorised code, and its remainder
        assert ulps_off(function(values), reference(values.double().numpy())) <= assumed


@pytest.mark.parametrize("base", [3.0, 10.0, 10_000.0, 1e6])
def test_the_first_rotary_angle_is_exactly_the_position(base: float):
    exponent = -torch.arange(9, dtype=torch.float32) * 0 / 18
    assert torch.equal(base**exponent / 1.0, torch.ones(9))


def test_the_check_of_exactness_can_fail():
    x = dense_samples(-87.0, 0.0)
    assert ulps_off(torch.exp(x) * (1 + 6e-7), np.exp(x.double().numpy())) > rounding_errors.EXP_ULPS


def test_gelu_takes_half_of_its_allowance_at_most():
    """The kernel that torch picks differs by processor, and is no simple formula: room for those not seen here."""
    near_the_worst = torch.linspace(2.9, 3.1, DENSE // 4)
    x = torch.cat((dense_samples(-30.0, 30.0), near_the_worst, -near_the_worst))
    wide = x.double().numpy()
    exact = wide / 2 * erfc(-wide / math.sqrt(2))
    allowed = ACTIVATIONS["gelu"].rounds * rounding_errors.UNIT * np.abs(wide) + rounding_errors.TINY
    for values in (x, x[: len(x) // 33 * 33].view(-1, 33), x[-7:]):
        rows = slice(0, values.numel()) if values.numel() > 7 else slice(-7, None)
        off = np.abs(F.gelu(values).double().numpy().reshape(-1) - exact[rows])
        assert (off <= allowed[rows] / 2).all()
    assert (np.abs(F.gelu(x).double().numpy() - exact) > allowed / 16).any()  # less would not be enough


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_softmax_is_within_its_bound(spread: float):
    """Relative, in u: two exponentials, n additions, a quotient, and differences of scores off by u of their spread."""
    scores = torch.randn(4000, 33, generator=torch.Generator().manual_seed(0)) * spread
    wide = scores.double()
    exact = wide.softmax(-1)
    width = (wide.amax(-1) - wide.amin(-1))[:, None]
    bound = exact * (4 * rounding_errors.EXP_ULPS + 33 + 2 + 2 * width) * rounding_errors.UNIT * 1.001 + 2.0**-118
    assert ((scores.softmax(-1).double() - exact).abs() <= bound).all()


def test_gelu_turns_where_the_lemma_says():
    """gelu' = Phi + x phi is negative at one end of the bracket and positive at the other, in ball arithmetic."""

    def slope(x: float):
        phi = (-(arb(x) ** 2) / 2).exp() / (2 * arb.pi()).sqrt()
        return (1 + (arb(x) / arb(2).sqrt()).erf()) / 2 + arb(x) * phi

    left, right = ACTIVATIONS["gelu"].turn or (0.0, 0.0)
    assert slope(left) < 0 < slope(right)
    middle = arb(left).union(arb(right))
    assert middle / 2 * (1 + (middle / arb(2).sqrt()).erf()) > ACTIVATIONS["gelu"].least


@given(centre=st.floats(-8, 8), radius=st.floats(0, 3), share=st.floats(-1, 1))
def test_gelu_of_a_ball_contains_gelu_of_its_points(centre: float, radius: float, share: float):
    x = centre + share * radius
    for arithmetic in (REAL, FLOAT32):
        middle = torch.tensor([centre], dtype=torch.float64)
        found = arithmetic.activation("gelu", Enclosure.of(middle, torch.full_like(middle, radius * (1 + 1e-12))))
        assert abs(x / 2 * (1 + math.erf(x / math.sqrt(2))) - found.mid) <= found.rad + 1e-15


@pytest.mark.parametrize("eps_outside", [False, True])
@given(seed=st.integers(0, 10**6), d=st.integers(1, 40), scale=st.sampled_from([1e-3, 1.0, 100.0]))
def test_the_scale_of_the_models_norm_rounds_no_more_than_is_said(eps_outside: bool, seed: int, d: int, scale: float):
    x = torch.randn(1, d, generator=torch.Generator().manual_seed(seed)) * scale
    config = TransformerConfig(1, d, 1, d, 1, 10, 4, norm_eps_outside=eps_outside)
    scales = []
    norm = Norm(config)
    norm.name = "n"
    norm.hook_scale.add_hook(lambda value, hook: scales.append(value.item()))
    norm(x, {"n.w": torch.ones(d)})
    exact = x.double().pow(2).mean().sqrt()
    exact = exact + config.eps if eps_outside else (exact**2 + config.eps).sqrt()
    off = float((scales[0] / exact - 1).abs())
    assert off <= rounding_errors.growth(rounding_errors.UNIT, rounding_errors.scale_roundings(d))


@given(seed=st.integers(0, 10**6), n=st.integers(1, 40))
def test_a_sum_of_products_lies_in_its_ball_in_any_order(seed: int, n: int):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(n, generator=generator) * 10 ** torch.randn(n, generator=generator) for _ in range(2))
    ball = FLOAT32.linear(Enclosure.exact(a[None]), TrimmedMatrix.of(b[:, None]))
    order = torch.randperm(n, generator=generator)
    one_by_one = torch.zeros(())
    for i in order:
        one_by_one = one_by_one + a[i] * b[i]
    for found in (a @ b, (a * b).sum(), (a * b)[order].sum(), one_by_one):
        assert (found - ball.mid).abs() <= ball.rad


def test_what_may_overflow_is_not_a_number():
    assert (
        FLOAT32.add(Enclosure.exact(torch.full((3,), 2.0**70)), Enclosure.exact(torch.ones(3))).low.max() == -torch.inf
    )
