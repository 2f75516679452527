"""Symmetries leave logits alone, and the search finds the way back along them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes

import models
from models.errors import UserError
from models.registry import build
from models.tasks.named.addition import TwoDigitAddition
from models.tasks.named.position_coupling.multi_addition import MultiOperandAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from models.weight_maps.tied_decoder import TiedDecoderWeights
from studies.population.alignment import align, component_distances
from studies.population.symmetries import Parameters, symmetries_of
from studies.population.symmetries.base import (
    balanced,
    closest_rotation,
    closest_rotation_about_ones,
    closest_signed_permutation,
    closest_unitary,
)
from studies.population.symmetries.spaces import SymmetrySpace, random_member
from tests.sampling import every_third

pytestmark = pytest.mark.usefixtures("few_starts")

SMALL = TransformerConfig(
    n_layers=2, d_model=12, n_heads=3, d_head=4, d_mlp=10, d_vocab=10, n_ctx=6, act_fn="gelu_new",
    normalization_type="LN",
)  # fmt: skip
DECODERS = {
    "layer norm before": SMALL,
    "layer norm after": SMALL.replace(norm_placement="post"),
    "layer norm on both sides": SMALL.replace(norm_placement="both"),
    "only the last layer norm": SMALL.replace(norm_placement="none"),
    "rotary": SMALL.replace(positional_embedding_type="rotary"),
    "rotary halves": SMALL.replace(positional_embedding_type="rotary", rotary_adjacent_pairs=False),
    "no positions": SMALL.replace(positional_embedding_type="none"),
    "RMS norm before, gated": SMALL.replace(normalization_type="RMS", gated_mlp=True),
    "layer norm before, gated": SMALL.replace(gated_mlp=True),
    "relu, no norm": SMALL.replace(act_fn="relu", normalization_type=None),
    "attention only": SMALL.replace(d_mlp=0),
}
STRENGTHS = [f"microadder-{n}" for n in (57, 67, 74, 75, 78, 100, 133)]
LOW_RANK = ["adder-456", "adder-491", "adder-512", "adder-582"]
TIED = "tied decoder, coupled positions"
ALL = [*DECODERS, TIED, *STRENGTHS, *LOW_RANK]


def generic(name: str, seed: int = 0) -> ArithmeticTransformer:
    """A model of this kind in float64, at a point of its parameter space where nothing is zero or one by chance."""
    if name in DECODERS:
        model = ArithmeticTransformer(DenseWeights(DECODERS[name]), TwoDigitAddition(), name)
    elif name == TIED:
        task = MultiOperandAddition(2, 2)
        cfg = SMALL.replace(
            d_vocab=task.d_vocab, n_ctx=64, normalization_type="RMS", norm_placement="both", norm_eps_outside=True,
            gated_mlp=True, positional_embedding_type="coupled", n_position_levels=2, n_position_ids=9, attn_scale=1.0,
        )  # fmt: skip
        model = ArithmeticTransformer(TiedDecoderWeights(cfg, (8, 8)), task, name)
    else:
        model = build(name)
    generator = torch.Generator().manual_seed(seed)
    model.weight_map.initialise(generator)
    model = model.double()
    with torch.no_grad():
        for parameter in model.weight_map.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise)
    return model


def own(model: ArithmeticTransformer) -> Parameters:
    return {name: p.detach().clone() for name, p in model.weight_map.named_parameters()}


@torch.no_grad()
def logits(model: ArithmeticTransformer, parameters: Parameters | None = None) -> torch.Tensor:
    model = copy.deepcopy(model)
    for name, parameter in model.weight_map.named_parameters():
        if parameters is not None:
            parameter.copy_(parameters[name])
    problems = model.task.sample(6, torch.Generator().manual_seed(1))
    return model(model.task.encode(problems))


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max() / (1 + b.abs().max()))


@pytest.mark.parametrize("name", every_third(ALL))
@settings(max_examples=2)
@given(seed=st.integers(0, 10_000))
def test_every_move_leaves_the_logits_alone(name: str, seed: int) -> None:
    model = generic(name, seed)
    symmetries, before = symmetries_of(model), logits(model)
    canonical = symmetries.canonical(own(model))
    moved = symmetries.random(canonical, torch.Generator().manual_seed(seed))
    assert canonical.keys() == own(model).keys()
    for parameters in (canonical, moved, symmetries.canonical(moved)):
        assert far(logits(model, parameters), before) < 1e-9


@pytest.mark.parametrize("name", [*DECODERS, TIED, "microadder-57", "microadder-133", "adder-456"])
def test_the_search_finds_the_way_back_from_a_random_move(name: str) -> None:
    model = generic(name)
    symmetries = symmetries_of(model)
    canonical = symmetries.canonical(own(model))
    moved = symmetries.random(canonical, torch.Generator().manual_seed(3))
    back = symmetries.align(symmetries.canonical(moved), canonical)
    assert component_distances(moved, canonical)["all"] > 0.2
    assert component_distances(back, canonical)["all"] < 0.1  # rotations converge slowly
    assert far(logits(model, back), logits(model)) < 1e-9


def test_what_is_no_symmetry_changes_the_logits() -> None:
    """The tests above can fail: a rotation about anything but the mean, a sign where LayerNorm takes a mean."""
    model = generic("layer norm before")
    symmetries = symmetries_of(model)
    canonical = symmetries.canonical(own(model))
    layout = symmetries.layout  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(0)
    rotation = layout.identity() | {"stream": random_member(SymmetrySpace("rotation", 12), generator)}
    assert far(logits(model, layout.apply(canonical, rotation)), logits(model)) > 1e-3


# ---- scales


def moved_scale(model: ArithmeticTransformer, change: Callable[[Parameters], None]) -> tuple[Parameters, Parameters]:
    """Canonical forms of a model and of the same function after ``change``, the second aligned to the first."""
    symmetries, changed = symmetries_of(model), own(model)
    change(changed)
    assert far(logits(model, changed), logits(model)) < 1e-9, "the change is no symmetry"
    first = symmetries.canonical(own(model))
    return first, symmetries.align(symmetries.canonical(changed), first)


def invertible(n: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.eye(n, dtype=torch.float64) + 0.4 * torch.randn(n, n, generator=generator, dtype=torch.float64)


def queries_against_keys(p: Parameters) -> None:
    m = invertible(4)
    for name in ("W_Q", "b_Q"):
        p[f"blocks/0/attn/{name}"] = p[f"blocks/0/attn/{name}"] @ m
    p["blocks/0/attn/W_K"] = p["blocks/0/attn/W_K"] @ m.inverse().T
    p["blocks/0/attn/b_K"] = p["blocks/0/attn/b_K"] + 7  # shifts all scores of a query alike: but only through m
    p["blocks/0/attn/b_K"] = p["blocks/0/attn/b_K"] @ m.inverse().T


def values_against_output(p: Parameters) -> None:
    m = invertible(4)
    for name in ("W_V", "b_V"):
        p[f"blocks/1/attn/{name}"] = p[f"blocks/1/attn/{name}"] @ m
    p["blocks/1/attn/W_O"] = m.inverse() @ p["blocks/1/attn/W_O"]


def gains_into_readers(p: Parameters) -> None:
    gain = torch.linspace(0.5, 2, 12, dtype=torch.float64)
    p["blocks/0/ln2/w"], p["blocks/0/ln2/b"] = p["blocks/0/ln2/w"] * gain, p["blocks/0/ln2/b"] * gain
    p["blocks/0/mlp/W_in"] = p["blocks/0/mlp/W_in"] / gain[:, None]


def a_shift_along_ones(p: Parameters) -> None:
    p["blocks/0/mlp/W_out"] = p["blocks/0/mlp/W_out"] + torch.arange(10.0, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(
    "change", [queries_against_keys, values_against_output, gains_into_readers, a_shift_along_ones]
)
def test_scales_that_a_decoder_can_move_are_taken_out(change: Callable[[Parameters], None]) -> None:
    assert component_distances(*moved_scale(generic("layer norm before"), change))["all"] < 1e-3


def test_scales_that_low_rank_factors_can_move_are_taken_out() -> None:
    def change(p: Parameters) -> None:
        m = invertible(3)
        p["pos.A"], p["pos.B"] = p["pos.A"] @ m, m.inverse() @ p["pos.B"]
        p["qkv.A"], p["qkv.B"] = p["qkv.A"] @ m, m.inverse() @ p["qkv.B"]

    first, second = moved_scale(generic("adder-456"), change)
    assert component_distances(first, second)["all"] < 1e-3


def test_scales_that_microadder_can_move_are_taken_out() -> None:
    def change(p: Parameters) -> None:
        p["out_A"], p["out_B"] = -3 * p["out_A"], p["out_B"] / -3
        gain = torch.tensor([1, 1, 2.0, 0.5, -1], dtype=torch.float64)
        p["norm_w"], p["W_fc1"] = p["norm_w"] * gain, p["W_fc1"] / gain
        p["W_head"], p["out_A"], p["W_qk"] = p["W_head"] / gain, p["out_A"] * gain, p["W_qk"] / gain[2:]
        p["arc_A"], p["arc_start"] = -p["arc_A"], p["arc_start"] + math.pi
        p["arc_stride"] = p["arc_stride"] - 2 * math.pi

    first, second = moved_scale(generic("microadder-67"), change)
    assert component_distances(first, second)["all"] < 1e-3


# ---- the closest elements


@given(seed=st.integers(0, 1000))
def test_the_closest_rotation_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(9, 4)), rng.normal(size=(9, 4))
    expected, _ = orthogonal_procrustes(a, b)
    np.testing.assert_allclose(closest_rotation(torch.tensor(a.T @ b)).numpy(), expected, atol=1e-9)


@given(seed=st.integers(0, 1000))
@settings(max_examples=10)
def test_the_closest_signed_permutation_is_the_best_of_all(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    signed, unsigned = (torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    found = closest_signed_permutation(signed, unsigned)
    value = float((found * signed + found.abs() * unsigned).sum())
    best = max(
        sum(
            sign * float(signed[i, j]) + float(unsigned[i, j])
            for i, (j, sign) in enumerate(zip(order, signs, strict=True))
        )
        for order in permutations(range(4))
        for signs in product((-1, 1), repeat=4)
    )
    assert value == pytest.approx(best)


@given(seed=st.integers(0, 1000), n=st.integers(2, 5))
def test_the_closest_unitary_commutes_with_the_turn_and_beats_random_ones(seed: int, n: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    c = torch.randn(n, n, generator=generator, dtype=torch.float64)
    found = closest_unitary(c)
    turn = torch.eye(n, dtype=torch.float64)
    for i in range(0, n // 2 * 2, 2):
        turn[i, i], turn[i + 1, i + 1], turn[i, i + 1], turn[i + 1, i] = 0.6, 0.6, 0.8, -0.8
    torch.testing.assert_close(found @ found.T, torch.eye(n, dtype=torch.float64))
    torch.testing.assert_close(found @ turn, turn @ found)
    others = [random_member(SymmetrySpace("unitary", n), generator) for _ in range(20)]
    assert float((found * c).sum()) >= max(float((other * c).sum()) for other in others) - 1e-9


def test_a_rotation_about_ones_leaves_ones() -> None:
    c = torch.randn(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = closest_rotation_about_ones(c)
    torch.testing.assert_close(found.sum(0), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close(found @ found.T, torch.eye(6, dtype=torch.float64))


@given(m=st.integers(1, 4), k=st.integers(1, 5), n=st.integers(1, 4), seed=st.integers(0, 100))
def test_balanced_factors_have_the_same_product_and_one_gram_matrix(m: int, k: int, n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((m, k), (k, n)))
    first, second = balanced(left, right)
    assert first.shape == left.shape and second.shape == right.shape
    torch.testing.assert_close(first @ second, left @ right)
    torch.testing.assert_close(first.T @ first, second @ second.T)


# ---- refusals


@pytest.mark.parametrize(
    ("name", "said"),
    [("adder-763", "456 family"), ("microadder-242", "133 to 57"), ("addlm-0.8m", "No alignment is known")],
)
def test_an_architecture_without_known_symmetries_is_refused(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        symmetries_of(build(name))


def test_fire_and_a_model_without_parameters_are_refused() -> None:
    with pytest.raises(UserError, match="FIRE"):
        symmetries_of(build("position-coupling-1l4h-fire-small"))
    with pytest.raises(UserError, match="no free parameters"):
        symmetries_of(next(model for model in map(build, models.names()) if not list(model.parameters())))


def test_models_of_two_architectures_are_refused() -> None:
    with pytest.raises(UserError, match="not two models of one architecture"):
        align(build("microadder-57"), build("microadder-67"))
