"""Weights: names, shapes, factored products, and that the model holds its free parameters and nothing else."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap
from transformer_lens import FactoredMatrix

from models.errors import UserError
from models.transformer.parts.weights import weight_shapes
from tests.comparing import assert_same


def promised_shapes(cfg) -> dict[str, tuple[int, ...]]:
    """Shapes of the weight properties, as TransformerLens documents them."""
    L, H, D, d, M, V = cfg.n_layers, cfg.n_heads, cfg.d_model, cfg.d_head, cfg.d_mlp, cfg.d_vocab
    shapes = {"W_E": (V, D), "W_U": (D, V), "b_U": (V,), "W_O": (L, H, d, D), "b_O": (L, D)}
    shapes |= {f"W_{x}": (L, H, D, d) for x in "QKV"} | {f"b_{x}": (L, H, d) for x in "QKV"}
    if M:
        shapes |= {"W_in": (L, D, M), "b_in": (L, M), "W_out": (L, M, D), "b_out": (L, D)}
    if cfg.gated_mlp:
        shapes["W_gate"] = (L, D, M)
    if cfg.positional_embedding_type == "standard":
        shapes["W_pos"] = (cfg.n_ctx, D)
    if cfg.positional_embedding_type == "coupled":
        shapes["W_pos"] = (cfg.n_position_levels, cfg.n_position_ids or cfg.n_ctx, D)
    return shapes


@pytest.mark.every_switch
def test_weight_properties_have_the_promised_shapes(model):
    for name, shape in promised_shapes(model.config).items():
        assert tuple(getattr(model, name).shape) == shape, name


def test_weights_that_a_model_lacks_are_no_attributes(model):
    assert hasattr(model, "W_in") == hasattr(model, "b_out") == bool(model.config.d_mlp)
    assert hasattr(model, "W_pos") == (model.config.positional_embedding_type in ("standard", "coupled"))
    assert (model.W_gate is not None) == model.config.gated_mlp
    if model.config.d_mlp:
        assert hasattr(model.blocks[0].mlp, "W_gate") == model.config.gated_mlp


def test_component_attributes_are_the_rows_of_the_stacked_weights(model):
    for layer, block in enumerate(model.blocks):
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
            assert torch.equal(getattr(block.attn, name), getattr(model, name)[layer])
        if model.config.d_mlp:
            for name in ("W_in", "W_out", "b_in", "b_out"):
                assert torch.equal(getattr(block.mlp, name), getattr(model, name)[layer])
    assert torch.equal(model.embed.W_E, model.W_E) and torch.equal(model.unembed.W_U, model.W_U)
    if hasattr(model, "ln_final"):
        assert torch.equal(model.ln_final.w, model.tl_parameters()["ln_final.w"])


def test_assigning_a_computed_weight_is_refused(model):
    with pytest.raises(UserError, match=r"blocks\.0\.attn\.W_O is computed"):
        model.blocks[0].attn.W_O = torch.zeros_like(model.blocks[0].attn.W_O)


@pytest.mark.transformer_lens
def test_qk_and_ov_are_the_factored_products_of_each_head(model):
    assert isinstance(model.QK, FactoredMatrix) and isinstance(model.OV, FactoredMatrix)
    for layer in range(model.config.n_layers):
        for head in range(model.config.n_heads):
            assert_same(model.QK.AB[layer, head], model.W_Q[layer, head] @ model.W_K[layer, head].T)
            assert_same(model.OV.AB[layer, head], model.W_V[layer, head] @ model.W_O[layer, head])


def test_the_state_dict_and_the_parameters_are_the_weight_maps_and_nothing_else(model):
    free = dict(model.weight_map.named_parameters())
    assert set(model.state_dict()) == {f"weight_map.{name}" for name in free}
    assert {id(p) for p in model.parameters()} == {id(p) for p in free.values()}


def test_a_state_dict_carries_the_model_over(row, model, tokens):
    other = row.build(9)
    assert not torch.equal(other(tokens), model(tokens))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(tokens), model(tokens))


@pytest.mark.every_switch
def test_tl_parameters_are_all_effective_weights_with_zero_biases_filled_in(model, tokens):
    parameters = model.tl_parameters()
    shapes = {key: tuple(value.shape) for key, value in parameters.items()}
    assert shapes == weight_shapes(model.config)
    assert_same(model(tokens, weights=parameters), model(tokens))


def test_a_deep_copy_is_equal_and_independent(model, tokens):
    before = model(tokens)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(tokens), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    twin.set_use_attn_result(True)
    twin.add_hook("hook_embed", lambda value, hook: value * 0)
    assert torch.equal(model(tokens), before)
    assert not model.cfg.use_attn_result
    assert twin.cfg.device == model.cfg.device and twin.blocks[0].attn.W_O.shape == model.blocks[0].attn.W_O.shape
    assert not torch.equal(twin.blocks[0].attn.W_O, model.blocks[0].attn.W_O)


def test_double_computes_the_same_function_in_float64(model, tokens):
    single = model(tokens)
    model.double()
    logits, cache = model.run_with_cache(tokens)
    assert model.cfg.dtype == logits.dtype == torch.float64
    floats = [value for name, value in cache.items() if not name.endswith("hook_top_k_mask")]
    assert {value.dtype for value in floats} == {torch.float64}
    assert_same(single, logits, tolerance=1e-5)


@torch.no_grad()
def test_half_precision_normalises_in_float32(model, tokens):
    exact = model.double()(tokens)
    logits, cache = model.bfloat16().run_with_cache(tokens)
    assert logits.dtype == cache["resid_post", -1].dtype == torch.bfloat16
    scales = [value.dtype for name, value in cache.items() if name.endswith("hook_scale")]
    assert set(scales) <= {torch.float32}
    assert logits.isfinite().all() and exact.shape == logits.shape


def test_stacked_parameters_run_under_vmap_like_single_models(row, tokens):
    seeds = [row.build(seed) for seed in range(3)]
    parameters, buffers = stack_module_state(seeds)

    def run(p, b):
        return functional_call(seeds[0], (p, b), (tokens,))

    stacked = vmap(run)(parameters, buffers)
    for seed, model in enumerate(seeds):
        assert_same(stacked[seed], model(tokens), what=f"seed {seed}")


@pytest.mark.every_switch
def test_stacked_seeds_each_see_their_own_tokens_and_get_their_own_gradient(row, tokens, corrupted):
    """What training does: weights and tokens both carry a seed axis."""
    seeds = [row.build(seed) for seed in range(2)]
    batches = torch.stack((tokens, corrupted))
    parameters, _ = stack_module_state([model.weight_map for model in seeds])

    def loss(p, rows):
        weights = functional_call(seeds[0].weight_map, p, ())
        logits = seeds[0](seeds[0].embed_tokens(rows, weights), start_at_layer=0, weights=weights)
        return logits.square().mean()

    losses = vmap(loss)(parameters, batches)
    losses.sum().backward()
    for seed, model in enumerate(seeds):
        alone = model(batches[seed]).square().mean()
        assert_same(losses[seed], alone)
        free = dict(model.weight_map.named_parameters())
        expected = torch.autograd.grad(alone, list(free.values()))
        stacked = [parameters[name].grad[seed] for name in free]
        # One vector: some gradients are zero but for rounding (a key bias shifts all scores of a query alike).
        assert_same(*(torch.cat([g.flatten() for g in gradients]) for gradients in (stacked, expected)))
