"""Hook points: names, shapes, order, switches, aliases, and what a hook may change."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import torch

import models
from models.errors import UserError
from tests.comparing import assert_same
from tests.conformance.expected import expected_activations, switches_for

pytestmark = pytest.mark.transformer_lens

GATED = {
    "use_attn_result": ["attn.hook_result"],
    "use_attn_in": ["hook_attn_in"],
    "use_split_qkv_input": ["hook_q_input", "hook_k_input", "hook_v_input"],
    "use_hook_mlp_in": ["hook_mlp_in"],
}


def shapes(cache) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in cache.items()}


@pytest.mark.every_switch
def test_a_run_caches_the_promised_activations_in_firing_order(model, tokens):
    _, cache = model.run_with_cache(tokens)
    expected = expected_activations(model.config, *tokens.shape)
    assert list(cache) == list(expected)
    assert shapes(cache) == expected


def test_the_cache_is_in_the_order_in_which_hooks_fire(model, tokens):
    fired = []
    everything = [(lambda name: True, lambda value, hook: fired.append(hook.name))]
    model.run_with_hooks(tokens, fwd_hooks=everything)
    _, cache = model.run_with_cache(tokens)
    assert list(dict.fromkeys(fired)) == list(cache)  # a norm in front of split inputs may fire three times


def test_every_hook_point_of_the_model_fires_under_some_switch(model, tokens):
    seen = set()
    for switch in switches_for(model.config):
        getattr(model, f"set_{switch}")(True)
        seen |= set(model.run_with_cache(tokens)[1])
        getattr(model, f"set_{switch}")(False)
    aliases = {f"blocks.{i}.attn.hook_{x}_input" for i in range(model.config.n_layers) for x in "qkv"}
    never = {name for name in model.hook_dict if name.endswith("hook_mlp_in")} if not model.config.d_mlp else set()
    unused = {f"blocks.{i}.hook_mlp_out" for i in range(model.config.n_layers)} if not model.config.d_mlp else set()
    assert set(model.hook_dict) - aliases - never - unused == seen


@pytest.mark.every_switch
def test_each_switch_adds_its_hooks_and_changes_nothing_else(model, tokens):
    plain = model(tokens)
    for switch in switches_for(model.config):
        getattr(model, f"set_{switch}")(True)
        logits, cache = model.run_with_cache(tokens)
        assert shapes(cache) == expected_activations(model.config, *tokens.shape, on=frozenset({switch})), switch
        assert list(cache) == list(expected_activations(model.config, *tokens.shape, on=frozenset({switch}))), switch
        assert_same(logits, plain, what=switch)
        getattr(model, f"set_{switch}")(False)
    assert shapes(model.run_with_cache(tokens)[1]) == expected_activations(model.config, *tokens.shape)


def test_a_hook_on_a_silent_point_is_refused_until_its_switch_is_on(model):
    for switch in switches_for(model.config):
        for name in GATED[switch]:
            with pytest.raises(AssertionError, match=switch):
                model.add_hook(f"blocks.0.{name}", lambda value, hook: None)
        getattr(model, f"set_{switch}")(True)
        for name in GATED[switch]:
            model.add_hook(f"blocks.0.{name}", lambda value, hook: None, prepend=True)
        model.reset_hooks()
        getattr(model, f"set_{switch}")(False)


def test_check_hooks_to_add_passes_ungated_points(model):
    point = model.hook_dict["blocks.0.hook_resid_pre"]
    assert model.check_hooks_to_add(point, "blocks.0.hook_resid_pre", lambda value, hook: None) is None


def test_the_two_ways_of_splitting_the_attention_input_exclude_each_other(model):
    model.set_use_attn_in(True)
    with pytest.raises(UserError, match="use_attn_in"):
        model.set_use_split_qkv_input(True)
    model.set_use_attn_in(False)
    model.set_use_split_qkv_input(True)
    with pytest.raises(UserError, match="use_split_qkv_input"):
        model.set_use_attn_in(True)


@pytest.mark.parametrize("letter", "qkv")
def test_both_names_of_a_split_input_reach_the_same_point(model, tokens, letter):
    old, new = f"blocks.0.hook_{letter}_input", f"blocks.0.attn.hook_{letter}_input"
    assert model.hook_dict[old] is model.hook_dict[new] is model.mod_dict[new]
    model.set_use_split_qkv_input(True)

    def zero(value, hook):
        return torch.zeros_like(value)

    by_old = model.run_with_hooks(tokens, fwd_hooks=[(old, zero)])
    by_new = model.run_with_hooks(tokens, fwd_hooks=[(new, zero)])
    assert torch.equal(by_old, by_new)
    assert not torch.equal(by_old, model(tokens))


@pytest.mark.parametrize("letter", "qkv")
def test_writing_into_one_projection_in_place_leaves_the_others_bit_identical(model, tokens, letter):
    _, clean = model.run_with_cache(tokens)

    def write(value, hook):
        value[:, 1:] = 7.0  # in place, as TransformerLens' patch setters write
        return value

    kept = {}
    hooks = [(f"blocks.0.attn.hook_{x}", lambda value, hook: kept.update({hook.name: value.clone()})) for x in "qkv"]
    with torch.no_grad():
        model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.hook_{letter}", write), *hooks])
    for other in "qkv":
        name = f"blocks.0.attn.hook_{other}"
        assert torch.equal(kept[name], clean[name]) == (other != letter), name
    assert torch.equal(kept[f"blocks.0.attn.hook_{letter}"][:, 0], clean[f"blocks.0.attn.hook_{letter}"][:, 0])


@pytest.mark.usefixtures("without_shape_checks")
def test_every_activation_can_be_written_into_in_place(model, tokens):
    """Patches write into the activation; expanded or shared memory would raise, or spill over to other sequences."""
    weights = {key: value.clone() for key, value in model.all_weights().items()}
    plain = model(tokens)

    def change_the_first_sequence(value, hook):
        value[0] = ~value[0] if value.dtype == torch.bool else value[0] + 1
        return value

    with torch.no_grad():
        for name in expected_activations(model.config, *tokens.shape):
            out = model.run_with_hooks(tokens, fwd_hooks=[(name, change_the_first_sequence)])
            assert torch.equal(out[1:], plain[1:]), name
            assert out.isfinite().all(), name
    assert_same(model.all_weights(), weights, tolerance=0.0)


@torch.no_grad()
def test_writing_into_a_sublayers_input_leaves_the_stream_beside_it(model, tokens):
    """The skip connection carries what it would have carried."""

    def zero(value, hook):
        value[:] = 0.0
        return value

    stream = {"use_hook_mlp_in": "blocks.0.hook_resid_mid"}
    for switch in switches_for(model.config):
        if switch == "use_attn_result":
            continue
        name = stream.get(switch, "blocks.0.hook_resid_pre")
        getattr(model, f"set_{switch}")(True)
        _, clean = model.run_with_cache(tokens)
        with model.hooks(fwd_hooks=[(f"blocks.0.{point}", zero) for point in GATED[switch]]):
            _, patched = model.run_with_cache(tokens)
        getattr(model, f"set_{switch}")(False)
        assert (patched[f"blocks.0.{GATED[switch][0]}"] == 0).all() and torch.equal(patched[name], clean[name]), switch
        assert not torch.equal(patched["resid_post", -1], clean["resid_post", -1]), switch


@torch.no_grad()
def test_a_query_whose_scores_are_all_masked_attends_to_nothing(model, tokens):
    """As in TransformerLens, not to nan."""
    hook = ("blocks.0.attn.hook_attn_scores", lambda value, hook: value.masked_fill(torch.tensor(True), float("-inf")))
    with model.hooks(fwd_hooks=[hook]):
        logits, cache = model.run_with_cache(tokens)
    assert (cache["pattern", 0] == 0).all() and (cache["z", 0] == 0).all() and logits.isfinite().all()


def test_the_last_hook_of_the_model_is_its_output(model, tokens):
    logits, cache = model.run_with_cache(tokens)
    assert torch.equal(cache["unembed.hook_out"], logits)


WRONG = {
    "a tuple": lambda value: (value,),
    "a number": lambda value: 1.0,
    "an array": lambda value: np.asarray(value.detach().cpu()),
    "another dtype": lambda value: value.to(torch.float16 if value.dtype != torch.float16 else torch.float32),
    "fewer rows": lambda value: value[:0],
    "fewer positions": lambda value: value[:, :-1],
    "no last axis": lambda value: value[..., 0],
    "an axis more": lambda value: value[None],
}


def test_what_a_hook_returns_has_the_shape_and_dtype_of_the_activation(model, tokens):
    """One thing that it may not return at each hook point; and what does have them is taken at all of them."""
    logits, cache = model.run_with_cache(tokens)
    for name, returned in zip(cache, itertools.cycle(WRONG.values()), strict=False):
        with pytest.raises(UserError, match=name.rpartition(".")[2]):
            model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook, wrong=returned: wrong(value))])
    again = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: value.clone()) for name in cache])
    assert_same(again, logits)


@pytest.mark.parametrize(
    "name", ["hook_embed", "blocks.0.hook_resid_pre", "blocks.0.attn.hook_pattern", "unembed.hook_in"]
)
@pytest.mark.parametrize("returned", WRONG.values(), ids=WRONG)
def test_nothing_else_is_taken_from_a_hook(name, returned):
    model = models.load("microadder-57")
    tokens = model.to_tokens("57+48")
    with pytest.raises(UserError, match=name.rpartition(".")[2]):
        model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: returned(value))])


def test_a_tensor_on_another_device_is_not_taken(model, tokens):
    with pytest.raises(UserError, match="hook_embed"):
        model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", lambda value, hook: value.to("meta"))])


def test_hooks_are_gone_after_a_run_with_hooks(model, tokens):
    plain = model(tokens)
    model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", lambda value, hook: value * 0)])
    assert torch.equal(model(tokens), plain)


# ---- hooks that the switches leave silent


def double(value, hook):
    return value * 2


@pytest.mark.parametrize("letter", "qkv")
def test_a_filter_hooks_a_point_of_two_names_once(model, tokens, letter):
    model.set_use_split_qkv_input(True)
    expected = model.run_with_hooks(
        tokens, fwd_hooks=[(f"blocks.{i}.hook_{letter}_input", double) for i in range(model.config.n_layers)]
    )

    def wanted(name: str) -> bool:
        return name.endswith(f"hook_{letter}_input")

    assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(wanted, double)]), expected)
    model.add_hook(wanted, double)
    assert torch.equal(model(tokens), expected)


def test_a_silent_point_is_refused_by_every_way_to_hook_it(model, tokens):
    for name in ("blocks.0.attn.hook_result", "blocks.0.attn.hook_q_input", "blocks.0.hook_attn_in"):
        for kind in (UserError, AssertionError):  # as TransformerLens' two classes of models
            with pytest.raises(kind):
                model.run_with_hooks(tokens, fwd_hooks=[(name, double)])
            with pytest.raises(kind):
                model.add_hook(name, double)
    assert model.context_level == 0 and not any(point.has_hooks() for point in model.hook_dict.values())
    model.set_use_attn_result(True)
    out = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_result", lambda value, hook: value * 0)])
    assert not torch.equal(out, model(tokens))


def test_a_filter_leaves_silent_points_out_and_says_so(model, tokens):
    seen = []
    with pytest.warns(UserWarning):
        model.run_with_hooks(
            tokens,
            fwd_hooks=[(lambda name: name.endswith(("_z", "_result")), lambda value, hook: seen.append(hook.name))],
        )
    assert seen == [f"blocks.{layer}.attn.hook_z" for layer in range(model.config.n_layers)]
    with pytest.warns(UserWarning):
        _, cache = model.run_with_cache(tokens, names_filter=["blocks.0.attn.hook_result", "hook_embed"])
    assert list(cache) == ["hook_embed"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run_with_cache(tokens)
        model.run_with_hooks(tokens, fwd_hooks=[(lambda name: name.endswith("hook_z"), double)])


def test_cached_gradients_are_those_of_the_loss(model, tokens):
    _, cache = model.run_with_cache(tokens, return_type="loss", incl_bwd=True, names_filter="hook_embed")
    embedded = []

    def keep(value, hook):
        value.retain_grad()
        embedded.append(value)

    model.run_with_hooks(tokens, return_type="loss", fwd_hooks=[("hook_embed", keep)]).backward()
    assert_same(cache["hook_embed_grad"], embedded[0].grad)
    assert not any(point.has_hooks() for point in model.hook_dict.values())
    for options in (
        {},
        {"return_type": "logits"},
        {"return_type": "loss", "loss_per_token": True},
        {"return_type": "loss", "stop_at_layer": 0},
    ):
        with pytest.raises(UserError):
            model.run_with_cache(tokens, incl_bwd=True, **options)
    with torch.no_grad(), pytest.raises(UserError):
        model.run_with_cache(tokens, return_type="loss", incl_bwd=True)


def test_a_name_or_a_filter_of_no_hook_point_is_refused_or_said(model, tokens):
    """A misspelled intervention never happens, and an empty cache is missed only later."""
    keep = lambda value, hook: value  # noqa: E731
    near = "blocks.0.hook_resid_pst"
    calls = [
        lambda: model.run_with_hooks(tokens, fwd_hooks=[(near, keep)]),
        lambda: model.add_hook(near, keep),
        lambda: model.run_with_cache(tokens, names_filter=near),
        lambda: model.run_with_cache(tokens, names_filter=["hook_embed", near]),
    ]
    for call in calls:
        for kind in (UserError, KeyError):
            with pytest.raises(kind, match="hook_resid_post"):
                call()
    for call in (lambda f: model.add_hook(f, keep), lambda f: model.run_with_hooks(tokens, fwd_hooks=[(f, keep)])):
        with pytest.raises(UserError, match="selects no hook point"):
            call(lambda name: name == "nothing")
    with pytest.warns(UserWarning, match="selects no hook point"):
        model.run_with_cache(tokens, names_filter=lambda name: name == "nothing")
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
