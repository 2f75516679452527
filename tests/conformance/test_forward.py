"""The options of ``forward`` and ``run_with_cache``."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from transformer_lens import ActivationCache

from models.errors import UserError
from tests.comparing import assert_same
from tests.conformance.expected import expected_activations

pytestmark = pytest.mark.transformer_lens


def test_logits_have_a_row_per_position_and_a_column_per_token(model, tokens):
    assert model(tokens).shape == (*tokens.shape, model.config.d_vocab)


@pytest.mark.every_switch
def test_the_future_does_not_change_the_past(model, tokens):
    assert_same(model(tokens[:, :4]), model(tokens)[:, :4])


def test_return_type_chooses_between_logits_loss_both_and_nothing(model, tokens):
    logits = model(tokens, return_type="logits")
    loss = model(tokens, return_type="loss")
    both = model(tokens, return_type="both")
    assert torch.equal(both[0], logits) and torch.equal(both[1], loss)
    assert model(tokens, return_type=None) is None
    expected = F.cross_entropy(logits[:, :-1].transpose(1, 2).double(), tokens[:, 1:])
    assert loss.shape == () and loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_without_a_return_type_the_unembedding_does_not_run(model, tokens):
    _, cache = model.run_with_cache(tokens, return_type=None)
    assert "unembed.hook_in" not in cache and "hook_embed" in cache


def test_the_loss_per_token_averages_to_the_loss(model, tokens):
    per_token = model(tokens, return_type="loss", loss_per_token=True)
    assert per_token.shape == (tokens.shape[0], tokens.shape[1] - 1)
    assert_same(per_token.mean(), model(tokens, return_type="loss"))


def test_a_run_can_stop_before_any_layer(model, tokens):
    _, cache = model.run_with_cache(tokens)
    for layer in range(model.config.n_layers):
        assert torch.equal(model(tokens, stop_at_layer=layer), cache["resid_pre", layer])
        assert torch.equal(model(tokens, stop_at_layer=layer - model.config.n_layers), cache["resid_pre", layer])
    assert torch.equal(model(tokens, stop_at_layer=model.config.n_layers), cache["resid_post", -1])


@pytest.mark.every_switch
def test_a_run_can_start_at_any_layer(model, tokens):
    logits, cache = model.run_with_cache(tokens)
    for layer in range(model.config.n_layers):
        assert torch.equal(model(cache["resid_pre", layer], start_at_layer=layer), logits)
        assert torch.equal(model(cache["resid_pre", layer], start_at_layer=layer - model.config.n_layers), logits)
    resumed = model(cache["resid_pre", 0], start_at_layer=0, return_type="loss", tokens=tokens)
    assert torch.equal(resumed, model(tokens, return_type="loss"))


def test_a_run_from_a_layer_caches_that_layer_onwards(model, tokens):
    _, cache = model.run_with_cache(model(tokens, stop_at_layer=0), start_at_layer=0)
    expected = expected_activations(model.config, *tokens.shape)
    assert list(cache) == [name for name in expected if name not in ("hook_embed", "hook_pos_embed")]


def test_given_weights_take_the_place_of_the_models_own(row, model, tokens):
    other = row.build(9)
    assert torch.equal(model(tokens, weights=other.effective_weights()), other(tokens))
    assert not torch.equal(model(tokens), other(tokens))


def test_parts_work_on_their_own_as_in_transformer_lens(model, tokens):
    """The tools call ``model.ln_final(x)`` and ``model.unembed(x)`` with one argument."""
    logits, cache = model.run_with_cache(tokens)
    stream = model.embed(tokens)
    if hasattr(model, "pos_embed"):
        stream = stream + model.pos_embed(tokens)
    assert torch.equal(stream, cache["resid_pre", 0])
    for layer, block in enumerate(model.blocks):
        stream = block(stream)
        assert torch.equal(stream, cache["resid_post", layer])
    stream = model.ln_final(stream) if hasattr(model, "ln_final") else stream
    assert torch.equal(model.unembed(stream), logits)


def test_run_with_cache_returns_an_activation_cache_or_a_dictionary(model, tokens):
    logits, cache = model.run_with_cache(tokens)
    assert isinstance(cache, ActivationCache) and cache.model is model and cache.has_batch_dim
    assert torch.equal(logits, model(tokens))
    _, plain = model.run_with_cache(tokens, return_cache_object=False)
    assert type(plain) is dict
    assert_same(dict(cache.items()), plain, tolerance=0.0)


def test_remove_batch_dim_drops_the_first_axis_of_one_sequence(model, tokens):
    _, batched = model.run_with_cache(tokens[:1])
    _, single = model.run_with_cache(tokens[:1], remove_batch_dim=True)
    assert not single.has_batch_dim
    assert_same(dict(single.items()), {name: value[0] for name, value in batched.items()}, tolerance=0.0)


def test_remove_batch_dim_refuses_several_sequences(model, tokens):
    with pytest.raises(UserError, match="one sequence, not 3"):
        model.run_with_cache(tokens, remove_batch_dim=True)
    with pytest.raises(UserError, match="one sequence, not 3"):
        model.run_with_cache(model(tokens, stop_at_layer=0), start_at_layer=0, remove_batch_dim=True)


@pytest.mark.parametrize(
    "names_filter",
    ["blocks.0.attn.hook_pattern", ["blocks.0.attn.hook_pattern"], lambda name: name == "blocks.0.attn.hook_pattern"],
    ids=["name", "list", "function"],
)
def test_names_filter_keeps_what_it_names(model, tokens, names_filter):
    _, cache = model.run_with_cache(tokens, names_filter=names_filter)
    assert list(cache) == ["blocks.0.attn.hook_pattern"]


def test_pos_slice_keeps_the_query_positions_of_every_activation(model, tokens):
    _, whole = model.run_with_cache(tokens)
    _, cut = model.run_with_cache(tokens, pos_slice=slice(1, 3))
    for name, value in whole.items():
        per_head = name.endswith(("hook_q", "hook_k", "hook_v", "hook_z"))
        axis = 2 if value.ndim == 4 and not per_head else 1
        if name.endswith(("hook_rot_q", "hook_rot_k")):
            axis = 2  # TransformerLens slices the head axis of rotated queries and keys
        assert torch.equal(cut[name], value[(slice(None),) * axis + (slice(1, 3),)]), name


@pytest.mark.every_switch
def test_incl_bwd_caches_the_gradient_of_every_activation(model, tokens):
    _, cache = model.run_with_cache(tokens, return_type="loss", incl_bwd=True)
    gradients = [name for name in cache if name.endswith("_grad")]
    differentiable = [name for name in cache if not name.endswith(("_grad", "hook_top_k_mask"))]
    assert {name.removesuffix("_grad") for name in gradients} == set(differentiable)
    base = cache["hook_embed"].clone()
    direction = torch.randn(base.shape, generator=torch.Generator().manual_seed(0)).double()
    exact = model.double()

    def loss_at(step: float) -> float:
        hook = ("hook_embed", lambda value, hook: value + step * direction)
        return exact.run_with_hooks(tokens, return_type="loss", fwd_hooks=[hook]).item()

    # A step so small that no ReLU, distance or place among the best keys passes its kink on the way.
    slope = (loss_at(1e-7) - loss_at(-1e-7)) / 2e-7
    assert (cache["hook_embed_grad"].double() * direction).sum().item() == pytest.approx(slope, rel=1e-3, abs=1e-4)
