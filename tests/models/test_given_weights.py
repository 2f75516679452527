"""Weights and configs from outside: what does not fit is refused by name, before a number is wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import models
from models.errors import UserError
from models.transformer.config import TransformerConfig
from models.transformer.parts.weights import is_bias
from models.weight_maps.dense import DenseWeights

SMALL = {"n_layers": 1, "d_model": 4, "n_heads": 2, "d_head": 2, "d_mlp": 4, "d_vocab": 10, "n_ctx": 6}


@pytest.fixture
def dense():
    return models.load("microadder-57").dense_copy()


def weights(dense) -> dict[str, torch.Tensor]:
    return dict(dense.tl_state_dict())


def test_a_map_holds_all_weights_that_are_given(dense):
    held = DenseWeights.holding(dense.config, weights(dense))
    assert all(torch.equal(held.own()[key], value) for key, value in weights(dense).items())


def test_missing_biases_are_zero_and_anything_else_that_is_missing_is_named(dense):
    given_weights = weights(dense)
    for key in given_weights:
        fewer = {name: value for name, value in given_weights.items() if name != key}
        if is_bias(key):
            assert not DenseWeights.holding(dense.config, fewer).own()[key].any()
        else:
            with pytest.raises(UserError, match=key):
                DenseWeights.holding(dense.config, fewer)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("blocks.0.attn.W_q", torch.zeros(1, 5, 5)),  # misspelt
        ("blocks.1.attn.W_Q", torch.zeros(1, 5, 5)),  # a layer that there is not
        ("embed.W_E", torch.zeros(5)),  # would be broadcast
        ("embed.W_E", torch.zeros(5, 10)),  # transposed
    ],
)
def test_unknown_names_and_other_shapes_are_refused(dense, key, value):
    with pytest.raises(UserError, match=key):
        DenseWeights.holding(dense.config, weights(dense) | {key: value})


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_a_state_dict_with_a_wrapper_s_prefix_is_refused_by_that_prefix(dense, prefix):
    with pytest.raises(UserError, match=prefix):
        dense.load_state_dict({prefix + key: value for key, value in dense.state_dict().items()})
    with pytest.raises(UserError, match=prefix):
        dense.load_state_dict({prefix + key: value for key, value in dense.tl_state_dict().items()})


def test_a_state_dict_that_does_not_fit_is_refused_and_changes_nothing(dense):
    before = {key: value.clone() for key, value in dense.state_dict().items()}
    first = next(key for key, value in before.items() if value.ndim == 2 and value.shape[0] != value.shape[1])
    for changed in (
        before | {first: before[first].T},
        {key: value for key, value in before.items() if key != first},
        before | {"weight_map.old/W": torch.zeros(2)},
    ):
        with pytest.raises(UserError):
            dense.load_state_dict(changed)
        assert all(torch.equal(value, before[key]) for key, value in dense.state_dict().items())


def test_weights_by_transformerlens_names_can_be_written_by_safetensors(tmp_path: Path):
    state = models.load("microadder-57").tl_state_dict()
    save_file(state, tmp_path / "state.safetensors")
    assert all(torch.equal(value, state[key]) for key, value in load_file(tmp_path / "state.safetensors").items())


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    "change",
    [
        {"n_layers": 1.5}, {"n_layers": True}, {"n_layers": "2"}, {"n_layers": None}, {"d_model": float("nan")},
        {"eps": -1.0}, {"eps": float("nan")}, {"eps": "1e-5"}, {"attn_scale": float("inf")}, {"attn_scale": 0},
        {"rotary_base": 0.0}, {"fire_c": -1.0}, {"gated_mlp": 1}, {"dropout": 1.0}, {"attn_top_k": 2.0},
    ],
)  # fmt: skip
def test_a_config_takes_no_number_of_another_kind(change):
    with pytest.raises(UserError, match=next(iter(change))):
        TransformerConfig(**(SMALL | change))


@pytest.mark.usefixtures("without_shape_checks")
@given(st.sampled_from([np.int64, np.int32, np.uint8]), st.integers(1, 8))
def test_numpy_s_numbers_are_python_s(kind, n):
    config = TransformerConfig(**(SMALL | {"n_layers": kind(n), "eps": np.float64(1e-5), "final_norm": np.bool_(True)}))
    assert config == TransformerConfig(**(SMALL | {"n_layers": n}))
    assert [type(value) for value in (config.n_layers, config.eps, config.final_norm)] == [int, float, bool]
