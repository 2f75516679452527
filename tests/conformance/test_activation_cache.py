"""Every public method of ActivationCache, on every model, against a stock model with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformer_lens import ActivationCache

from models.errors import UserError
from tests.comparing import assert_same
from tests.conformance.table import STOCK_CLASS

pytestmark = [pytest.mark.transformer_lens, pytest.mark.usefixtures("without_shape_checks")]


def _head_results(cache: ActivationCache) -> Any:
    cache.compute_head_results()
    return cache.stack_activation("result", sublayer_type="attn")


def _projections(cache: ActivationCache) -> torch.Tensor:
    return torch.linspace(-1, 1, 2 * cache.model.cfg.d_model).view(-1, 2)


def _last(cache: ActivationCache) -> int:
    return cache.model.cfg.n_layers - 1


# Calls that must agree with a stock model. A value per call; several calls of one method under one name.
ANY_MODEL: dict[str, list[Callable[[ActivationCache], Any]]] = {
    "keys": [lambda c: list(c.keys())],
    "values": [lambda c: list(c.values())],
    "items": [lambda c: dict(c.items())],
    "to": [lambda c: dict(c.to("cpu").items())],
    "apply_slice_to_batch_dim": [lambda c: dict(c.apply_slice_to_batch_dim(slice(1, 3)).items())],
    "stack_activation": [
        lambda c: c.stack_activation("resid_pre"),
        lambda c: c.stack_activation("pattern", layer=1),
        lambda c: c.stack_activation("v", sublayer_type="attn"),
    ],
    "accumulated_resid": [
        lambda c: c.accumulated_resid(return_labels=True),
        lambda c: c.accumulated_resid(apply_ln=True, pos_slice=-1),
        lambda c: c.accumulated_resid(layer=_last(c), apply_ln=True),
    ],
    "decompose_resid": [
        lambda c: c.decompose_resid(return_labels=True),
        lambda c: c.decompose_resid(apply_ln=True, mode="attn"),
        lambda c: c.decompose_resid(layer=1, pos_slice=(1, 3), incl_embeds=False, mode="attn"),
    ],
    "compute_head_results": [_head_results],
    "stack_head_results": [
        lambda c: c.stack_head_results(return_labels=True),
        lambda c: c.stack_head_results(incl_remainder=True, apply_ln=True, pos_slice=-1),
    ],
    "apply_ln_to_stack": [lambda c: c.apply_ln_to_stack(c.stack_activation("resid_pre"))],
}
# A stock model without MLPs fails in get_full_resid_decomposition, which another test covers there.
WITH_MLPS: dict[str, list[Callable[[ActivationCache], Any]]] = {
    "accumulated_resid": [lambda c: c.accumulated_resid(incl_mid=True, mlp_input=True, layer=_last(c))],
    "decompose_resid": [
        lambda c: c.decompose_resid(layer=_last(c), mlp_input=True, apply_ln=True, return_labels=True),
        lambda c: c.decompose_resid(mode="mlp"),
    ],
    "get_neuron_results": [
        lambda c: c.get_neuron_results(0),
        lambda c: c.get_neuron_results(_last(c), neuron_slice=(0, 2), pos_slice=-1),
    ],
    "stack_neuron_results": [
        lambda c: c.stack_neuron_results(-1, return_labels=True),
        lambda c: c.stack_neuron_results(-1, incl_remainder=True, apply_ln=True, neuron_slice=(0, 2)),
    ],
    "get_full_resid_decomposition": [
        lambda c: c.get_full_resid_decomposition(return_labels=True),
        lambda c: c.get_full_resid_decomposition(apply_ln=True, expand_neurons=False),
        lambda c: c.get_full_resid_decomposition(layer=_last(c), pos_slice=-1, apply_ln=True),
        lambda c: c.get_full_resid_decomposition(mlp_input=True, layer=_last(c), apply_ln=True),
    ],
}
# TransformerLens looks for the norm's scale here even in models without norms.
WITH_MLPS_AND_NORMS: dict[str, list[Callable[[ActivationCache], Any]]] = {
    "stack_neuron_results": [
        lambda c: c.stack_neuron_results(-1, apply_ln=True, project_output_onto=_projections(c)),
    ],
    "get_full_resid_decomposition": [
        lambda c: c.get_full_resid_decomposition(apply_ln=True, project_output_onto=_projections(c)),
    ],
}
# Tested apart: they change global state or the cache, need an answer token, or exist in some versions only.
APART = {"remove_batch_dim", "toggle_autodiff", "logit_attrs", "logit_lens"}
NOT_FOR_TRANSFORMERS = {"ssm_layers", "compute_ssm_state", "compute_ssm_effective_attention"}


def stock_names(cache: ActivationCache) -> list[str]:
    """Activations that this environment's stock model computes the same way, in firing order.

    The bridge derives unmasked scores after the fact, and does not show rotated queries and keys.
    """
    absent = ("hook_attn_scores", "hook_rot_q", "hook_rot_k") if STOCK_CLASS == "TransformerBridge" else ()
    return [name for name in cache if not name.endswith(absent)]


def test_every_public_method_is_tested():
    public = {name for name in dir(ActivationCache) if not name.startswith("_")}
    assert public - {"logit_lens"} == (set(ANY_MODEL) | set(WITH_MLPS) | APART | NOT_FOR_TRANSFORMERS) - {"logit_lens"}


@torch.no_grad()
@pytest.mark.every_switch
def test_a_stock_model_with_the_same_weights_has_the_same_cache(model, tokens, twin):
    (logits, ours), (their_logits, theirs) = model.run_with_cache(tokens), twin.run_with_cache(tokens)
    assert_same(logits, their_logits)
    if STOCK_CLASS == "HookedTransformer":
        without_positions = model.config.positional_embedding_type == "none"  # the twin has a table of zeros
        assert list(ours) == [name for name in theirs if not (without_positions and name == "hook_pos_embed")]
    for name in stock_names(ours):
        assert_same(ours[name], theirs[name], what=name)


@pytest.mark.skipif(STOCK_CLASS != "HookedTransformer", reason="the native bridge has no gated attention hooks")
@torch.no_grad()
def test_gated_activations_equal_a_stock_models(model, tokens, twin):
    for switch in ("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in"):
        if not model.config.d_mlp and switch == "use_hook_mlp_in":
            continue
        for one in (model, twin):
            getattr(one, f"set_{switch}")(True)
    (_, ours), (_, theirs) = model.run_with_cache(tokens), twin.run_with_cache(tokens)
    gated = [name for name in ours if name.endswith(("hook_result", "_input", "hook_mlp_in"))]
    assert len(gated) == model.config.n_layers * (5 if model.config.d_mlp else 4)
    for name in gated:
        assert_same(ours[name], theirs[name], what=name)


@torch.no_grad()
def test_cache_methods_give_the_same_numbers_as_on_a_stock_model(model, tokens, twin):
    (_, ours), (_, theirs) = model.run_with_cache(tokens), twin.run_with_cache(tokens)

    def cut(cache: ActivationCache) -> ActivationCache:
        """A new cache of the activations that both have, in this model's order."""
        return ActivationCache({name: cache[name] for name in stock_names(ours)}, cache.model)

    groups = [ANY_MODEL]
    if model.config.d_mlp:
        groups += [WITH_MLPS, WITH_MLPS_AND_NORMS] if model.config.has_final_norm else [WITH_MLPS]
    for group in groups:
        for name, calls in group.items():
            for call in calls:
                # Single neurons write little beside the stream whose roundings they carry on: 1.1e-5 without AVX.
                assert_same(call(cut(ours)), call(cut(theirs)), tolerance=3e-5, what=name)


@torch.no_grad()
@pytest.mark.rows(lambda row: row.config.residual_stream_adds_up)
@pytest.mark.every_switch
def test_decompositions_add_up_to_the_stream_they_decompose(model, tokens):
    _, cache = model.run_with_cache(tokens)
    last = cache["resid_post", -1]
    assert_same(cache.decompose_resid().sum(0), last)
    assert_same(cache.get_full_resid_decomposition().sum(0), last)
    assert_same(cache.get_full_resid_decomposition(expand_neurons=False).sum(0), last)
    assert_same(cache.stack_head_results(incl_remainder=True).sum(0), last)
    assert_same(cache.accumulated_resid()[-1], last)


@torch.no_grad()
@pytest.mark.rows(lambda row: row.config.residual_stream_adds_up)
def test_logit_attributions_of_all_components_add_up_to_the_logits_once_norms_are_folded(model, tokens):
    model = model.fold_layer_norm()
    logits, cache = model.run_with_cache(tokens)
    parts = cache.decompose_resid()
    right, wrong = 3, 1
    assert_same(cache.logit_attrs(parts, right).sum(0), logits[..., right] - model.b_U[right])
    difference = cache.logit_attrs(parts, model.to_string(right), incorrect_tokens=model.to_string(wrong)).sum(0)
    assert_same(difference, (logits - model.b_U)[..., right] - (logits - model.b_U)[..., wrong])
    each = tokens[:, -1]  # another answer for each sequence, at one position
    at_end = cache.logit_attrs(cache.decompose_resid(pos_slice=-1), each, pos_slice=-1).sum(0)
    assert_same(at_end, (logits - model.b_U)[:, -1].gather(1, each[:, None])[:, 0])


@torch.no_grad()
def test_logit_attributions_equal_those_of_a_stock_model_with_the_same_weights(model, tokens, twin):
    """Unfolded on both sides: the same numbers, gains of norms missing alike."""
    if STOCK_CLASS != "HookedTransformer":
        pytest.skip("the bridge folds norms itself before it attributes")
    (_, ours), (_, theirs) = model.run_with_cache(tokens), twin.run_with_cache(tokens)
    for answer, other in ((3, None), (tokens[:, -1], None), (3, 7)):
        stacks = [cache.decompose_resid(mlp_input=False, pos_slice=-1) for cache in (ours, theirs)]
        values = [
            cache.logit_attrs(stack, answer, incorrect_tokens=other, pos_slice=-1)
            for cache, stack in zip((ours, theirs), stacks, strict=True)
        ]
        if values[0].shape == values[1].shape:  # a twin of a model without positions has one more, zero, component
            assert_same(*values)
        else:
            assert_same(values[0].sum(0), values[1].sum(0))


@torch.no_grad()
def test_remove_batch_dim_makes_a_cache_of_one_sequence(model, tokens):
    _, cache = model.run_with_cache(tokens[:1])
    before = {name: value[0] for name, value in cache.items()}
    cache.remove_batch_dim()
    assert not cache.has_batch_dim
    assert_same(dict(cache.items()), before, tolerance=0.0)
    if model.config.residual_stream_adds_up:
        assert_same(cache.decompose_resid().sum(0), cache["resid_post", -1])


def test_toggle_autodiff_switches_gradients_for_runs_of_the_model(model, tokens):
    _, cache = model.run_with_cache(tokens)
    try:
        cache.toggle_autodiff(False)
        assert not model(tokens).requires_grad
    finally:
        cache.toggle_autodiff(True)
    assert model(tokens).requires_grad


def test_methods_for_state_space_models_find_none(model, tokens):
    _, cache = model.run_with_cache(tokens)
    assert cache.ssm_layers() == []
    for method in (cache.compute_ssm_state, cache.compute_ssm_effective_attention):
        with pytest.raises(RuntimeError, match="No SSM"):
            method()


@torch.no_grad()
@pytest.mark.rows(lambda row: not row.config.residual_stream_adds_up)
def test_attribution_is_refused_where_the_stream_does_not_add_up(model, tokens):
    _, cache = model.run_with_cache(tokens)
    stack = cache.stack_activation("resid_pre")
    for refused in (
        lambda c: c.decompose_resid(),
        lambda c: c.accumulated_resid(),
        lambda c: c.stack_head_results(),
        lambda c: c.stack_neuron_results(-1),
        lambda c: c.get_full_resid_decomposition(),
        lambda c: c.apply_ln_to_stack(stack),
        lambda c: c.logit_attrs(stack, 3),
        lambda c: c.logit_lens(),
    ):
        for one in (cache, cache.apply_slice_to_batch_dim(slice(0, 2))):
            with pytest.raises(UserError, match="cannot be decomposed or attributed"):
                refused(one)
    heads = _head_results(cache).sum(-2) + model.b_O[:, None, None]
    assert_same(heads, cache.stack_activation("attn_out"))
    if model.config.d_mlp:
        assert_same(cache.get_neuron_results(0).sum(-2) + model.b_out[0], cache["mlp_out", 0])
