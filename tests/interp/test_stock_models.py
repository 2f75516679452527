"""Models that a user makes with TransformerLens itself, untouched by this project, through the causal toolkit.

transformer-lens 4: ``TransformerBridge.boot_native``; 3.9: ``HookedTransformer``. Random weights, the task passed by
hand. A tool either works or says in one sentence why it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import interp
import interp.patching.sweep
from interp.metrics import Metric
from interp.patching import SITES
from interp.results import Result
from models.errors import UserError
from models.importers.stock import from_transformer_lens
from models.tasks import TwoDigitAddition, problem_pairs

TASK = TwoDigitAddition()
PAIRS = problem_pairs(TASK, "made carry", column=1, n=12, seed=0)
IS_BRIDGE = not find_spec("transformer_lens.HookedTransformer")

VARIANTS: dict[str, dict[str, Any]] = {
    "LN": {},
    "LNPre": {"normalization_type": "LNPre"},
    "no norm": {"normalization_type": None},
    "RMS, gated": {"normalization_type": "RMS", "gated_mlp": True, "act_fn": "silu"},
    "rotary": {"positional_embedding_type": "rotary", "rotary_dim": 8},
    "attention only": {"attn_only": True},
}
NOT_EXPRESSED: dict[str, dict[str, Any]] = {
    "attention_dir": {"attention_dir": "bidirectional"},
    "d_vocab_out": {"d_vocab_out": 12},
    "n_key_value_heads": {"n_key_value_heads": 1},
}


def make(**options: Any) -> Any:
    """A small model, as a user of the installed version makes it."""
    shape = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 24, "n_ctx": 7, "d_vocab": 10, "seed": 1}
    options = {"act_fn": "gelu"} | shape | options
    if IS_BRIDGE:
        from transformer_lens.config import TransformerBridgeConfig
        from transformer_lens.model_bridge import TransformerBridge

        bridge: Any = TransformerBridge  # boot_native is attached to it at import
        return bridge.boot_native(TransformerBridgeConfig(**options)).eval()
    import transformer_lens

    stock: Any = transformer_lens
    return stock.HookedTransformer(stock.HookedTransformerConfig(device="cpu", **options)).eval()


@cache
def variant(name: str) -> Any:
    return make(**VARIANTS[name])


def through_hooks(model: Any, site: str, by: str = "position") -> Any:
    """The sweep by the model's own hooks, one variant at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interp.patching.sweep, "_copy", lambda model, task: None)
        return interp.activation_patching(model, PAIRS, site, by=by)


@pytest.mark.parametrize("name", VARIANTS)
def test_sweeps_of_a_users_model_are_fast_and_equal_to_its_own_hooks(name: str):
    model = variant(name)
    for site in SITES:
        if name == "attention only" and site in ("resid_mid", "mlp_out", "neuron"):
            with pytest.raises(UserError, match=f"no MLPs, so that there is no {site} to patch"):
                interp.activation_patching(model, PAIRS, site)
            continue
        by = "all" if site in ("neuron", "pattern_dest_src") else "role" if SITES[site].part else "position"
        found = interp.activation_patching(model, PAIRS, site, by=by, check=True)
        assert found.fast
        if IS_BRIDGE and site == "resid_mid":  # what is written there is lost in the bridge itself
            with pytest.raises(UserError, match="does not reach this model's stream"):
                through_hooks(model, site, by)
            continue
        plain = through_hooks(model, site, by)
        assert not plain.fast
        assert np.abs(found.values.values - plain.values.values).max() <= 1e-5 * np.abs(plain.values.values).max()


TOOLS: dict[str, Callable[[Any], Result]] = {
    "ablation": lambda model: interp.component_ablation(model, methods="zero", task=TASK, n=24),
    "interchange": lambda model: interp.interchange_sweep(model, "carry_in", 1, n=8, task=TASK),
    "logit lens": lambda model: interp.logit_lens(model, TASK, n=16),
    "logit attribution": lambda model: interp.logit_attribution(model, TASK, n=16),
    "probes": lambda model: interp.linear_probes(model, TASK, n=128, signals="carry_in"),
    "paths": lambda model: interp.path_patching(model, PAIRS),
    "circuit": lambda model: interp.smallest_circuit(model, PAIRS, metrics="kl", n_random=3),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_takes_a_users_model(tool: str, name: str):
    result = TOOLS[tool](variant(name))
    assert len(result.to_dataframe()) and "nan" not in result.sentence()


@pytest.mark.parametrize("switch", NOT_EXPRESSED)
def test_what_cannot_be_copied_is_patched_through_hooks_or_refused_with_the_reason(switch: str):
    model = make(**NOT_EXPRESSED[switch])
    for site in ("resid_pre", "k", "v", "head_out"):
        assert not interp.activation_patching(model, PAIRS, site, by="all").fast
    for tool in ("logit attribution", "paths", "circuit"):
        with pytest.raises(UserError, match=f"cannot express {switch}="):
            TOOLS[tool](model)


def test_keys_that_heads_share_are_patched_once():
    sweep = interp.activation_patching(make(n_key_value_heads=1), PAIRS, "k", by="all")
    assert sweep.values.sizes["head"] == 1


@pytest.mark.skipif(IS_BRIDGE, reason="a native bridge divides by the root of d_head all the same")
@torch.no_grad()
def test_scores_without_a_scale_are_copied():
    model = make(use_attn_scale=False)
    assert from_transformer_lens(model, TASK).config.score_scale == 1.0


@pytest.mark.skipif(not IS_BRIDGE, reason="HookedTransformer writes what its config means into it")
@pytest.mark.parametrize("use_attn_scale", [True, False])
def test_a_native_bridge_without_a_stated_scale_divides_by_the_root_of_d_head(use_attn_scale: bool):
    copy = from_transformer_lens(make(use_attn_scale=use_attn_scale), TASK)
    assert copy.config.score_scale == pytest.approx(8**0.5)


@pytest.mark.skipif(not IS_BRIDGE, reason="only a bridge loses what is written to hook_resid_mid")
def test_a_lost_write_is_found_out_without_a_task_too():
    """Without a task there is no copy; patched through hooks, half of the intervention would not happen."""
    metric = Metric("first logit", (-1,), lambda logits, rows: logits[..., 0, 0])
    with pytest.raises(UserError, match="does not reach this model's stream.*give task="):
        interp.patch_sweep(variant("LN"), PAIRS.clean_tokens, PAIRS.corrupted_tokens, metric, "resid_mid")
    given = interp.patch_sweep(
        variant("LN"), PAIRS.clean_tokens, PAIRS.corrupted_tokens, metric, "resid_mid", task=TASK, check=True
    )
    assert given.fast


@pytest.mark.skipif(not IS_BRIDGE, reason="only a bridge loses what is written to hook_resid_mid")
def test_a_bridge_that_loses_writes_and_cannot_be_copied_is_refused_with_both_reasons():
    model = make(attention_dir="bidirectional")
    with pytest.raises(UserError, match="hook_resid_mid does not reach the stream.*cannot express attention_dir="):
        TOOLS["interchange"](model)
