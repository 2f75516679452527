"""What a user can get wrong about a model's input: one sentence each, as a UserError."""

from __future__ import annotations

import pytest
import torch

import models
from models.errors import UserError
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import dense

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # users run without them


@pytest.fixture
def adder() -> ArithmeticTransformer:
    return models.build("microadder-57")


BAD_TOKENS = {
    "an id beyond the vocabulary": (torch.tensor([[1, 10]]), "no token 10; token ids run from 0 to 9"),
    "a negative id": (torch.tensor([[1, -1]]), "no token -1"),
    "floats": (torch.tensor([[1.0, 2.0]]), "must be integers, not torch.float32"),
    "a list of floats": ([1.0, 2.0], "must be integers"),
    "booleans": (torch.tensor([[True, False]]), "must be integers, not torch.bool"),
    "complex numbers": (torch.tensor([[1j]]), "must be integers"),
    "no axis": (torch.tensor(3), r"shape \[batch, pos\] with at least one position, not \[\]"),
    "three axes": (torch.zeros(2, 3, 4, dtype=torch.long), r"not \[2, 3, 4\]"),
    "no positions": (torch.zeros(2, 0, dtype=torch.long), r"not \[2, 0\]"),
    "too many positions": (torch.zeros(1, 35, dtype=torch.long), "35 tokens; this model takes at most 34"),
    "rows of different lengths": ([[1, 2], [3]], "not an array of token ids"),
    "nothing": ([], "empty"),
    "None": (None, "not an array of token ids"),
    "text that is no problem": ("57 plus 48", "not a problem"),
    "a number out of range": ((10**10, 1), "must lie in 0"),
    "a problem of three numbers": ([(1, 2, 3)], "not a problem"),
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_tokens_that_cannot_be_right_are_refused_everywhere(adder, name):
    tokens, sentence = BAD_TOKENS[name]
    for entry in (adder, adder.to_tokens, adder.run_with_cache, adder.to_str_tokens):
        with pytest.raises(UserError, match=sentence):
            entry(tokens)


def test_a_batch_without_sequences_gives_no_logits(adder):
    assert adder(torch.zeros(0, 5, dtype=torch.long)).shape == (0, 5, 10)


BAD_OPTIONS = {
    "an unknown return type": ({"return_type": "probabilities"}, "'logits', 'loss' or 'both', not 'probabilities'"),
    "an unknown option": ({"temperature": 2.0}, "does not take temperature"),
    "an option of HookedTransformer that has no meaning here": ({"prepend_bos": True}, "prepended"),
    "a layer below the first": ({"stop_at_layer": -2}, "stop_at_layer must be an integer from -1 to 1, not -2"),
    "a layer above the last": ({"stop_at_layer": 2}, "stop_at_layer must be an integer from -1 to 1, not 2"),
    "a layer that is no number": ({"stop_at_layer": "last"}, "stop_at_layer must be an integer"),
    "tokens where a residual stream belongs": ({"start_at_layer": 0}, r"float tensor \[batch, pos, d_model\]"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_options_that_cannot_be_right_are_refused(adder, name):
    options, sentence = BAD_OPTIONS[name]
    with pytest.raises(UserError, match=sentence):
        adder(torch.tensor([[1, 2, 3]]), **options)


def test_options_that_are_off_do_not_matter(adder):
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(adder(tokens, prepend_bos=False, padding_side=None), adder(tokens))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((3, 5), r"not \[3, 5\]"),
        ((1, 3, 4), r"\[batch, pos, 5\]"),
        ((1, 0, 5), "at least one"),
        ((1, 35, 5), "at most 34"),
    ],
)
def test_a_residual_stream_of_another_shape_is_refused(adder, shape, sentence):
    with pytest.raises(UserError, match=sentence):
        adder(torch.zeros(shape), start_at_layer=0)


def test_the_loss_from_a_residual_stream_needs_the_tokens(adder):
    stream = adder(torch.tensor([[1, 2, 3]]), stop_at_layer=0)
    with pytest.raises(UserError, match="pass tokens="):
        adder(stream, start_at_layer=0, return_type="loss")


@pytest.mark.parametrize("token", ["10", "x", "", "1 2"])
def test_text_that_is_not_one_token_is_refused(adder, token):
    with pytest.raises(UserError, match="is not a token"):
        adder.to_single_token(token)


def test_text_of_a_token_that_does_not_exist_is_refused(adder):
    for entry in (adder.to_string, adder.to_single_str_token, adder.tokens_to_residual_directions):
        with pytest.raises(UserError, match="no token 12"):
            entry(12)


def test_a_token_that_does_not_occur_has_no_position(adder):
    with pytest.raises(UserError, match="'7' does not occur"):
        adder.get_token_position("7", (1, 2))


def test_a_model_without_mlps_has_no_hook_before_them():
    with pytest.raises(UserError, match="no hook_mlp_in"):
        dense(d_mlp=0)().set_use_hook_mlp_in(True)


@pytest.mark.parametrize(
    ("switches", "sentence"),
    [
        ({"norm_placement": "sandwich"}, "norm_placement 'sandwich'"),
        ({"act_fn": "gelu_nwe"}, "Did you mean 'gelu_new'"),
        ({"normalization_type": "LNPre"}, "normalization_type"),
        ({"n_heads": 0}, "n_heads must be at least 1"),
        ({"positional_embedding_type": "rotary", "d_head": 5}, "even d_head"),
        ({"dropout": 1.0}, "dropout"),
        ({"attn_top_k": 0}, "attn_top_k must be at least 1"),
        ({"attn_scale": 0.0}, "attn_scale must be positive"),
        ({"d_mlp": -1}, "d_mlp must be"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused(switches, sentence):
    with pytest.raises(UserError, match=sentence):
        dense(**switches)()
