"""Adders whose numbers were set by hand: what they hold, what the derivation says, and what they answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import models
from models.evaluation import predict
from models.families.hand_built.adders import ADDERS
from models.families.hand_built.microadder_by_hand import by_hand
from models.families.microadder_ladder import rung
from tests.sampling import every_third

SCRATCH = [adder.name for adder in ADDERS]
TWINS = ["microadder-57-by-hand", "microadder-67-by-hand"]
EXAMPLES = [(0, 0), (9_999_999_999, 1), (9_999_999_999, 9_999_999_999), (5_000_000_000, 5_000_000_000)]
EXAMPLES += [(1_111_111_111, 8_888_888_889), (1_234_567_890, 9_876_543_210), (1, 9_999_999_999), (57, 48)]


@pytest.mark.parametrize("name", SCRATCH + TWINS)
def test_greedy_decoding_answers_the_examples(name: str) -> None:
    model = models.build(name)
    said = model.task.decode(predict(model, EXAMPLES, "greedy"))
    assert said == [a + b for a, b in EXAMPLES]


@pytest.mark.parametrize("name", every_third(SCRATCH + TWINS, 1))
def test_all_of_adderboard_is_right(name: str) -> None:
    assert models.score(models.build(name)).correct == 10_010


@pytest.mark.parametrize(("name", "n"), list(zip(SCRATCH + TWINS, (3, 4, 57, 67), strict=True)))
def test_the_free_numbers_are_counted_and_no_seed_changes_them(name: str, n: int) -> None:
    first, second = (models.build(name, seed=seed) for seed in (0, 1))
    assert sum(p.numel() for p in first.parameters()) == n
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize("n", [57, 67])
def test_a_twin_has_the_parametrisation_of_the_trained_model(n: int) -> None:
    twin = models.build(f"microadder-{n}-by-hand")
    assert {k: tuple(v.shape) for k, v in twin.weight_map.named_parameters()} == rung(n).options.shapes()
    values = {abs(v) for name, v in flat(by_hand()) if name not in ("arc_start", "arc_stride", "q_angle")}
    assert all(float(f"{v:.2e}") == v for v in values)  # three digits at most


def test_both_twins_are_one_function_so_that_one_certificate_is_about_both() -> None:
    small, large = (models.build(name).effective_weights() for name in TWINS)
    assert small.keys() == large.keys() and all(torch.equal(small[key], large[key]) for key in small)


def flat(numbers: dict) -> list[tuple[str, float]]:
    return [(name, float(v)) for name, value in numbers.items() for v in np.array(value, dtype=float).reshape(-1)]


def patterns(name: str) -> tuple[models.ArithmeticTransformer, torch.Tensor]:
    model = models.build(name)
    _, cache = model.run_with_cache(model.task.encode([(1234567890, 987654321)]))
    return model, cache["blocks.0.attn.hook_pattern"][0, 0].detach()


@pytest.mark.parametrize(("name", "ratio"), [("adder-3-by-hand", 9.6), ("adder-4-by-hand", 9.8)])
def test_attention_has_the_ratio_of_the_formula_in_every_column(name: str, ratio: float) -> None:
    """2 K sin(180/11) sin(turn - 180/11), K = gain^2 d_model / (2 sqrt 2)."""
    model, pattern = patterns(name)
    numbers = {k: float(v.detach()) for k, v in model.weight_map.named_parameters()}
    half, sharpness = math.pi / 11, numbers["gain"] ** 2 * model.config.d_model / (2 * math.sqrt(2))
    formula = math.exp(2 * sharpness * math.sin(half) * math.sin(math.radians(numbers["turn"]) - half))
    assert formula == pytest.approx(ratio, rel=0.02)
    for i in range(1, 10):
        row = pattern[21 + i]
        own = [i - 1, 10 + i, 21 + i]  # X, Y and Z of the query's own column
        assert row[[i, 11 + i]] / row[i - 1] == pytest.approx([formula] * 2, rel=1e-2)
        assert row[own] == pytest.approx([float(row[i - 1])] * 3, rel=1e-4)
        assert row[[i, 11 + i, *own]].sum() > 0.999


@pytest.mark.parametrize(("name", "switch"), [("adder-3-by-hand", 0.1), ("adder-4-by-hand", 0.3)])
def test_the_tangent_changes_its_sign_with_the_carry_out(name: str, switch: float) -> None:
    """tau = -5 (S - 9.45 - c' / 10): positive without a carry out of the column, by more than some strides."""
    model = models.build(name)
    pairs = torch.randint(10**10, (400, 2), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(model.task.encode(pairs), names_filter="blocks.0.hook_resid_mid")
    tangent = cache["blocks.0.hook_resid_mid"][:, 21:31, 1].detach() / math.radians(4.5)
    carry_out = carries(pairs)
    assert tangent[~carry_out].min() > switch and tangent[carry_out].max() < -switch
    if name == "adder-4-by-hand":  # where attention writes about N / 2, the formula holds within the arc's sine
        into = torch.nn.functional.pad(carry_out[:, :-1], (1, 0)).long()
        S = (pairs[:, :, None] // 10 ** torch.arange(10) % 10).sum(1) + into
        before = torch.nn.functional.pad(into[:, :-1], (1, 0))
        expected = -5 * (S - 9.45 - before / 10)
        slope = float((tangent * expected).sum() / expected.square().sum())
        assert 0.9 < slope < 1.1 and float((tangent - slope * expected).square().mean().sqrt()) < 1.0


def carries(pairs: torch.Tensor) -> torch.Tensor:
    """[pair, column]: whether there is a carry out of the column."""
    low = 10 ** torch.arange(1, 11)
    return (pairs[:, :1] % low + pairs[:, 1:] % low) >= low


@pytest.mark.parametrize("x", [-3.0, -0.4, 0.0, 0.2, 5.0])
def test_two_gelu_units_make_the_identity_and_almost_the_magnitude(x: float) -> None:
    gelu = torch.nn.functional.gelu
    t = torch.tensor(x, dtype=torch.float64)
    assert float(gelu(t) - gelu(-t)) == pytest.approx(x, abs=1e-12)
    assert float(gelu(t) + gelu(-t)) == pytest.approx(x * math.erf(x / math.sqrt(2)), abs=1e-12)


def test_the_twins_scores_are_those_of_the_docstring() -> None:
    model = models.build("microadder-57-by-hand")
    _, cache = model.run_with_cache(model.task.encode([(1234567890, 987654321)]))
    scores = cache["blocks.0.attn.hook_attn_scores"][0, 0].detach()
    numbers = by_hand()
    (radius,), (angle,), k, ks = numbers["arc_A"], numbers["q_angle"], numbers["W_qk"][0][0], numbers["W_qk"][2][2]
    for query in range(0, 10):
        for key in range(0, 10):
            size = math.prod(math.sqrt(radius**2 + 3.5**2 + (0.15 * i) ** 2) for i in (query, key))
            circle = k**2 * 3.5**2 * math.cos(math.radians(36 * (key - query)) - angle)
            slope = ks**2 * math.cos(angle) * 0.15**2 * query * key
            assert float(scores[22 + query, key]) == pytest.approx(5 / (2 * size) * (circle + slope), abs=1e-3)


def test_the_twins_attention_falls_off_by_about_ten_and_drifts() -> None:
    _, pattern = patterns("microadder-57-by-hand")
    ratios = [float(pattern[21 + i, i] / pattern[21 + i, i - 1]) for i in range(1, 10)]
    assert ratios == sorted(ratios) and 8.5 < ratios[0] < 9 and 11.5 < ratios[-1] < 12
    assert 0.8 < float(pattern[31, 21]) < 0.9  # equals stands for the column behind the last


def test_the_twins_units_are_switches_of_the_carry_out() -> None:
    model = models.build("microadder-57-by-hand")
    pairs = torch.randint(10**10, (400, 2), generator=torch.Generator().manual_seed(1))
    _, cache = model.run_with_cache(model.task.encode(pairs), names_filter="blocks.0.mlp.hook_pre")
    pre = cache["blocks.0.mlp.hook_pre"][:, 21:31].detach()
    assert torch.allclose(pre[..., 0], -pre[..., 1])
    carry_out = carries(pairs)
    assert pre[..., 0][carry_out].min() > 0.5 and pre[..., 0][~carry_out].max() < -0.5
