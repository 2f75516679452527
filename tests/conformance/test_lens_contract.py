"""The remaining things that TransformerLens' tools ask a model for."""

from __future__ import annotations

import warnings

import pytest
import torch
from transformer_lens.utilities import get_act_name

from models.errors import UserError
from tests.comparing import assert_same

pytestmark = pytest.mark.transformer_lens


@pytest.mark.every_switch
def test_embeddings_and_sublayer_outputs_add_up_to_the_last_residual_stream(model, tokens):
    _, cache = model.run_with_cache(tokens)
    total = cache["hook_embed"]
    if "hook_pos_embed" in cache:
        total = total + cache["hook_pos_embed"]
    for layer in range(model.config.n_layers):
        total = total + cache["attn_out", layer] + (cache["mlp_out", layer] if model.config.d_mlp else 0)
    adds_up = torch.allclose(total, cache["resid_post", -1], atol=1e-5, rtol=1e-5)
    assert adds_up == model.config.residual_stream_adds_up


def test_the_heads_results_and_the_bias_are_the_attention_output(model, tokens):
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(tokens)
    for layer in range(model.config.n_layers):
        assert_same(cache["result", layer].sum(2) + model.b_O[layer], cache["attn_out", layer])


@pytest.mark.rows(lambda row: row.config.has_final_norm)
def test_every_normalised_stream_is_the_stream_over_its_scale(model, tokens):
    _, cache = model.run_with_cache(tokens)
    stream = cache["resid_post", -1]
    if model.config.normalization_type == "LN":
        stream = stream - stream.mean(-1, keepdim=True)
    assert_same(cache["ln_final.hook_normalized"], stream / cache["ln_final.hook_scale"])


def test_masked_scores_are_minus_infinity_and_patterns_sum_to_one(model, tokens):
    _, cache = model.run_with_cache(tokens)
    pos = tokens.shape[1]
    future = torch.ones(pos, pos, dtype=torch.bool).triu(1)
    for layer in range(model.config.n_layers):
        scores, pattern = cache["attn_scores", layer], cache["pattern", layer]
        assert torch.equal(scores == float("-inf"), future.expand_as(scores))
        assert (pattern[..., future] == 0).all()
        assert_same(pattern.sum(-1), torch.ones(pattern.shape[:-1]))


def test_accumulated_bias_sums_the_output_biases_below_a_layer(model):
    b_out = model.b_out if model.config.d_mlp else torch.zeros_like(model.b_O)
    n = model.config.n_layers
    for layer in range(n + 1):
        attn, mlp = model.b_O[:layer].sum(0), b_out[:layer].sum(0)
        assert_same(model.accumulated_bias(layer), attn + mlp)
        assert_same(model.accumulated_bias(layer, include_mlp_biases=False), attn)
        if layer < n:
            assert_same(model.accumulated_bias(layer, mlp_input=True), attn + mlp + model.b_O[layer])
    for layer, mlp_input in ((n + 1, False), (-1, False), (n, True)):
        with pytest.raises(UserError, match="layer"):
            model.accumulated_bias(layer, mlp_input=mlp_input)


def test_blocks_with_lists_the_layers_that_have_a_part(model):
    layers = list(enumerate(model.blocks))
    assert model.blocks_with("attn") == layers
    assert model.blocks_with("mlp") == (layers if model.config.d_mlp else [])
    assert model.blocks_with("mixer") == []


def test_head_labels_answer_as_a_property_and_as_a_method(model):
    labels = [f"L{layer}H{head}" for layer in range(model.config.n_layers) for head in range(model.config.n_heads)]
    assert model.all_head_labels == labels == model.all_head_labels()


def test_the_runtime_config_has_what_the_tools_read(model):
    cfg = model.cfg
    assert cfg.n_key_value_heads is None
    assert cfg.device == torch.device("cpu") and cfg.dtype == torch.float32
    assert cfg.n_ctx >= model.task.input_length
    assert cfg.attn_only == (model.config.d_mlp == 0)
    assert (cfg.n_layers, cfg.d_vocab_out, cfg.attn_scale) == (
        model.config.n_layers,
        model.config.d_vocab,
        model.config.score_scale,
    )
    with pytest.raises(UserError, match=r"cfg\.d_model is fixed"):
        cfg.d_model = 3
    assert get_act_name("resid_pre", cfg.n_layers - 1) in model.hook_dict


def test_residual_directions_are_the_columns_of_the_unembedding(model):
    directions = model.tokens_to_residual_directions(torch.arange(model.config.d_vocab))
    assert torch.equal(directions, model.W_U.T)


@pytest.mark.rows(lambda row: not row.config.has_post_norm)
@pytest.mark.every_switch
def test_folding_the_norms_keeps_the_logits_and_leaves_no_gain(model, tokens):
    folded = model.fold_layer_norm()
    assert_same(folded(tokens), model(tokens))
    gated_layer_norm = model.config.gated_mlp and model.config.normalization_type == "LN"
    for key, weight in folded.all_weights().items():
        if not (gated_layer_norm and ".ln2." in key):
            assert not key.endswith((".w", ".b")) or torch.equal(weight, torch.full_like(weight, key.endswith(".w")))
    with torch.no_grad():  # a copy, not a view
        for parameter in folded.parameters():
            parameter.zero_()
    assert model(tokens).std() > 0


@pytest.mark.rows(lambda row: row.config.has_post_norm)
def test_post_norms_cannot_be_folded(model):
    with pytest.raises(UserError, match="cannot be folded"):
        model.fold_layer_norm()


def test_residual_directions_take_a_token_as_text_number_or_tensor(model):
    every = model.tokens_to_residual_directions(torch.arange(model.config.d_vocab))
    assert every.shape == (model.config.d_vocab, model.config.d_model)
    text = model.to_string(3)
    for token in (3, text, torch.tensor(3), torch.tensor([3])):
        assert torch.equal(model.tokens_to_residual_directions(token), every[3])
    grid = torch.tensor([[1, 2], [3, 0]])
    assert torch.equal(model.tokens_to_residual_directions(grid), every[grid])
    with pytest.raises(UserError, match="no token -1"):
        model.tokens_to_residual_directions(torch.tensor([1, -1]))


def test_directions_that_miss_a_norms_gain_are_given_with_a_warning(model, tokens):
    """A stock bridge refuses them in direct_logit_attribution; a HookedTransformer gives them without a word."""
    _, cache = model.run_with_cache(tokens)
    if model.config.has_final_norm:
        with pytest.warns(UserWarning):
            model.tokens_to_residual_directions(3)
        if model.config.residual_stream_adds_up:
            with pytest.warns(UserWarning):
                cache.logit_attrs(cache.decompose_resid(), 3)
    plain = (
        model if not model.config.has_final_norm else None if model.config.has_post_norm else model.fold_layer_norm()
    )
    if plain is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plain.tokens_to_residual_directions(3)


def test_tokens_and_text_translate_both_ways(model, tokens):
    text = model.to_string(3)
    assert isinstance(text, str) and model.to_single_token(text) == 3 == model.to_single_token(model.to_string([3]))
    assert model.to_single_str_token(3) == text
    assert model.to_string(tokens[0]) == "".join(model.to_string(int(token)) for token in tokens[0])
    assert model.to_string(tokens) == [model.to_string(row) for row in tokens]
    assert model.to_str_tokens(tokens[:1]) == [model.to_string(int(token)) for token in tokens[0]]
    first = model.get_token_position(int(tokens[0, 2]), tokens[:1])
    last = model.get_token_position(model.to_string(int(tokens[0, 2])), tokens[:1], mode="last")
    assert tokens[0, first] == tokens[0, last] == tokens[0, 2] and first <= 2 <= last


def test_to_tokens_gives_a_checked_batch(model, tokens):
    assert torch.equal(model.to_tokens(tokens), tokens)
    assert torch.equal(model.to_tokens(tokens[0]), tokens[:1])
    assert torch.equal(model.to_tokens(tokens.tolist()), tokens)
    assert torch.equal(model.to_tokens(tokens.numpy().astype("uint8")), tokens)


def test_problems_are_encoded_by_the_task(row, model):
    encoded = model.task.for_problems(row.problems).encode(row.problems)
    assert torch.equal(model.to_tokens(row.problems), encoded)
    assert torch.equal(model.to_tokens(row.problems[0]), encoded[:1])
    assert torch.equal(model(row.problems[0]), model(encoded[:1]))
