"""For every value of every switch of the config the run gives what the hooked forward gives, or leaves it the model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch

from models.run.blocks import logits_by_formulas
from models.run.formulas import KNOWN, Formulas, has_run
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig, uncovered
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.models.run.hooked import by_variants, groupings, patched, sites_of, two_batches
from tests.sampling import every_third

COUPLED = {"positional_embedding_type": "coupled", "n_position_levels": 2}
ROTARY, FIRE = {"positional_embedding_type": "rotary"}, {"positional_embedding_type": "fire"}
#: For every field of the config, what must be set for each of its values to be seen; () for shapes, which all have.
VALUES: dict[str, tuple[dict[str, Any], ...]] = dict.fromkeys(
    ("d_model", "d_head", "d_vocab", "n_ctx"), ()
) | {
    "n_layers": ({"n_layers": 1}, {"n_layers": 3}),
    "n_heads": ({"n_heads": 1},),
    "d_mlp": ({"d_mlp": 0},),
    "act_fn": tuple({"act_fn": name} for name in ("gelu", "gelu_new", "relu", "silu")),
    "gated_mlp": ({"gated_mlp": True},),
    "normalization_type": tuple({"normalization_type": kind} for kind in ("LN", "RMS", None)),
    "norm_placement": tuple(
        {"norm_placement": place, "normalization_type": kind}
        for place in ("post", "both", "none")
        for kind in ("LN", "RMS")
    ),
    "norm_eps_outside": tuple({"norm_eps_outside": True, "eps": 0.1, "normalization_type": k} for k in ("LN", "RMS")),
    "eps": ({"eps": 0.1}, {"eps": 0.1, "normalization_type": "LN"}),
    "final_norm": ({"final_norm": False},),
    "positional_embedding_type": (
        {},
        COUPLED,
        ROTARY,
        FIRE,
        {"positional_embedding_type": "none"},
    ),
    "n_position_levels": (COUPLED,),
    "n_position_ids": (COUPLED | {"n_position_ids": 20},),
    "rotary_base": (ROTARY | {"rotary_base": 100.0},),
    "rotary_adjacent_pairs": (ROTARY | {"rotary_adjacent_pairs": False},),
    "fire_c": (FIRE | {"fire_c": 0.7},),
    "fire_L0": (FIRE | {"fire_L0": 3.0},),
    "fire_normaliser": (FIRE | {"fire_L0": 3.0, "fire_normaliser": "min"},),
    "rotary_scaling_factor": (ROTARY | {"rotary_scaling_factor": 3.0},),
    "rotary_dim": (ROTARY | {"rotary_dim": 2}, ROTARY | {"rotary_dim": 4, "rotary_adjacent_pairs": False}),
    "rotary_frequencies": (ROTARY | {"rotary_frequencies": (1.0, 0.3, 0.1)},),
    "parallel_attn_mlp": ({"parallel_attn_mlp": True}, {"parallel_attn_mlp": True, "gated_mlp": True}),
    "use_qk_norm": ({"use_qk_norm": True}, ROTARY | {"use_qk_norm": True}),
    "attn_bias": ({"attn_bias": True}, FIRE | {"attn_bias": True}),
    "attn_softmax": ({"attn_softmax": "softmax1"}, {"attn_softmax": "softmax1", "attn_bias": True}),
    "final_gain": ({"final_gain": True, "normalization_type": None},),
    "norm_groups": ({"norm_groups": 2}, {"norm_groups": 3, "norm_placement": "both"}),
    "layer_mix": ({"layer_mix": True}, {"layer_mix": True, "norm_placement": "post"}),
    "attn_scores": (
        {"attn_scores": "neg_l1"},
        {"attn_scores": "max_plus"},
        FIRE | {"attn_scores": "neg_l1"},
    ),
    "attn_scale": ({"attn_scale": 1.0}, {"attn_scale": 2.0, "attn_scores": "neg_l1"}),
    "attn_top_k": (
        {"attn_top_k": 2},
        {"attn_top_k": 50},
        {"attn_top_k": 3, "attn_scores": "neg_l1"},
        COUPLED | {"attn_top_k": 2, "attn_scores": "max_plus", "attn_window": 2},
    ),
    "attn_window": (COUPLED | {"attn_window": 1}, COUPLED | {"attn_window": ((0, 0), (1, 0), (0, -1))}),
    "d_vocab_out": ({"d_vocab_out": 7},),
    "dropout": ({"dropout": 0.1},),
    "dtype": ({"dtype": "float64"},),
}  # fmt: skip
CASES = {
    ", ".join(f"{name}={value}" for name, value in switches.items()) or f"{field} as it is": switches
    for field, values in VALUES.items()
    for switches in values
}


def made(switches: dict[str, Any]) -> ArithmeticTransformer:
    return dense(**switches)(0).double()


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    return bool((found - wanted).abs().max() <= 1e-9 * wanted.abs().max())


def test_every_field_of_the_config_has_its_values_here():
    assert set(VALUES) == {field.name for field in fields(TransformerConfig)}


@pytest.mark.parametrize("name", every_third(CASES, 1))
@torch.no_grad()
def test_the_run_is_the_hooked_forward_at_every_site(name: str) -> None:
    model = made(CASES[name])
    assert has_run(model)
    tokens, other = two_batches(model)
    read = (model.task.query_positions[0], tokens.shape[1] - 1)
    base, cache = model(tokens)[:, list(read)], model.run_with_cache(other)[1]
    moved: dict[str, list[bool]] = {site: [] for site in sites_of(model)}
    for layer in range(model.config.n_layers):
        for site, seen in moved.items():
            for by, groups in groupings(tokens.shape[1]).items():
                if site == "post" and by == "position":
                    groups = groups[-2:]  # each neuron at each position would be most of the time
                wanted = patched(model, tokens, cache, site, layer, groups, read)
                found, own = by_variants(model, tokens, other, site, layer, groups, read)
                assert close(own, base)
                assert close(found, wanted), (site, layer, by)
                seen += [not close(variant, base) for variant in wanted.flatten(0, 1)]
    # In the last layer a position that is not read moves nothing; all that could move must, or nothing was compared.
    assert all(any(seen) for seen in moved.values()), moved
    every = [one for seen in moved.values() for one in seen]
    assert sum(every) > len(every) / 3


@pytest.mark.parametrize("name", every_third(CASES, 2))
@torch.no_grad()
def test_logits_are_the_hooked_forwards(name: str) -> None:
    model = made(CASES[name])
    tokens, _ = two_batches(model)
    for first in (0, 3, tokens.shape[1] - 1):
        assert_same(logits_by_formulas(Formulas(model), tokens, first), model(tokens)[:, first:], 1e-11)


@dataclass(frozen=True)
class WithScale(TransformerConfig):
    """A config with a switch that nobody knows: its hooked forward multiplies what it embeds."""

    embed_scale: float = 1.0


def scaled(by: float) -> ArithmeticTransformer:
    model = made({})
    options = {field.name: getattr(model.config, field.name) for field in fields(model.config)}
    other = model.dense_copy()
    other.weight_map.config = WithScale(**options, embed_scale=by)
    return ArithmeticTransformer(other.weight_map, model.task)


def test_a_switch_that_the_formulas_do_not_know_is_named_where_it_is_set():
    off, on = scaled(1.0), scaled(3.0)
    assert uncovered(off.config, KNOWN) == [] and has_run(off)
    assert uncovered(on.config, KNOWN) == ["embed_scale=3.0"] and not has_run(on)


def test_a_value_that_the_formulas_do_not_know_is_named_too():
    config = made({}).config
    object.__setattr__(config, "attn_scores", "cosine")  # as a later version may have it
    assert uncovered(config, KNOWN) == ["attn_scores='cosine'"]


@torch.no_grad()
def test_a_model_with_a_hook_has_no_run():
    model = made({})
    assert has_run(model)
    with model.hooks(fwd_hooks=[("blocks.0.hook_mlp_out", lambda x, hook: x)]):
        assert not has_run(model)
