"""Metrics against their formulas, and the questions that interventions ask of a model first."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import models
from interp.causal.metrics import FACTORIES, Metric, exact_match, kl, logit_diff, loss, probability, resolve_metrics
from interp.core.model_checks import (
    require_evaluation_mode,
    require_hook,
    require_layer,
    require_sums,
    stream_is_written,
    with_writable_stream,
)
from models.errors import UserError
from models.tasks import problem_pairs
from models.transformer import model_name
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import ROWS
from tests.interp.conftest import stock_copy

ADDER = models.load("microadder-57")
PAIRS = problem_pairs(ADDER.task, "carry", column=3, n=24, seed=0)
QUERY = ADDER.task.query_positions[PAIRS.target]


@torch.no_grad()
def test_metrics_are_what_their_names_say():
    clean, corrupted = (ADDER(tokens) for tokens in (PAIRS.clean_tokens, PAIRS.corrupted_tokens))
    answer, other = PAIRS.clean_targets[:, PAIRS.target], PAIRS.corrupted_targets[:, PAIRS.target]
    at = corrupted[:, QUERY]
    rows = torch.arange(len(PAIRS))
    expected = {
        "logit_diff": at[rows, answer] - at[rows, other],
        "probability": at.softmax(-1)[rows, answer],
        "exact_match": (at.argmax(-1) == answer).float(),
        "loss": F.cross_entropy(at, answer, reduction="none"),
        "kl": F.kl_div(at.log_softmax(-1), clean[:, QUERY].log_softmax(-1), log_target=True, reduction="none").sum(-1),
    }
    assert set(expected) == set(FACTORIES)
    for metric in resolve_metrics(ADDER, PAIRS, list(expected)):
        torch.testing.assert_close(metric.of(corrupted), expected[metric.name], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_many_variants_and_some_rows_are_judged_as_one_by_one():
    logits = torch.randn(3, 2, len(PAIRS), 33, 10, generator=torch.Generator().manual_seed(0))
    rows = slice(5, 17)
    clean = ADDER(PAIRS.clean_tokens)
    for metric in (logit_diff(PAIRS), probability(PAIRS), exact_match(PAIRS), loss(PAIRS), kl(PAIRS, clean)):
        assert metric.positions == (QUERY,)
        whole = torch.stack([torch.stack([metric.of(x) for x in y]) for y in logits])
        part = metric(logits[..., rows, QUERY : QUERY + 1, :], rows)
        assert part.shape == (3, 2, 12) and torch.allclose(part, whole[..., rows])


def test_logits_that_are_not_numbers_match_nothing():
    logits = torch.full((len(PAIRS), 33, 10), float("nan"))
    assert exact_match(PAIRS).of(logits).sum() == 0 and (PAIRS.clean_targets[:, PAIRS.target] == 0).any()


def test_what_is_not_a_metric_is_refused():
    with pytest.raises(UserError, match="different names, not loss, loss"):
        resolve_metrics(ADDER, PAIRS, ["loss", "loss"])
    with pytest.raises(UserError, match="not none"):
        resolve_metrics(ADDER, PAIRS, [])
    with pytest.raises(UserError, match="There is no target 12; there are 12"):
        logit_diff(PAIRS, 12)
    with pytest.raises(UserError, match="24 pairs need as many clean runs, not 3"):
        kl(PAIRS, torch.zeros(3, 33, 10))
    with pytest.raises(UserError, match="returned a float"):
        Metric("number", (0,), lambda logits, rows: 1.0)(torch.zeros(2, 1, 10))  # pyright: ignore[reportArgumentType]


def test_hooks_layers_modes_and_sums_are_asked_for_by_name():
    assert require_hook(ADDER, "blocks.0.hook_resid_pre") == "blocks.0.hook_resid_pre"
    with pytest.raises(
        UserError, match=r"no hook point 'blocks.0.hook_resid_pro'.*Did you mean 'blocks.0.hook_resid_pr"
    ):
        require_hook(ADDER, "blocks.0.hook_resid_pro")
    assert require_layer(ADDER, -1) == 0
    with pytest.raises(UserError, match="There is no layer 1: this model has 1"):
        require_layer(ADDER, 1)
    model = models.build("microadder-57").train()
    with pytest.raises(UserError, match="training mode"):
        require_evaluation_mode(model)
    require_sums(ADDER, "A sum")
    after = next(row for row in ROWS if row.name == "post-norm").build(0)
    with pytest.raises(UserError, match="A sum needs a residual stream that is the sum"):
        require_sums(after, "A sum")


def test_a_stream_that_cannot_be_written_is_found_by_trying():
    """TransformerBridge's hook_resid_mid is the MLP's input; HookedTransformer's and ours are the stream itself."""
    stock = stock_copy(ADDER)
    mid = ["blocks.0.hook_resid_mid"]
    tokens = PAIRS.clean_tokens[:2]
    assert stream_is_written(ADDER, tokens, mid)
    written = type(stock).__name__ != "TransformerBridge"
    assert stream_is_written(stock, tokens, mid) is written
    assert stream_is_written(stock, tokens, ["blocks.0.hook_resid_post"])
    assert isinstance(with_writable_stream(stock, ADDER.task, mid), ArithmeticTransformer) is not written
    assert model_name(ADDER) == "microadder-57"
