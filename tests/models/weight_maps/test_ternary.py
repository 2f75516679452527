"""Ternary weights are what BitNet's formula says, to the last bit, and their gradient passes straight through."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import models
from models.families.addlm import ABLATION, SIZES, VARIANTS, model_name
from models.weight_maps.ternary import SMALLEST_SCALE, TERNARY, TernaryWeights, straight_through, ternarise

NAME = "addlm-0.8m"


def formula(latent: np.ndarray) -> tuple[np.ndarray, float]:
    scale = max(np.abs(latent).mean(), SMALLEST_SCALE)
    return np.clip(np.rint(latent / scale), -1, 1), scale


@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9), st.sampled_from([1e-3, 0.1, 30.0]))
def test_values_and_scale_are_the_formula_s(seed, rows, columns, size):
    latent = size * torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    values, scale = formula(latent.numpy())
    found = ternarise(latent)
    assert np.array_equal(found.values.numpy(), values)
    assert float(found.scale) == pytest.approx(scale, rel=1e-12)


def test_a_worked_example():
    found = ternarise(torch.tensor([[0.9, -0.1, 0.4], [-2.0, 0.0, 0.2]]))  # mean magnitude 0.6: 0.3 decides
    assert found.values.tolist() == [[1, 0, 1], [-1, 0, 0]]
    assert float(found.scale) == pytest.approx(0.6)


def test_a_matrix_of_zeros_stays_one():
    assert ternarise(torch.zeros(3, 4)).effective.count_nonzero() == 0


def test_the_gradient_of_a_latent_weight_is_that_of_the_effective_one():
    latent = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    weight = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    (straight_through(latent) * weight).sum().backward()
    assert torch.equal(latent.grad, weight)


def test_effective_weights_are_scale_times_integers_to_the_last_bit():
    model = models.build(NAME, seed=3)
    assert isinstance(model.weight_map, TernaryWeights)
    ternary, weights = model.weight_map.ternary(), model.effective_weights()
    assert {key.rsplit(".", 1)[1] for key in ternary} == set(TERNARY)
    assert len(ternary) == len(TERNARY) * model.config.n_layers
    for key, matrix in ternary.items():
        assert set(matrix.values.unique().tolist()) == {-1, 0, 1}
        assert torch.equal(weights[key], matrix.effective)


def test_one_scale_serves_all_heads_of_a_matrix():
    model = models.build(NAME, seed=3)
    latent = dict(model.weight_map.named_parameters())["blocks/0/attn/W_Q"]
    assert float(model.weight_map.ternary()["blocks.0.attn.W_Q"].scale) == float(latent.detach().abs().mean())


def test_a_head_s_values_and_outputs_are_integers_times_two_scales():
    model = models.build(NAME, seed=3)
    ternary = model.weight_map.ternary()
    v, o = (ternary[f"blocks.0.attn.W_{letter}"] for letter in "VO")
    integers = v.values.double() @ o.values.double()
    assert torch.equal(integers, integers.round())
    ov = model.W_V[0].double() @ model.W_O[0].double()
    assert torch.allclose(ov, v.scale.double() * o.scale.double() * integers, rtol=1e-6, atol=1e-9)


def test_the_float_baseline_has_no_ternary_weights():
    model = models.build("addlm-0.8m-float")
    assert model.weight_map.ternary() == {}
    weights = model.effective_weights()
    for name, parameter in model.weight_map.named_parameters():
        assert weights[name.replace("/", ".")] is parameter


@pytest.mark.parametrize("size", SIZES)
def test_parameters_are_the_paper_s_to_the_last_one(size):
    for suffix in ABLATION:
        with torch.device("meta"):
            weight_map = TernaryWeights(VARIANTS[size][suffix].config(SIZES[size]))
        assert sum(p.numel() for p in weight_map.parameters()) == SIZES[size].parameters


def test_the_sizes_are_written_out():
    assert [size.parameters for size in SIZES.values()] == [821_760, 4_791_296, 25_315_328]


def test_the_four_variants_differ_in_what_the_paper_says():
    configs = {suffix: models.build(model_name("0.8m", suffix)) for suffix in ABLATION}
    switches = {
        suffix: (m.weight_map.is_ternary, m.config.attn_scores, m.config.attn_top_k, m.config.act_fn)
        for suffix, m in configs.items()
    }
    assert switches == {
        "-float": (False, "dot", None, "gelu"),
        "-l1": (False, "neg_l1", 16, "relu"),
        "-ternary": (True, "dot", None, "relu"),
        "": (True, "neg_l1", 16, "relu"),
    }


def test_initial_weights_are_torch_s_own():
    model = models.build("addlm-0.8m-float", seed=0)
    for name, parameter in model.weight_map.named_parameters():
        kind = name.rsplit("/", 1)[1]
        if kind in ("W_E", "W_pos"):
            assert float(parameter.std()) == pytest.approx(1.0, abs=0.02)
        elif kind.startswith("W_"):
            bound = (512 if kind == "W_out" else 128) ** -0.5
            assert 0.98 * bound < float(parameter.abs().max()) <= bound
        else:
            assert (parameter == (1.0 if kind == "w" else 0.0)).all()
