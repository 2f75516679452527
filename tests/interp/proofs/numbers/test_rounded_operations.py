"""Many balls at once: each operation's result lies in its ball, over the reals and as torch computes it in float32."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st

from interp.proofs.numbers.activation_functions import ACTIVATIONS as KINDS
from interp.proofs.numbers.activation_functions import SMOOTH
from interp.proofs.numbers.enclosure import Chosen, Enclosure, TrimmedMatrix, stretch_of
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.numbers.rounding_errors import LIBRARY_ULPS, TINY, UNIT
from models.transformer.config import TransformerConfig
from models.transformer.parts.mlp import ACTIVATIONS
from models.transformer.parts.norms import Norm
from models.transformer.parts.positions import rotate

pytestmark = pytest.mark.usefixtures("without_shape_checks")
BITS = 200


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def floats(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed)) * scale


def around(point: torch.Tensor, seed: int, radius: float = 1e-3) -> Enclosure:
    """A ball with the point in it, not at its middle."""
    off = floats(*point.shape, seed=seed, scale=radius).double()
    return Enclosure.of(point.double() + off, off.abs() * 1.0001)


def holds(found: Enclosure, values: torch.Tensor) -> bool:
    off = (values.double() - found.mid).abs()
    return bool((off <= found.rad).all() and (off.norm(dim=-1) <= found.norm).all())


# ---- one operation at a time, in float32


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), scale=st.sampled_from([1e-3, 1.0, 30.0]))
def test_what_float32_computes_from_a_point_lies_in_the_ball(seed: int, n: int, scale: float):
    x, w, b = floats(3, n, seed=seed, scale=scale), floats(n, 7, seed=seed + 1), floats(7, seed=seed + 2)
    ball, order = around(x, seed + 3), torch.randperm(n, generator=generator(seed))
    for product in (x @ w, x[:, order] @ w[order], (x[:, :, None] * w).sum(1)):
        assert holds(FLOAT32.linear(ball, TrimmedMatrix.of(w), b), product + b)
    assert holds(FLOAT32.linear(ball, TrimmedMatrix.of(w), b), torch.addmm(b, x, w))
    assert holds(FLOAT32.add(ball, Enclosure.exact(w.T[:3])), x + w.T[:3])
    for name, function in ACTIVATIONS.items():
        assert holds(FLOAT32.activation(name, ball), function(x))
    norms: tuple[tuple[Any, bool, bool], ...] = (("LN", True, False), ("RMS", False, True))
    for kind, centred, outside in norms:
        config = TransformerConfig(1, n, 1, n, 1, 10, 4, normalization_type=kind, norm_eps_outside=outside)
        norm = Norm(config)
        norm.name = "n"
        gain, bias = floats(n, seed=seed + 4), floats(n, seed=seed + 5)
        found = FLOAT32.normed(ball, gain, bias.double(), config.eps, outside, centred).whole
        assert holds(found, norm(x, {"n.w": gain, "n.b": bias}))


@pytest.mark.parametrize("n", [3, 40, 400])
@pytest.mark.parametrize("size", [None, 1.0, 300.0])
def test_no_order_of_summation_leaves_the_ball(n: int, size: float | None):
    """Terms of one sign first, the largest first, the smallest first, and as they come; many of them are zero. A bias
    is one of the terms, and may be by far the largest."""
    x, w = floats(50, n, seed=n), floats(n, 1, seed=n + 1) * (torch.arange(n) % 3 > 0)[:, None]
    bias = None if size is None else floats(1, seed=n + 2, scale=size)
    found = FLOAT32.linear(Enclosure.exact(x), TrimmedMatrix.of(w), None if bias is None else bias.double())
    products = (x * w[:, 0]).numpy()
    exact = (x.double() @ w.double())[:, 0].numpy()
    if bias is not None:
        products = np.concatenate((products, bias.expand(50, 1).numpy()), 1)
        exact = exact + bias.double().numpy()
    reach = 0.0
    for order in (
        products.argsort(1),
        (-products).argsort(1),
        (-np.abs(products)).argsort(1),
        np.abs(products).argsort(1),
    ):
        total = np.zeros(50, dtype=np.float32)
        for terms in np.take_along_axis(products, order, 1).T:
            total = total + terms
        off = np.abs(total.astype(np.float64) - found.mid[:, 0].numpy())
        assert (off <= found.rad[:, 0].numpy()).all() and total.dtype == np.float32
        reach = max(reach, float((np.abs(total - exact) / found.rad[:, 0].numpy()).max()))
    assert reach > 0.02  # the bound is near what an order can do


def test_each_heads_columns_have_a_spectral_norm_of_their_own():
    x, w = floats(6, 12, seed=0), floats(12, 8, seed=1)
    w[:, :4] *= 0.01
    ball, bias = around(x, 2), floats(8, seed=3)
    found = FLOAT32.linear(ball, TrimmedMatrix.of(w, 2), bias.double())
    whole = FLOAT32.linear(ball, TrimmedMatrix.of(w), bias.double())
    values = (x @ w + bias).unflatten(-1, (2, 4))
    assert (
        holds(found, values)
        and (found.norm[:, 0] < whole.norm / 20).all()
        and (found.norm <= whole.norm[:, None]).all()
    )


@pytest.mark.parametrize("kind", ["LN", "RMS"])
@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_a_norm_and_the_product_after_it_lie_in_the_ball(kind: Any, shift: float):
    """What all entries are off by together is followed through the product: by far less than the worst direction."""
    x, w = floats(40, 64, seed=0) + shift, floats(64, 32, seed=1)
    config = TransformerConfig(1, 64, 1, 64, 1, 10, 4, normalization_type=kind)
    norm = Norm(config)
    norm.name = "n"
    gain, bias = 1 + floats(64, seed=2) / 4, floats(64, seed=3)
    for ball in (Enclosure.exact(x), around(x, 4, 1e-4)):
        normed = FLOAT32.normed(ball, gain, bias.double(), config.eps, False, kind == "LN")
        y = norm(x, {"n.w": gain, "n.b": bias})
        order = torch.randperm(64, generator=generator(5))
        found, whole = (FLOAT32.linear(part, TrimmedMatrix.of(w)) for part in (normed, normed.whole))
        for product in (y @ w, y[:, order] @ w[order], y.double() @ w.double()):
            assert holds(normed.whole, y) and holds(found, product)
        if shift == 0 and float(ball.rad.max()) == 0:
            assert (found.norm < whole.norm).all()


def test_rows_of_zeros_at_the_ends_are_left_out():
    w = torch.zeros(9, 5)
    w[2:6] = floats(4, 5, seed=0)
    w[3] = 0
    assert TrimmedMatrix.of(w).used == slice(2, 6) and TrimmedMatrix.of(torch.zeros(3, 2)).used == slice(0, 1)
    x = floats(7, 9, seed=1)
    assert holds(FLOAT32.linear(around(x, 2), TrimmedMatrix.of(w)), x @ w)


@given(seed=st.integers(0, 10**6), keys=st.integers(1, 9), spread=st.sampled_from([0.1, 3.0, 40.0]))
def test_attention_in_float32_lies_in_its_balls(seed: int, keys: int, spread: float):
    q, k, v = (
        floats(4, 5, seed=seed, scale=spread),
        floats(4, keys, 5, seed=seed + 1),
        floats(4, keys, 6, seed=seed + 2),
    )
    balls = [around(x, seed + 3 + i, 1e-4) for i, x in enumerate((q, k, v))]
    exact = {
        "dot": (k @ q[..., None])[..., 0],
        "neg_l1": -torch.cdist(q[:, None], k, p=1.0)[:, 0],
        "max_plus": (q[:, None] + k).amax(-1),
    }
    for kind, scores in exact.items():
        enclosed = FLOAT32.scores(balls[0], FLOAT32.keys(balls[1]), kind)
        assert ((scores.double() - enclosed.mid).abs() <= enclosed.rad).all()
        for top_k in (None, 1, 3):
            chosen = scores / 2.0
            if top_k is not None and top_k < keys:
                chosen = chosen.masked_fill(chosen < chosen.topk(top_k, -1).values[:, -1:], -torch.inf)
            pattern = chosen.softmax(-1)
            halved = FLOAT32.scaled(enclosed, 2.0)
            found = FLOAT32.softmax(halved, Chosen.of(halved, top_k))
            assert ((pattern.double() - found.mid).abs() <= found.rad).all()
            written = FLOAT32.mixed(found, FLOAT32.values(balls[2], keys))
            assert holds(written, torch.einsum("bk,bkd->bd", pattern, v))


def rotary(d_head: int, adjacent: bool) -> TransformerConfig:
    """A config of which the rotation reads the angles alone."""
    return TransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=d_head, d_mlp=0, d_vocab=2, n_ctx=30,
        positional_embedding_type="rotary", rotary_adjacent_pairs=adjacent,
    )  # fmt: skip


@pytest.mark.parametrize("adjacent", [True, False])
def test_rotation_in_float32_lies_in_its_balls(adjacent: bool):
    x = floats(30, 2, 8, seed=0)
    cos, sin = FLOAT32.angles(30, 10_000.0, 4)
    found = FLOAT32.rotated(around(x, 1), cos, sin, adjacent)
    assert holds(found, rotate(x[None], rotary(8, adjacent))[0]) and float(found.rad.max()) < 0.02


def test_a_ball_without_float32s_rounding_does_not_hold_what_float32_computes():
    """The containments above can fail."""
    x, w = floats(200, 64, seed=0), floats(64, 32, seed=1)
    assert holds(FLOAT32.linear(Enclosure.exact(x), TrimmedMatrix.of(w)), x @ w)
    for careless in (REAL, Rounding(UNIT / 64)):
        assert not holds(careless.linear(Enclosure.exact(x), TrimmedMatrix.of(w)), x @ w)


# ---- against exact arithmetic, over the reals


def off_by(found: Enclosure, exact: list[arb]) -> float:
    """The largest distance from the middle, in radii; at most 1."""
    pairs = zip(found.mid.flatten().tolist(), found.rad.flatten().tolist(), exact, strict=True)
    return max(float((abs(arb(mid) - value)).upper()) / rad for mid, rad, value in pairs)


def test_radii_over_the_reals_hold_exact_values():
    """Known numbers in, 200 bits: what float64 rounds is enclosed."""
    ctx.prec = BITS
    try:
        n = 24
        x, w = floats(1, n, seed=0), floats(n, 5, seed=1)
        numbers = [arb(value) for value in x[0].tolist()]
        exact = [sum((a * arb(c) for a, c in zip(numbers, column, strict=True)), arb(0)) for column in w.T.tolist()]
        assert 0 < off_by(REAL.linear(Enclosure.exact(x), TrimmedMatrix.of(w)), exact) <= 1
        mean = sum(numbers, arb(0)) / n
        centred = [value - mean for value in numbers]
        scale = (sum((value**2 for value in centred), arb(0)) / n + arb(1e-5)).sqrt()
        found = REAL.normed(Enclosure.exact(x), torch.ones(n), None, 1e-5, False, True).whole
        assert 0 < off_by(found, [value / scale for value in centred]) <= 1
        top = max(numbers, key=lambda value: float(value.mid()))
        powers = [(value - top).exp() for value in numbers]
        total = sum(powers, arb(0))
        assert 0 < off_by(REAL.softmax(Enclosure.exact(x)), [power / total for power in powers]) <= 1
        phi = lambda value: (1 + (value / arb(2).sqrt()).erf()) / 2  # noqa: E731
        tanh = lambda value: 1 / (1 + (-2 * (2 / arb.pi()).sqrt() * (value + arb("0.044715") * value**3)).exp())  # noqa: E731
        for name, share in (("gelu", phi), ("gelu_new", tanh), ("silu", lambda value: 1 / (1 + (-value).exp()))):
            assert off_by(REAL.activation(name, Enclosure.exact(x)), [value * share(value) for value in numbers]) <= 1
    finally:
        ctx.prec = 53


@pytest.mark.parametrize("radius", [0.0, 1e-3])
def test_lengths_over_the_reals_hold_exact_products_and_attention(radius: float):
    """Points of the balls, most of them corners: products, scores and what attention writes, in rationals."""
    keys, d, shapes = 7, 6, ((6,), (7, 6), (7, 6))
    doubles = lambda *shape, seed: torch.randn(*shape, generator=generator(seed), dtype=torch.float64)  # noqa: E731
    rational = lambda x: np.vectorize(Fraction, otypes=[object])(x.numpy())  # noqa: E731
    w, p = doubles(d, 5, seed=9), doubles(keys, seed=8).softmax(0)
    balls = [
        Enclosure.of(x, torch.full_like(x, radius)) for x in (doubles(*shape, seed=len(shape)) for shape in shapes)
    ]
    pattern = Enclosure.of(p, torch.full_like(p, radius + 1e-15))
    found = (
        REAL.linear(balls[0], TrimmedMatrix.of(w)),
        REAL.scores(balls[0], REAL.keys(balls[1]), "dot"),
        REAL.mixed(pattern, REAL.values(balls[2], keys)),
    )
    reach = np.zeros(3)
    for seed in range(60):
        q, k, v = (rational(ball.mid + doubles(*ball.mid.shape, seed=seed).sign() * ball.rad) for ball in balls)
        weights = rational(p + doubles(keys, seed=seed).clamp(-2, 2) * radius / 6)
        weights = weights + (1 - weights.sum()) / keys
        assert (np.abs(weights - rational(p)) <= rational(pattern.rad)).all()
        for i, values in enumerate((q @ rational(w), k @ q, weights @ v)):
            off = np.abs(values - rational(found[i].mid)).astype(float)
            assert (off <= found[i].rad.numpy()).all() and np.linalg.norm(off) <= found[i].norm
            reach[i] = max(reach[i], float((off / found[i].rad.numpy()).max()))
    assert (reach > (0.05 if radius else 0.0)).all() and (reach < 1).all()


def test_the_library_is_as_exact_as_assumed():
    ctx.prec = BITS
    try:
        steps = torch.logspace(-8, 1.4, 300)
        far, near = torch.linspace(-30, 0, 700), torch.linspace(-6, 6, 4001)
        x = torch.cat((far, near, steps, -steps)).double()
        x = torch.cat((x, torch.logspace(-300, 0, 900, dtype=torch.float64)))
        functions = {"exp": torch.exp, "expm1": torch.expm1, "sigmoid": torch.sigmoid, "cos": torch.cos}
        functions["ndtr"] = torch.special.ndtr
        for name, function in functions.items():
            found = function(x).tolist()
            for value, at in zip(found, x.tolist(), strict=True):
                shares = {"sigmoid": 1 / (1 + (-arb(at)).exp()), "ndtr": (1 + (arb(at) / arb(2).sqrt()).erf()) / 2}
                exact = shares[name] if name in shares else getattr(arb(at), name)()
                size = 1.0 if name in ("cos", "ndtr") else abs(value)
                assert abs(arb(value) - exact) <= LIBRARY_ULPS * 2.0**-52 * size, (name, at)
    finally:
        ctx.prec = 53


@pytest.mark.parametrize("name", SMOOTH)
def test_activations_in_float32_take_half_of_their_allowance_at_most(name: str):
    even, steps = torch.linspace(-30, 30, 200_000), torch.logspace(-30, math.log10(30), 50_000)
    x = torch.cat((even, steps, -steps))
    exact = KINDS[name].value(x.double())
    allowed = KINDS[name].rounds * UNIT * x.double().abs() + TINY
    for values in (x, x[:7], x[: len(x) // 33 * 33].view(-1, 33)):
        found = ACTIVATIONS[name](values).double().flatten()
        assert ((found - exact[: len(found)]).abs() <= allowed[: len(found)] / 2).all()


@pytest.mark.parametrize("name", SMOOTH)
def test_activations_turn_where_they_are_said_to(name: str):
    kind = KINDS[name]
    (left, right), least, steepest = kind.turn, kind.least, kind.steepest
    x = torch.linspace(-12, 12, 400_001, dtype=torch.float64, requires_grad=True)
    value = kind.value(x)
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert (slope[(x < left) & (x > -8)] < 0).all() and (slope[x > right] > 0).all()
    assert least < float(value.detach().min()) < least + 1e-2 and float(slope.abs().max()) < steepest


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rounding", [REAL, FLOAT32], ids=["real", "float32"])
@pytest.mark.parametrize("name", KINDS)
def test_an_interval_without_ends_bounds_nothing_and_warns_of_nothing(name: str, rounding: Rounding):
    radii = torch.tensor([math.inf, 1e-3], dtype=torch.float64)
    found = rounding.activation(name, Enclosure.of(torch.tensor([1.0, 2.0], dtype=torch.float64), radii))
    assert not bool((found.low > -math.inf)[0]) and not bool((found.high < math.inf)[0])


# ---- spectral norms


@pytest.mark.parametrize("shape", [(1, 1), (5, 40), (64, 16), (128, 128)])
def test_a_spectral_norm_is_bounded_closely(shape: tuple[int, int]):
    for w in (floats(*shape, seed=3), floats(*shape, seed=4)[:, :1] @ floats(1, shape[1], seed=5)):
        true = float(np.linalg.norm(w.double().numpy(), 2))
        assert true <= stretch_of(w) <= 1.02 * true
    assert stretch_of(torch.zeros(shape)) == 0.0
