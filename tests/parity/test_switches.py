"""Every switch of the config against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from models.transformer.config import TransformerConfig
from models.transformer.parts.positions import rotate
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.parity import decoder_formulas
from tests.parity.switches import SWITCHES


def numpy_weights(model) -> dict[str, np.ndarray]:
    return {key: value.detach().double().numpy() for key, value in model.all_weights().items()}


def expected_logits(model, tokens: torch.Tensor, position_ids: torch.Tensor) -> np.ndarray:
    weights = numpy_weights(model)
    return np.stack(
        [
            decoder_formulas.logits(model.config, weights, row, ids)
            for row, ids in zip(tokens.numpy(), position_ids.numpy(), strict=True)
        ]
    )


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_computes_its_formula(name):
    model = dense(**SWITCHES[name])(0)
    tokens = model.task.encode(model.task.sample(4, torch.Generator().manual_seed(1)))
    expected = expected_logits(model, tokens, model.task.position_ids(tokens))
    assert_same(model(tokens), expected, tolerance=2e-5)
    assert_same(model.double()(tokens), expected, tolerance=1e-11)


CONTRASTS = {
    "eps inside and outside": ({"eps": 0.1}, {"eps": 0.1, "norm_eps_outside": True}),
    "dot product and negative L1": ({}, {"attn_scores": "neg_l1"}),
    "max-plus and negative L1": ({"attn_scores": "max_plus"}, {"attn_scores": "neg_l1"}),
    "all keys and top 2": ({}, {"attn_top_k": 2}),
    "all ids and those at most 1 away": (SWITCHES["coupled positions"], SWITCHES["a window of ids"]),
    "scaled and unscaled": ({}, {"attn_scale": 1.0}),
    "neighbours and halves": (
        {"positional_embedding_type": "rotary"},
        {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False},
    ),
    "FIRE's two normalisers": (SWITCHES["FIRE"], SWITCHES["FIRE"] | {"fire_normaliser": "min"}),
    "no positions and rotary": ({"positional_embedding_type": "none"}, {"positional_embedding_type": "rotary"}),
    "ReLU and SiLU": ({"act_fn": "relu"}, {"act_fn": "silu"}),
    "the two GELUs": ({"act_fn": "gelu"}, {"act_fn": "gelu_new"}),
}


@pytest.mark.parametrize("name", CONTRASTS)
def test_switches_make_a_difference_to_the_same_weights(name):
    """Otherwise equality with the formulas would say nothing about them."""
    one, other = (dense(**switches)(0).double() for switches in CONTRASTS[name])
    tokens = one.task.encode(one.task.sample(4, torch.Generator().manual_seed(1)))
    assert (one(tokens) - other(tokens, weights=one.all_weights())).abs().max() > 1e-4 * one(tokens).abs().max()


# ---- positions


def rotary(neighbours: bool) -> TransformerConfig:
    """A config of which the rotation reads the angles alone."""
    return TransformerConfig(
        n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=0, d_vocab=2, n_ctx=12,
        positional_embedding_type="rotary", rotary_adjacent_pairs=neighbours,
    )  # fmt: skip


@pytest.mark.parametrize("neighbours", [True, False])
def test_rotation_turns_each_pair_by_its_own_angle(neighbours):
    x = torch.randn(2, 5, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = np.empty(x.shape)
    for b, t, h in np.ndindex(2, 5, 3):
        expected[b, t, h] = decoder_formulas.rotated(x[b, t, h].numpy(), t, 10000.0, neighbours)
    assert_same(rotate(x, rotary(neighbours)), expected, tolerance=1e-14)


@pytest.mark.parametrize("neighbours", [True, False])
def test_rotated_products_depend_on_the_distance_alone(neighbours):
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64, generator=generator).expand(2, 1, 12, 1, 8)
    scores = rotate(q, rotary(neighbours))[0, :, 0] @ rotate(k, rotary(neighbours))[0, :, 0].T
    for distance in range(-11, 12):
        diagonal = scores.diagonal(distance)
        assert_same(diagonal, diagonal[:1].expand_as(diagonal), tolerance=1e-12)


def test_the_fire_bias_is_its_formula_at_every_pair():
    model = dense(**SWITCHES["FIRE"])(0).double()
    bias = model.fire(8)
    weights = numpy_weights(model)
    for i in range(8):
        for j in range(i + 1):
            expected = decoder_formulas.fire_bias(model.config, weights, i, j)
            assert_same(bias[:, i, j], expected, tolerance=1e-12)


def test_coupled_positions_may_be_given_with_the_tokens():
    """Training shifts the ids at random; without them the task's own are used."""
    model = dense(**SWITCHES["coupled positions"])(0).double()
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(1)))
    own = model.task.position_ids(tokens)
    assert torch.equal(model(tokens), model(tokens, position_ids=own))
    shifted = own + 2
    assert_same(model(tokens, position_ids=shifted), expected_logits(model, tokens, shifted), tolerance=1e-11)
    assert not torch.allclose(model(tokens), model(tokens, position_ids=shifted))


# ---- keys that take part


def test_keys_that_tie_for_the_last_place_all_take_part():
    model = dense(attn_top_k=2)(0)
    tokens = model.task.encode(model.task.sample(1, torch.Generator().manual_seed(1)))

    def levels(scores, hook):
        tied = torch.tensor([3.0, 1.0, 1.0, 1.0, 0.0, 0.0])  # one winner, three that tie for second
        return torch.where(scores.isinf(), scores, tied.expand_as(scores))

    with model.hooks(fwd_hooks=[("blocks.0.attn.hook_attn_scores", levels)]):
        _, cache = model.run_with_cache(tokens)
    last = cache["blocks.0.attn.hook_pattern"][0, 0, -1]
    e = np.exp([3.0, 1.0, 1.0, 1.0])
    assert_same(last, np.array([*(e / e.sum()), 0, 0]))


def test_a_query_attends_to_as_many_keys_as_wanted_or_to_all_it_has():
    model = dense(attn_top_k=3)(0)
    tokens = model.task.encode(model.task.sample(4, torch.Generator().manual_seed(1)))
    _, cache = model.run_with_cache(tokens)
    for layer in range(model.config.n_layers):
        mask, pattern = cache[f"blocks.{layer}.attn.hook_top_k_mask"], cache["pattern", layer]
        assert torch.equal(mask, pattern > 0)
        assert (mask.sum(-1) == torch.tensor([1, 2, 3, 3, 3, 3])).all()
