"""Models that a user makes with TransformerLens itself, untouched by this project, through the causal toolkit.

transformer-lens 4: ``TransformerBridge.boot_native``; 3.9: ``HookedTransformer``. Random weights, the task passed by
hand. A tool either works or says in one sentence why it cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import interp
import interp.causal.patching.activation_patching
import models
from interp.causal.metrics import Metric, logit_diff
from interp.causal.patching import SITES
from interp.core.controls import NO_CONTROL, untrained_copy
from interp.core.results import Result
from models.errors import UserError
from models.importers.stock import from_transformer_lens
from models.tasks import TwoDigitAddition, problem_pairs
from studies.population import mode_connectivity, seed_distances, solution_classes
from tests.comparing import assert_same, numbers_are_finite
from tests.interp.causal.patching.swept import swept as swept_tokens
from tests.interp.conftest import stock_copy
from tests.other_tasks import modular_addition
from tests.sampling import sampled

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
    "more tokens out than in": {"d_vocab_out": 12},
}
NOT_EXPRESSED: dict[str, dict[str, Any]] = {
    "attention_dir": {"attention_dir": "bidirectional"},
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


SWEEPS = import_module("interp.causal.patching.activation_patching")  # the package has the function by this name


@cache
def variant(name: str) -> Any:
    return make(**VARIANTS[name])


def swept(model: Any, pairs: Any, **options: Any) -> Any:
    """A sweep of a model that cannot do the task: by a metric of one's own, which compares it with itself."""
    return interp.activation_patching(model, pairs, metrics=logit_diff(pairs), allow_equal=True, **options)


def through_hooks(model: Any, site: str, by: str = "position") -> Any:
    """The sweep by the model's own hooks, one variant at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SWEEPS, "_copy", lambda model, task: None)
        return swept(model, PAIRS, site=site, by=by)


@pytest.mark.parametrize("name", sampled(VARIANTS, "attention only", "more tokens out than in"))
def test_sweeps_of_a_users_model_are_fast_and_equal_to_its_own_hooks(name: str):
    model = variant(name)
    for site in SITES:
        if name == "attention only" and site in ("resid_mid", "mlp_out", "neuron"):
            with pytest.raises(UserError, match=f"no MLPs, so that there is no {site} to patch"):
                swept(model, PAIRS, site=site)
            continue
        by = "all" if site in ("neuron", "pattern_dest_src") else "role" if SITES[site].part else "position"
        found = swept(model, PAIRS, site=site, by=by, check=True)
        assert found.fast
        if IS_BRIDGE and site == "resid_mid":  # what is written there is lost in the bridge itself
            with pytest.raises(UserError, match="does not reach this model's stream"):
                through_hooks(model, site, by)
            continue
        plain = through_hooks(model, site, by)
        assert not plain.fast
        assert np.abs(found.values.values - plain.values.values).max() <= 1e-5 * np.abs(plain.values.values).max()


FEW_TOOLS, FEW_VARIANTS = ("logit attribution",), ("more tokens out than in",)
TOOLS: dict[str, Callable[[Any], Result]] = {
    "ablation": lambda model: interp.component_ablation(model, replacement="zero", pairs=PAIRS, metrics="kl"),
    "interchange": lambda model: interp.interchange_intervention(model, "carry_in", 1, n=8, task=TASK),
    "logit lens": lambda model: interp.logit_lens(model, task=TASK, n=16),
    "logit attribution": lambda model: interp.direct_logit_attribution(model, task=TASK, n=16),
    "attention attribution": lambda model: interp.attention_attribution(model, task=TASK, n=16),
    "Jacobian lens": lambda model: interp.jacobian_lens(model, task=TASK, n=64),
    "tuned lens": lambda model: interp.tuned_lens(model, task=TASK, n=64, steps=3),
    "probes": lambda model: interp.linear_probes(model, task=TASK, n=128, signals="carry_in"),
    "paths": lambda model: interp.path_patching(model, PAIRS),
    "circuit": lambda model: interp.smallest_circuit(model, PAIRS, metrics="kl", method="greedy", n_random=3),
}


#: Every tool asks one model, every model is asked by one tool; `make test-all` asks all of all.
ASKED = [
    pytest.param(tool, name, marks=[pytest.mark.slow] * (tool not in FEW_TOOLS and name not in FEW_VARIANTS))
    for tool in TOOLS
    for name in VARIANTS
]


@pytest.mark.parametrize(("tool", "name"), ASKED)
def test_every_tool_takes_a_users_model(tool: str, name: str):
    result = TOOLS[tool](variant(name))
    assert len(result.to_dataframe()) and numbers_are_finite(result.sentence())


@pytest.mark.parametrize("switch", NOT_EXPRESSED)
def test_what_cannot_be_copied_is_patched_through_hooks_or_refused_with_the_reason(switch: str):
    model = make(**NOT_EXPRESSED[switch])
    for site in ("resid_pre", "k", "v", "head_out"):
        assert not swept(model, PAIRS, site=site, by="all").fast
    for tool in ("logit attribution", "paths", "circuit"):
        with pytest.raises(UserError, match=f"cannot express {switch}="):
            TOOLS[tool](model)


def test_keys_that_heads_share_are_patched_once():
    sweep = swept(make(n_key_value_heads=1), PAIRS, site="k", by="all")
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
        swept_tokens(variant("LN"), PAIRS.clean_tokens, PAIRS.corrupted_tokens, metric, "resid_mid")
    given = swept_tokens(
        variant("LN"), PAIRS.clean_tokens, PAIRS.corrupted_tokens, metric, "resid_mid", task=TASK, check=0
    )
    assert given.fast


@pytest.mark.skipif(not IS_BRIDGE, reason="only a bridge loses what is written to hook_resid_mid")
def test_a_bridge_that_loses_writes_and_cannot_be_copied_is_refused_with_both_reasons():
    model = make(attention_dir="bidirectional")
    with pytest.raises(UserError, match="hook_resid_mid does not reach the stream.*cannot express attention_dir="):
        TOOLS["interchange"](model)


def test_sweeps_copy_a_users_model_once_while_its_weights_stay():
    model = make()
    swept(model, PAIRS, site="resid_pre")
    copy = from_transformer_lens(model, TASK)
    before = swept(model, PAIRS, site="k").values
    assert from_transformer_lens(model, TASK) is copy
    with torch.no_grad():
        next(model.parameters()).mul_(-3)  # the embedding
    after = swept(model, PAIRS, site="k", check=True).values
    assert from_transformer_lens(model, TASK) is not copy
    assert not np.array_equal(before, after)


# ---- untrained copies

UNTRAINED_OF: dict[str, dict[str, Any]] = {"LN": {}, "attention only": {"attn_only": True}, **NOT_EXPRESSED}


@pytest.mark.parametrize("name", UNTRAINED_OF)
@torch.no_grad()
def test_a_users_model_has_untrained_copies_with_other_weights_by_seed(name: str):
    model = make(**UNTRAINED_OF[name])
    tokens = TASK.encode([(12, 34), (99, 1)])
    before = model(tokens)
    first, again, other = (untrained_copy(model, seed)(tokens) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.allclose(first, other) and not torch.allclose(first, before)
    assert torch.equal(model(tokens), before)


@pytest.mark.slow
def test_a_users_model_given_twice_is_one_solution_and_its_distances_have_a_null():
    model, other = make(n_layers=1), make(n_layers=1, seed=2)
    found = solution_classes([model, model, other], task=TASK)
    assert found.limit > 0 and found.labels[0] == found.labels[1] != found.labels[2]
    compared = interp.compare(model, other, task=TASK, n=24)
    assert compared.control[1] > 0 and compared.table["p_untrained"].notna().any()
    assert not np.isnan(float(interp.ov_output_shape(model, task=TASK, n=24).table.linear_untrained))


def test_without_random_weights_the_result_says_that_it_has_no_control():
    built = models.load("adder-4-by-hand")
    assert untrained_copy(built, 0) is None
    assert np.isnan(interp.ov_output_shape(built, n=24).table.linear_untrained).all()
    assert NO_CONTROL in interp.attention_readout(built, n=64).sentence()
    assert NO_CONTROL in interp.compare(built, built, n=8).sentence()


# ---- a vocabulary of answers that is smaller than that of the prompt, as in papers on grokking

RESIDUES = modular_addition(11)


@cache
def grokker() -> Any:
    return make(d_vocab=12, d_vocab_out=11, n_ctx=3)


@torch.no_grad()
def test_a_copy_predicts_what_its_original_does():
    copy = from_transformer_lens(grokker(), RESIDUES)
    tokens = RESIDUES.encode(RESIDUES.sample(20, torch.Generator().manual_seed(0)))
    assert copy(tokens).shape == (20, 3, 11) and copy.cfg.d_vocab == 12 and copy.cfg.d_vocab_out == 11
    assert_same(copy(tokens), grokker()(tokens), 1e-5)
    again = from_transformer_lens(stock_copy(copy), RESIDUES)
    assert_same(again(tokens), copy(tokens), 1e-5)


SMALLER: dict[str, Callable[[Any, Any], Any]] = {
    "patching": lambda model, pairs: swept(model, pairs, site="resid_pre", check=True),
    "paths": lambda model, pairs: interp.path_patching(model, pairs),
    "attribution of edges": lambda model, pairs: interp.edge_attribution(model, pairs),
    "circuit": lambda model, pairs: interp.smallest_circuit(model, pairs, metrics="kl", method="greedy", n_random=3),
    "attribution of logits": lambda model, pairs: interp.direct_logit_attribution(model, task=RESIDUES, n=16),
    "logit lens": lambda model, pairs: interp.logit_lens(model, task=RESIDUES, n=16),
    "interchange": lambda model, pairs: interp.interchange_intervention(model, "digit_sum", 0, n=8, task=RESIDUES),
    "ablation": lambda model, pairs: interp.component_ablation(model, replacement="zero", pairs=pairs, metrics="kl"),
    "certificate": lambda model, pairs: interp.certify(model, task=RESIDUES),
    "attack": lambda model, pairs: interp.attack(model, task=RESIDUES, runs=60),
}


@pytest.mark.parametrize("tool", sampled(SMALLER, *(set(SMALLER) - {"circuit", "ablation", "attribution of edges"})))
def test_every_tool_takes_a_smaller_vocabulary_of_answers(tool: str):
    pairs = problem_pairs(RESIDUES, "variable", variable="s", column=0, n=12)
    result = SMALLER[tool](grokker(), pairs)
    assert len(result.to_dataframe()) and numbers_are_finite(result.sentence())


def test_all_problems_are_asked_with_a_smaller_vocabulary():
    verdict = interp.certify(grokker(), task=RESIDUES)
    predicted = grokker()(RESIDUES.encode(RESIDUES.domain.problems(torch.cartesian_prod(*[torch.arange(11)] * 2))))
    right = torch.cartesian_prod(*[torch.arange(11)] * 2).sum(1) % 11
    assert verdict.score.n == 121 and verdict.score.correct == int((predicted[:, 2].argmax(-1) == right).sum())


# ---- one copy, and questions about several users' models


def test_a_copy_is_made_once_and_again_when_the_model_changes():
    model = make(seed=5)
    copy = from_transformer_lens(model, TASK)
    assert from_transformer_lens(model, TASK) is copy
    with torch.no_grad():
        (model.unembed.W_U if hasattr(model.unembed, "W_U") else model.W_U).data[:, 3] += 1.0
    other = from_transformer_lens(model, TASK)
    assert other is not copy
    tokens = TASK.encode([(12, 34), (99, 1)])
    assert_same(other(tokens).detach(), model(tokens).detach(), 1e-5)
    other.add_hook("blocks.0.hook_resid_post", lambda x, hook: x * 0)  # what is left on a copy stays there
    assert_same(from_transformer_lens(model, TASK)(tokens).detach(), model(tokens).detach(), 1e-5)


@pytest.mark.slow
def test_two_users_models_are_compared_by_their_parameters():
    a, b = make(n_layers=1, seed=1), make(n_layers=1, seed=2)
    line = mode_connectivity(a, b, task=TASK, n=20, points=3)
    ends = line.table[(line.table["path"] == "as stored") & line.table["t"].isin([0.0, 1.0])]
    problems = interp.core.samples.draw(TASK, None, 20, 0, 0.5).problems
    for row, model in zip(ends.itertuples(), (a, b), strict=True):
        logits = model(TASK.encode(problems))[:, list(TASK.query_positions)]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), TASK.targets(problems).flatten())
        assert row.loss == pytest.approx(float(loss), rel=1e-4)
    apart = seed_distances([a, b, a], names=["a", "b", "again"], task=TASK, n=20)
    distance = apart.table[apart.table.component == "all"].set_index(["a", "b"]).after
    assert distance[("a", "again")] < 1e-6 < 0.3 < distance[("a", "b")]
    with pytest.raises(UserError):
        mode_connectivity(a, make(n_layers=2), task=TASK)
    with pytest.raises(UserError):
        mode_connectivity(a, b)  # nobody says what the task is


def test_one_task_serves_all_models_of_a_table():
    found = interp.compare_models([variant("LN"), variant("rotary")], tasks=TASK, n=20, questions=["loss"])
    assert len(found.rows) == 2


def test_the_explorer_takes_a_users_model_with_its_task():
    pytest.importorskip("anywidget")
    assert interp.explore(variant("LN"), task=TASK) is not None
    with pytest.raises(UserError):
        interp.explore(variant("LN"))


# ---- a bridge around a Hugging Face model


def around_hugging_face(name: str) -> Any:
    """A small untrained model of ``transformers`` in a bridge, without a download."""
    pytest.importorskip("transformer_lens.model_bridge")
    hf = pytest.importorskip("transformers")
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    torch.manual_seed(0)
    if name == "GPT2LMHeadModel":
        sizes = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_inner": 24, "vocab_size": 10, "n_positions": 8}
        config = hf.GPT2Config(**sizes, activation_function="gelu_new", resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    else:
        sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
        config = hf.LlamaConfig(**sizes, intermediate_size=24, vocab_size=10, max_position_embeddings=8)
    inner = getattr(hf, name)(config).eval()
    with torch.no_grad():
        for weight in inner.parameters():
            weight.mul_(4) if weight.ndim > 1 else weight.add_(0.1 * torch.randn_like(weight))
    given = {"hf_config": inner.config, "dtype": torch.float32, "device": "cpu", "model_name": "small"}
    return build_bridge_from_module(inner, architecture=name, **given).eval()


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "LlamaForCausalLM"])
def test_a_bridge_around_a_hugging_face_model_is_copied_from_its_weights(name: str):
    bridge = around_hugging_face(name)
    copy = from_transformer_lens(bridge, TASK)
    tokens = PAIRS.clean_tokens
    assert torch.allclose(copy(tokens), bridge(tokens), atol=1e-4)
    ours, theirs = (interp.path_patching(model, PAIRS) for model in (copy, bridge))
    assert np.array_equal(ours.values, theirs.values)
    assert swept_tokens(bridge, tokens, PAIRS.corrupted_tokens, first_logit(), "v", task=TASK, check=0).fast
    assert interp.which_algorithm(bridge, task=TASK, n=40).winner() is None
    with pytest.raises(UserError, match="more than 50% must be right"):
        interp.activation_patching(bridge, PAIRS)


def first_logit() -> Metric:
    return Metric("first", (-1,), lambda logits, rows: logits[..., 0, 0])


def test_a_changed_hugging_face_model_is_seen():
    bridge = around_hugging_face("GPT2LMHeadModel")
    before = interp.path_patching(bridge, PAIRS).values
    with torch.no_grad():  # weights are read anew
        next(p for p in bridge.original_model.parameters() if p.ndim > 1).mul_(1.2)
    assert not np.allclose(interp.path_patching(bridge, PAIRS).values, before)
    inner = next(m for m in bridge.original_model.modules() if type(m).__name__ == "NewGELUActivation")
    handle = inner.register_forward_hook(lambda module, args, out: 0 * out)
    with pytest.raises(UserError, match="hook"):
        interp.path_patching(bridge, PAIRS)
    handle.remove()
    inner.forward = lambda x: 0 * x
    with pytest.raises(UserError):
        interp.path_patching(bridge, PAIRS)
