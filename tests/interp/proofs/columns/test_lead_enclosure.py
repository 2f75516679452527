"""Bounds of margins over regions of attention output, held against the models themselves in float64 and float32."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.false_certificates import random_pairs
from interp.proofs.columns.adder_weights import read_adder
from interp.proofs.columns.lead_enclosure import LeadEnclosure, Regions
from interp.proofs.numbers import affine_forms
from interp.proofs.numbers.activation_functions import ACTIVATIONS
from interp.proofs.numbers.affine_forms import Forms
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL, Rounding
from interp.proofs.numbers.rounding_errors import LARGEST_WEIGHT
from interp.proofs.numbers.token_tables import TokenTables
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.conftest import dense, zoo
from tests.sampling import sampled

RANKS = {"adder-456": 2, "microadder-57": 1, "microadder-67": 1, "microadder-133": 2, "adder-582": 3}
MADE = (
    "biases",
    "relu",
    "eps outside",
    "LN eps outside",
    "gated silu",
    "gated relu",
    "no norms",
    "a final gain",
    "groups",
)
NAMES = (*RANKS, *MADE)
ARITHMETICS = pytest.mark.parametrize("arithmetic", [REAL, FLOAT32], ids=["real", "float32"])


@cache
def model_of(name: str) -> ArithmeticTransformer:
    """A zoo model, or random dense weights of moderate size, biases and all."""
    if name in RANKS:
        return zoo(name)
    changes = {
        "relu": {"act_fn": "relu"},
        "eps outside": {"norm_eps_outside": True, "eps": 1e-3},
        "gated silu": {"gated_mlp": True, "act_fn": "silu"},
        "gated relu": {"gated_mlp": True, "act_fn": "relu"},
        "LN eps outside": {"norm_eps_outside": True, "eps": 1e-3, "normalization_type": "LN"},
        "no norms": {"normalization_type": None, "act_fn": "relu"},
        "a final gain": {"normalization_type": None, "final_gain": True},
        "groups": {"norm_groups": 2},
    }
    config = replace(zoo("adder-456").config, d_model=6, d_head=6, d_mlp=9, **changes.get(name, {}))
    model = ArithmeticTransformer(DenseWeights(config), zoo("adder-456").task, name=name)
    generator = torch.Generator().manual_seed(NAMES.index(name))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.7)
        if name == "groups":  # the MLP reads one of them, and the logits the other
            model.blocks[0].mlp.W_in[3:], model.W_U[:3] = 0.0, 0.0
    return model


def regions_of(name: str, n: int, share: float, seed: int = 0) -> Regions:
    """Regions around what attention writes in random problems, their radii up to a share of its deviation."""
    model, rng = model_of(name), np.random.default_rng(seed)
    pairs = random_pairs(n, seed)
    tokens, answers = model.task.encode(pairs), model.task.targets(pairs).numpy()
    adder = read_adder(model)
    _, cached = model.run_with_cache(tokens, names_filter="blocks.0.hook_attn_out")
    written = cached["blocks.0.hook_attn_out"].detach().double().numpy() - adder.b_O
    target, rows = rng.integers(0, len(adder.layout.queries), n), np.arange(n)
    position = np.array(adder.layout.queries)[target]
    everything = written[:, list(adder.layout.queries)].reshape(-1, written.shape[-1])
    everything = everything - everything.mean(0)
    basis = np.linalg.svd(everything, full_matrices=False)[2][: RANKS.get(name, 2)]
    radius = share * np.abs(everything @ basis.T).std(0) * rng.uniform(0.1, 1, (n, len(basis)))
    error = share * 1e-2 * everything.std(0) * rng.uniform(0, 1, (n, adder.W_E.shape[1]))
    # room for a point's own rounding to float32
    error += 2.0**-23 * (np.abs(written[rows, position]) + np.abs(radius) @ np.abs(basis))
    return Regions(
        target, tokens.numpy()[rows, position], answers[rows, target], written[rows, position], basis, radius, error
    )


def points_of(regions: Regions, each: int, seed: int = 0) -> np.ndarray:
    """Random points of each region, a third of them corners: [n, each, d], as float32 numbers."""
    rng = np.random.default_rng(seed)
    n, d = regions.center.shape
    coefficient, error = rng.uniform(-1, 1, (n, each, regions.radius.shape[1])), rng.uniform(-1, 1, (n, each, d))
    coefficient[:, : each // 3], error[:, : each // 3] = (
        np.sign(coefficient[:, : each // 3]),
        np.sign(error[:, : each // 3]),
    )
    inner = regions.error - 2.0**-24 * (np.abs(regions.center) + np.abs(regions.radius) @ np.abs(regions.basis))
    assert (inner >= 0).all()
    points = regions.center[:, None] + (coefficient * regions.radius[:, None]) @ regions.basis + error * inner[:, None]
    return points.astype(np.float32).astype(np.float64)


@torch.inference_mode()
def margins_of(model: ArithmeticTransformer, regions: Regions, points: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Margins by the model's own modules behind these attention outputs, [n, each]."""
    weights = {key: value.detach().to(dtype) for key, value in model.effective_weights().items()}
    block: Any = model.blocks[0]
    queries = torch.tensor(model.task.query_positions)
    token, target, answer = (torch.from_numpy(getattr(regions, k)) for k in ("token", "target", "answer"))
    x = weights["embed.W_E"][token] + weights["pos_embed.W_pos"][queries[target]]
    written = torch.from_numpy(points).to(dtype)
    if "blocks.0.attn.b_O" in weights:
        written = written + weights["blocks.0.attn.b_O"]
    middle = x[:, None] + written
    config = model.config
    after = middle + block.mlp(block.ln2(middle, weights) if config.has_pre_norm else middle, weights)
    after = model.ln_final(after, weights) if config.has_final_norm else after
    logits = model.unembed(after, weights).double()
    index = answer[:, None, None].expand(*logits.shape[:2], 1)
    right = logits.gather(-1, index)[..., 0]
    return (right - logits.scatter(-1, index, -torch.inf).amax(-1)).numpy()


def contained(name: str, arithmetic: Rounding, bounds: tuple, regions: Regions, each: int = 300) -> bool:
    """Whether margins of points of the regions lie within bounds; float64 stands for the reals."""
    dtype = torch.float64 if arithmetic is REAL else torch.float32
    found = margins_of(model_of(name), regions, points_of(regions, each), dtype)
    slack = 1e-11 * (1 + np.abs(found)) if arithmetic is REAL else 0.0
    lower, upper = (bound[:, None] for bound in bounds)
    assert not np.isnan(lower).any() and not np.isnan(upper).any()
    return bool((lower <= found + slack).all() and (found <= upper + slack).all())


# ---- the model's margins lie within the bounds


@pytest.mark.parametrize(
    ("name", "arithmetic"),
    sampled(product(NAMES, (REAL, FLOAT32)), *product(NAMES[::2], (FLOAT32,)), *product(MADE[:1], (REAL,))),
)
@pytest.mark.parametrize("shares", [(0.0, 0.03, 3.0), pytest.param((1e-3, 0.3), marks=pytest.mark.slow)])
def test_margins_of_points_of_a_region_lie_within_its_bounds(name, arithmetic, shares):
    bounds = LeadEnclosure(read_adder(model_of(name)), arithmetic)
    for share in shares:
        regions = regions_of(name, 60, share, seed=int(share * 1000))
        assert contained(name, arithmetic, bounds.margins(regions), regions), share


@ARITHMETICS
def test_a_basis_of_each_region_is_read_as_its_own(arithmetic):
    regions = regions_of("adder-456", 40, 0.05)
    bounds = LeadEnclosure(read_adder(model_of("adder-456")), arithmetic)
    turned = np.random.default_rng(0).permuted(np.broadcast_to(regions.basis, (40, *regions.basis.shape)), axis=2)
    own = replace(regions, basis=turned)
    own = replace(own, error=own.error + 2.0**-23 * np.einsum("nr,nrd->nd", regions.radius, np.abs(turned)))
    lower, upper = bounds.margins(own)
    for row in range(40):
        one = replace(own.take(np.array([row])), basis=turned[row])
        assert bounds.margins(one) == (pytest.approx(lower[row : row + 1]), pytest.approx(upper[row : row + 1]))
        assert contained("adder-456", arithmetic, (lower[row : row + 1], upper[row : row + 1]), one, 60)


@pytest.mark.parametrize("name", ["adder-456", "microadder-67", "adder-582"])
def test_a_wrong_bound_is_noticed(name, monkeypatch):
    """A radius, a sign or a remainder that is lost: some point's margin escapes."""
    adder = read_adder(model_of(name))
    bounds, regions = LeadEnclosure(adder, REAL), regions_of(name, 60, 0.05)
    assert contained(name, REAL, bounds.margins(regions), regions)
    small = replace(regions, radius=regions.radius * 0.9)
    assert not contained(name, REAL, bounds.margins(small), regions)
    assert not contained(name, REAL, bounds.margins(replace(regions, error=regions.error * 0)), regions)
    flipped = LeadEnclosure(replace(adder, W_out=-adder.W_out), REAL)
    assert not contained(name, REAL, flipped.margins(regions), regions)
    wide = regions_of(name, 60, 0.2)
    on_line = affine_forms._on_line
    with monkeypatch.context() as patch:
        patch.setattr(
            affine_forms, "_on_line", lambda x, slope, low, high: on_line(x, slope, (low + high) / 2, (low + high) / 2)
        )
        assert not contained(name, REAL, bounds.margins(wide), wide)


@pytest.mark.parametrize("name", ["adder-456", "microadder-57", "adder-582"])
def test_float32_is_not_within_bounds_for_less_rounding(name):
    """What float32 rounds is most of what is counted: with a hundredth of it, points escape."""
    regions = regions_of(name, 200, 0.0)
    regions = replace(regions, center=points_of(regions, 1)[:, 0], error=regions.error * 0)
    adder = read_adder(model_of(name))
    found = margins_of(model_of(name), regions, regions.center[:, None], torch.float32)[:, 0]
    lower, upper = LeadEnclosure(adder, FLOAT32).margins(regions)
    assert ((lower <= found) & (found <= upper)).all()
    lower, upper = LeadEnclosure(adder, Rounding(FLOAT32.unit32 / 100)).margins(regions)
    assert not ((lower <= found) & (found <= upper)).all()


@pytest.mark.parametrize("name", ["adder-456", "microadder-133", "adder-582", "biases", "eps outside"])
def test_what_is_given_away_falls_with_the_square_of_the_radius(name):
    bounds, given_away = LeadEnclosure(read_adder(model_of(name)), REAL), []
    for share in (0.02, 0.002):
        regions = regions_of(name, 200, share)
        regions = replace(regions, error=regions.error * 0)
        corners = (
            np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * regions.radius.shape[1])).reshape(regions.radius.shape[1], -1).T
        )
        points = regions.center[:, None] + (corners * regions.radius[:, None]) @ regions.basis
        found = margins_of(model_of(name), regions, points, torch.float64)
        lower, upper = bounds.margins(regions)
        given_away.append([np.median(found.min(1) - lower), np.median(upper - found.max(1))])
    assert (np.array(given_away[0]) > 60 * np.array(given_away[1])).all()


# ---- what is not a number has no bound


@ARITHMETICS
def test_numbers_that_are_not_finite_or_too_large_have_no_bound(arithmetic):
    name = "adder-456"
    bounds, regions = LeadEnclosure(read_adder(model_of(name)), arithmetic), regions_of(name, 8, 0.05)
    whole = bounds.margins(regions)
    for field in ("center", "radius", "error"):
        for value in (np.nan, np.inf, -np.inf, 1e300, 2.0**210):
            array = getattr(regions, field).copy()
            array[3, 0] = value
            lower, upper = bounds.margins(replace(regions, **{field: array}))
            assert np.isnan(lower[3]) and np.isnan(upper[3]), (field, value)
            keep = np.arange(8) != 3
            assert np.array_equal(lower[keep], whole[0][keep]) and np.array_equal(upper[keep], whole[1][keep])
    negative = replace(regions, error=-regions.error)
    assert np.isnan(bounds.margins(negative)[0]).all()
    large = replace(regions, center=regions.center * 2.0**62)
    assert np.isnan(bounds.margins(large)[0]).all() == (arithmetic is FLOAT32)


def test_weights_beyond_the_bounds_on_rounding_have_no_bound():
    def inflate(weights):
        weights["blocks.0.mlp.W_in"] *= LARGEST_WEIGHT

    adder, regions = read_adder(dense("microadder-67", inflate)), regions_of("microadder-67", 5, 0.01)
    assert np.isnan(LeadEnclosure(adder, FLOAT32).margins(regions)).all()
    assert not np.isnan(LeadEnclosure(adder, REAL).margins(regions)).any()


def test_a_stream_that_may_be_zero_has_bounds_only_if_eps_holds_it():
    name = "eps outside"
    model = model_of(name)
    regions = regions_of(name, 20, 5.0)
    assert contained(name, REAL, LeadEnclosure(read_adder(model), REAL).margins(regions), regions)
    bare = replace(read_adder(model), W_E=np.zeros((14, 6)), W_pos=np.zeros((34, 6)), b_O=np.zeros(6))
    zero = replace(regions, center=np.zeros((20, 6)), radius=np.zeros((20, 2)), error=np.zeros((20, 6)))
    lower, upper = LeadEnclosure(bare, REAL).margins(zero)
    assert not (lower > upper).any()


def test_no_regions_have_no_bounds():
    bounds = LeadEnclosure(read_adder(model_of("adder-456")), REAL)
    none = regions_of("adder-456", 5, 0.1).take(np.zeros(0, dtype=np.int64))
    assert [len(bound) for bound in bounds.margins(none)] == [0, 0]


def test_float32_rounding_is_for_float32_models():
    config = replace(zoo("adder-456").config, dtype="float64")
    adder = read_adder(ArithmeticTransformer(DenseWeights(config), zoo("adder-456").task))
    LeadEnclosure(adder, REAL)
    with pytest.raises(UserError, match="is in float64"):
        LeadEnclosure(adder, FLOAT32)


def test_many_regions_take_the_memory_of_a_few():
    few = regions_of("adder-456", 1000, 0.05)
    bounds, many = LeadEnclosure(read_adder(model_of("adder-456")), FLOAT32), few.take(np.arange(30_000) % 1000)
    tracemalloc.start()
    try:
        lower, upper = bounds.margins(many)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    assert all(np.allclose(a.reshape(30, 1000), b) for a, b in zip((lower, upper), bounds.margins(few), strict=True))


# ---- functions and what is assumed of them


def enclosed(function, form: Forms, found: Forms, share: np.ndarray, exact) -> bool:
    """Whether f(x) lies in the form of f at the same noise, for points of x's form."""
    x = float(form.values[0, 0, 0] + form.values[0, 1:, 0] @ share[:-1] + form.rad[0, 0] * share[-1])
    value = float(exact(arb(x)).mid())
    line = float(found.values[0, 0, 0] + found.values[0, 1:, 0] @ share[:-1])
    return abs(value - line) <= found.rad[0, 0] + 1e-15 * (1 + abs(value))


FUNCTIONS = {
    "gelu": (partial(affine_forms.activated, "gelu"), lambda x: x / 2 * (1 + (x / arb(2).sqrt()).erf())),
    "silu": (partial(affine_forms.activated, "silu"), lambda x: x / (1 + (-x).exp())),
    "relu": (partial(affine_forms.activated, "relu"), lambda x: x.max(arb(0))),
    "inverse root": (lambda x, low, high: affine_forms.inverse_root(x, low, high, 0.0), lambda x: 1 / x.sqrt()),
    "eps outside": (
        lambda x, low, high: affine_forms.inverse_root(x, low, high, 0.01),
        lambda x: 1 / (x.sqrt() + arb(0.01)),
    ),
}


@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.floats(-8, 8),
    st.tuples(*[st.sampled_from([0.0, 1e-9, 1e-3, 0.1, 1.0, 4.0])] * 3),
    st.lists(st.tuples(*[st.floats(-1, 1)] * 3), min_size=1, max_size=20),
)
def test_a_function_of_a_form_lies_in_its_form(name, centre, parts, shares):
    function, exact = FUNCTIONS[name]
    form = Forms(np.array([[[centre], [parts[0]], [-parts[1]]]]), np.array([[parts[2]]]))
    if "root" in name or "eps" in name:
        form = Forms(form.values + np.array([[[8 + sum(parts) + 1e-3], [0], [0]]]), form.rad)
    found = function(form, *form.ends())
    for share in [*shares, (1, -1, 1), (-1, 1, -1)]:
        assert enclosed(function, form, found, np.array(share), exact)


@given(st.lists(st.tuples(*[st.floats(-3, 3)] * 4), min_size=2, max_size=2), st.tuples(*[st.floats(-1, 1)] * 4))
def test_a_product_of_forms_lies_in_its_form(numbers, share):
    a, b = (Forms(np.array([[[c], [s], [t]]]), np.array([[abs(rad)]])) for c, s, t, rad in numbers)
    found = affine_forms.multiply(a, b)
    x, y = (
        f.values[0, 0, 0] + f.values[0, 1:, 0] @ share[:2] + f.rad[0, 0] * e
        for f, e in zip((a, b), share[2:], strict=True)
    )
    line = found.values[0, 0, 0] + found.values[0, 1:, 0] @ share[:2]
    assert abs(x * y - line) <= found.rad[0, 0] + 1e-13


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_a_curve_bends_as_its_lemma_says(name):
    """On either side of the dip the second derivative falls and rises, and no value is beyond its two extremes."""
    curve, x = ACTIVATIONS[name], np.linspace(0, 30, 300_001)
    assert curve.second is not None
    second = curve.second(x)
    left, right = x < curve.dip[0], x > curve.dip[1]
    assert (np.diff(second[left]) <= 1e-15).all() and (np.diff(second[right]) >= -1e-15).all()
    assert np.array_equal(curve.second(-x), second)
    assert second.max() <= curve.curved * (1 + 1e-12) and -second.min() <= curve.dips * (1 + 1e-12)
    near = torch.from_numpy(x - 1e-5), torch.from_numpy(x + 1e-5)
    for function, derivative in ((curve.value, curve.slope(torch.from_numpy(x)).numpy()), (curve.slope, second)):
        assert np.abs((function(near[1]) - function(near[0])).numpy() / 2e-5 - derivative).max() < 1e-7


# ---- LayerNorm


@ARITHMETICS
@pytest.mark.parametrize("name", ["adder-582", "adder-456", "LN eps outside", "no norms", "groups"])
def test_the_normed_stream_is_that_of_the_model(name, arithmetic):
    model = model_of(name)
    adder, tokens = read_adder(model), model.task.encode([(1234567890, 9876543210)])
    weights = {
        k: v.detach().to(torch.float64 if arithmetic is REAL else torch.float32)
        for k, v in model.effective_weights().items()
    }
    x = weights["embed.W_E"][tokens[0]] + weights["pos_embed.W_pos"][: tokens.shape[1]]
    block: Any = model.blocks[0]
    found = (block.ln1(x, weights) if model.config.has_pre_norm else x).double().numpy()
    letters = list(enumerate(tokens[0].tolist()))
    ids = torch.zeros(len(letters), 0, dtype=torch.int64)
    ball = TokenTables(model.config, adder.stored, arithmetic, letters, ids, None).read.whole
    off, slack = np.abs(ball.mid.numpy() - found), 1e-13 if arithmetic is REAL else 0
    assert (off <= ball.rad.numpy() + slack).all()
    assert (ball.rad.numpy() < (1e-12 if arithmetic is REAL else 1e-4) * (1 + np.abs(found))).all()
