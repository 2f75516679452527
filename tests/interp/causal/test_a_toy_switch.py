"""A switch that the run does not know: every question takes the hooked forward, without knowing of the switch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.causal.patching import SITES
from models.errors import UserError
from models.evaluation import predict
from models.run import exact_match, greedy, has_run, hooked_logits, logits_from
from models.training.unstacked_objective import UnstackedObjective, response_logits
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.transformer.unaltered import alterations, remember
from models.weight_maps import DenseWeights
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.interp.causal.edges.conftest import pairs_for
from tests.models.coders import coder
from tests.toy_task import ToyAddition


@dataclass(frozen=True)
class WithScale(TransformerConfig):
    """A config with one switch more, and its only use: what is embedded is multiplied."""

    embed_scale: float = 1.0


class Scaled(ArithmeticTransformer):
    def embed_tokens(self, *args: Any, **options: Any) -> torch.Tensor:
        assert isinstance(self.config, WithScale)
        return super().embed_tokens(*args, **options) * self.config.embed_scale


remember(lambda cfg: Scaled(DenseWeights(cfg), ToyAddition()), Scaled)


def scaled_and_equal(by: float = 3.0) -> tuple[ArithmeticTransformer, ArithmeticTransformer]:
    """A model with the switch, and one without it that computes the same."""
    plain = dense(positional_embedding_type="rotary", rotary_base=50.0)(0).double()
    options = {field.name: getattr(plain.config, field.name) for field in fields(plain.config)}
    twin = plain.dense_copy()
    twin.weight_map.config = WithScale(**options, embed_scale=by)
    weights = {name: by * x if name == "embed.W_E" else x for name, x in plain.effective_weights().items()}
    return Scaled(twin.weight_map, plain.task), plain.dense_copy(weights)


MODEL, EQUAL = scaled_and_equal()
PAIRS = pairs_for(MODEL.task, 4)


def asked(question: Callable[..., Any], **options: Any) -> tuple[Any, Any]:
    return tuple(question(model, PAIRS, metrics="kl", **options) for model in (MODEL, EQUAL))  # type: ignore


def test_the_switch_counts_and_the_run_does_not_know_it():
    assert not has_run(MODEL) and has_run(EQUAL)
    tokens = PAIRS.clean_tokens
    assert_same(MODEL(tokens), EQUAL(tokens), 1e-11)
    assert not torch.allclose(MODEL(tokens), scaled_and_equal(1.0)[0](tokens), atol=1e-2)


@torch.no_grad()
def test_logits_and_decoding_are_the_hooked_forwards():
    tokens = PAIRS.clean_tokens
    assert_same(logits_from(MODEL, tokens, 2), EQUAL(tokens)[:, 2:], 1e-11)
    assert_same(hooked_logits(MODEL, tokens, 2), EQUAL(tokens)[:, 2:], 1e-11)
    assert torch.equal(greedy(MODEL, tokens[:, :4], 2), greedy(EQUAL, tokens[:, :4], 2))
    for method in ("greedy", "teacher_forced"):
        assert torch.equal(predict(MODEL, PAIRS.clean, method), predict(EQUAL, PAIRS.clean, method))


def test_training_takes_the_hooked_forward():
    assert UnstackedObjective(MODEL)._logits is hooked_logits
    assert UnstackedObjective(EQUAL)._logits is response_logits


@pytest.mark.parametrize("site", SITES)
def test_patches_are_those_of_hooks(site: str):
    found, wanted = asked(interp.activation_patching, site=site, direction="noise", allow_equal=True)
    assert wanted.fast and not found.fast
    assert np.abs(found.values - wanted.values).max() <= 1e-9


def test_ablations_are_those_of_hooks():
    found, wanted = asked_of_components()
    assert_same(found.table["value"].values, wanted.table["value"].values, 1e-9)


def asked_of_components() -> tuple[Any, Any]:
    return tuple(
        interp.component_ablation(model, pairs=PAIRS, metrics="kl", unchanged="keep") for model in (MODEL, EQUAL)
    )  # type: ignore


def test_edges_that_would_be_other_edges_are_refused():
    unaltered = ArithmeticTransformer(MODEL.weight_map, MODEL.task)
    assert not has_run(unaltered) and not alterations(unaltered)
    for model in (unaltered, MODEL):
        with pytest.raises(UserError):
            interp.path_patching(model, PAIRS, metrics="kl")


def test_an_exact_match_of_a_model_with_a_hook_is_its_own():
    model = coder("")
    task = model.task.at(3, 3)
    problems = task.sample(20, torch.Generator().manual_seed(0))
    with model.hooks(fwd_hooks=[("blocks.0.hook_mlp_out", lambda x, hook: x)]):
        assert torch.equal(exact_match(model, task, problems), exact_match(coder(""), task, problems))
