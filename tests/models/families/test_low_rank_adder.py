"""The 456-parameter family: counts, ties and initialisation as the paper and its code have them."""

from __future__ import annotations

from math import fsum

import pytest
import torch

import models
from models.families.low_rank_adder import OPTIONS, LowRankAdderWeights
from models.weight_maps.low_rank import Factors

#: Table 4 of the paper, top to bottom (582: from its public configuration).
TABLE_4 = {
    "adder-763": [98, 231, 14, 147, 49, 14, 98, 98, 14, 0],
    "adder-512": [98, 120, 14, 84, 42, 14, 63, 63, 14, 0],
    "adder-491": [98, 120, 7, 84, 42, 7, 63, 63, 7, 0],
    "adder-456": [98, 120, 7, 63, 28, 7, 63, 63, 7, 0],
}


@pytest.mark.parametrize("name", TABLE_4)
def test_the_components_have_the_paper_s_sizes(name: str):
    assert [part.parameters for part in models.build(name).weight_map.parts()] == TABLE_4[name]


@pytest.mark.parametrize("name", sorted(OPTIONS.keys() - {"adder-763"}))
def test_effective_weights_are_the_exact_products_rounded_once(name: str):
    """So they are the same bits on every processor, whatever order its kernels add in."""
    factored = [part for part in models.load(name).modules() if isinstance(part, Factors) and part.rank is not None]
    assert factored
    for part in factored:
        rows, columns = part.A.double().tolist(), part.B.double().T.tolist()  # products of two float32 fit in float64
        exact = [[fsum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in rows]
        assert torch.equal(part(), torch.tensor(exact, dtype=torch.float64).float())


def rank(matrix: torch.Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix.double(), rtol=1e-6))


@pytest.mark.parametrize("name", OPTIONS)
def test_effective_weights_have_the_ranks_of_their_factors(name: str):
    model, options = models.build(name, seed=1), OPTIONS[name]
    assert rank(model.W_pos) == (options.position_rank or 7)
    assert rank(torch.cat((model.W_Q[0, 0], model.W_K[0, 0], model.W_V[0, 0]), 1)) == (options.qkv_rank or 7)
    assert rank(model.W_O[0, 0]) == (options.out_rank or 7)
    assert rank(model.W_in[0]) == rank(model.W_out[0]) == (options.mlp_rank or 7)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_head_is_the_embedding_and_only_456_ties_keys_to_values(name: str):
    model = models.build(name)
    assert torch.equal(model.W_U, model.W_E.T)
    assert torch.equal(model.W_K, model.W_V) == (name == "adder-456")
    assert not model.W_pos[33:].any() and model.W_pos[:33].any(1).all()  # the row behind the 33 is no parameter


@pytest.mark.parametrize("name", OPTIONS)
def test_the_factors_that_the_kernel_reads_make_the_matrices(name: str):
    weights, options = models.build(name, seed=2).effective_weights(), OPTIONS[name]
    for matrix, has in (("W_K", options.qkv_rank), ("W_O", options.out_rank)):
        left, right = (weights.get(f"blocks.0.attn.{matrix}_{side}") for side in ("left", "right"))
        assert (left is not None) == (has is not None)
        if left is not None:
            assert torch.allclose(left @ right, weights[f"blocks.0.attn.{matrix}"])


def spread(name: str, parameter: str) -> float:
    weight_map, drawn = LowRankAdderWeights(OPTIONS[name]), []
    for seed in range(60):
        weight_map.initialise(torch.Generator().manual_seed(seed))
        drawn.append(weight_map.get_parameter(parameter).detach().clone())
    return float(torch.stack(drawn).std())


@pytest.mark.parametrize(
    ("name", "parameter", "expected"),
    [
        ("adder-456", "W_E", 0.02),
        ("adder-456", "pos.A", 0.02),
        ("adder-456", "pos.B", 0.02),
        ("adder-456", "qkv.A", (2 / (7 + 3)) ** 0.5),
        ("adder-456", "qkv.B", (2 / (3 + 7)) ** 0.5),  # B_q and B_kv are matrices of their own
        ("adder-491", "qkv.B", (2 / (3 + 21)) ** 0.5),  # one matrix for Q, K and V
        ("adder-456", "out.A", (2 / (7 + 2)) ** 0.5),
        ("adder-456", "mlp_out.A", (2 / (14 + 3)) ** 0.5),
        ("adder-763", "qkv.W", 0.02),
        ("adder-582", "mlp_in.W", 0.02),
    ],
)
def test_parameters_start_with_the_public_code_s_spread(name: str, parameter: str, expected: float):
    assert spread(name, parameter) == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize("name", OPTIONS)
def test_norms_start_at_one_and_zero(name: str):
    for key, parameter in models.build(name).weight_map.named_parameters():
        if key.startswith("ln"):
            assert (parameter == (1.0 if key.endswith("_w") else 0.0)).all()
