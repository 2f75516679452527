"""The forward without patterns is the hooked forward: values and gradients, for every switch that it computes."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import models
from models.run import (
    Formulas,
    blocks,
    formulas,
    logits_by_formulas,
    logits_from,
    responses_right,
    scoring,
)
from models.run.score_bias import FireTable
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.comparing import assert_same
from tests.conformance.table import dense
from tests.models.coders import CODERS, coder
from tests.parity.switches import SWITCHES
from tests.sampling import every_third


def sequences(model: ArithmeticTransformer, operands: int, digits: int, n: int = 3):
    task = model.task.at(operands, digits)
    return task.sequences(task.sample(n, torch.Generator().manual_seed(0)))


def gradient(model: ArithmeticTransformer, logits: torch.Tensor) -> torch.Tensor:
    parameters = list(model.parameters())
    found = torch.autograd.grad(logits.square().sum(), parameters, allow_unused=True)
    return torch.cat(
        [torch.zeros(p.numel()) if g is None else g.flatten() for p, g in zip(parameters, found, strict=True)]
    )


@pytest.mark.parametrize("d_head, top_k", [(6, 3), (32, 1), (5, 100)])
def test_l1_scores_over_the_best_keys_are_the_hooked_forwards_in_float32_by_the_compiled_kernel(d_head, top_k):
    model = dense(attn_scores="neg_l1", attn_top_k=top_k, d_head=d_head, normalization_type="LN")(0)
    tokens = model.task.encode(model.task.sample(16, torch.Generator().manual_seed(1)))
    hooked = model(tokens)
    fast = logits_by_formulas(Formulas(model), tokens, 0)
    assert_same(fast, hooked, 1e-5)
    assert_same(gradient(model, fast), gradient(model, hooked), 1e-5)


@pytest.mark.parametrize("name", every_third(SWITCHES))
@pytest.mark.parametrize("first", [0, pytest.param(3, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("plain", [True, False])
def test_values_and_gradients_are_the_hooked_forwards_by_either_attention(name, first, plain, monkeypatch):
    monkeypatch.setattr(formulas, "_trains_briefly", lambda keys: plain)
    model = dense(**SWITCHES[name])(0).double()
    tokens = model.task.encode(model.task.sample(4, torch.Generator().manual_seed(1)))
    hooked = model(tokens)[:, first:]
    fast = logits_from(model, tokens, first, model.effective_weights())
    assert_same(fast, hooked, 1e-11)
    assert_same(gradient(model, fast), gradient(model, hooked), 1e-9)


COMPILE = """
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from models.training.unstacked_objective import response_logits
from tests.models.coders import coder
model, counter, furthest = coder("", 2).double(), CompileCounterWithBackend("eager"), 0.0
compiled = torch.compile(response_logits, dynamic=True, backend=counter)
for length, first in [(5, 2), (9, 4), (14, 5), (17, 9), (20, 8), (23, 9), (31, 12)]:
    tokens = torch.randint(10, (3, length), generator=torch.Generator().manual_seed(length))
    difference = compiled(model, tokens, first, model.effective_weights()) - model(tokens)[:, first:]
    furthest = max(furthest, difference.abs().max().item())
print(counter.frame_count, furthest)
"""


@pytest.mark.slow
def test_a_compiled_forward_in_training_serves_all_lengths():
    """If the code fixed a length, torch would compile it again for every length, and would give up after eight."""
    out = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=True)  # no shape checks
    times_compiled, difference = out.stdout.split()
    assert int(times_compiled) <= 2
    assert float(difference) < 1e-10


@pytest.mark.parametrize("kind", CODERS)
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("few", every_third([1, 7, 1000], 1))
def test_taking_a_few_queries_at_a_time_changes_nothing(kind, layers, few, monkeypatch):
    monkeypatch.setattr(blocks, "QUERIES_AT_ONCE", few)
    model = coder(kind, layers).double()
    seq = sequences(model, 5, 4)
    first = int(seq.mask[0].long().argmax())
    with torch.no_grad():
        fast = logits_from(model, seq.inputs, first, model.effective_weights())
        assert_same(fast, model(seq.inputs)[:, first:], 1e-11)


def test_one_row_of_ids_serves_a_batch():
    model = coder("")
    seq = sequences(model, 3, 3)
    ids = model.task.at(3, 3).position_ids(seq.inputs) + 2
    with torch.no_grad():
        each = logits_from(model, seq.inputs, 4, model.effective_weights(), ids)
        one = logits_from(model, seq.inputs, 4, model.effective_weights(), ids[:1])
    assert torch.equal(each, one)
    assert not torch.allclose(each, logits_from(model, seq.inputs, 4, model.effective_weights()), atol=1e-3)


@pytest.mark.parametrize("normaliser", ["max", "min"])
def test_rows_of_the_fire_bias_are_those_of_the_whole(normaliser):
    model = dense(positional_embedding_type="fire", fire_c=0.7, fire_L0=30.0, fire_normaliser=normaliser)(0)
    weights = model.effective_weights()
    assert_same(model.fire.rows(20, 45, 60, weights), model.fire(60, weights)[:, 20:45], 1e-6)


def test_the_fire_table_grows_with_the_sequences():
    model = coder("-fire")
    with torch.no_grad():
        weights = model.effective_weights()
        table = FireTable(model, weights)
        for n in (9, 40, 41, 600, 30):
            assert_same(table(n), model.fire(n, weights), 1e-5)


@pytest.mark.parametrize("suffix", ["", "-fire", "-nope", "-window1"])
@pytest.mark.parametrize("layers", [1, 2])
def test_whole_responses_are_right_where_every_predicted_token_is(suffix: str, layers: int):
    """Against logits of all positions; the targets are the model's own predictions, some of them spoilt."""
    model = coder(suffix, layers)
    task, seq = model.task, sequences(model, 3, 3, n=60)
    with torch.no_grad():
        weights = model.effective_weights()
        predicted = model(seq.inputs).argmax(-1)
        spoilt = torch.rand(predicted.shape, generator=torch.Generator().manual_seed(2)) < 0.02
        targets = torch.where(spoilt, (predicted + 1) % task.d_vocab, predicted)
        expected = ((predicted == targets) | ~seq.mask).all(1)
        found = responses_right(Formulas(model, weights), seq.inputs, targets, seq.mask)
    assert 5 < int(expected.sum()) < 55
    assert torch.equal(found, expected)


def test_a_response_that_outlasts_a_block_of_queries_is_followed_to_its_end(monkeypatch):
    for module in (blocks, scoring):
        monkeypatch.setattr(module, "QUERIES_AT_ONCE", 4)
    model = models.build("position-coupling-hand-built", max_operands=4, max_digits=4)
    seq = sequences(model, 4, 4, n=20)
    assert responses_right(Formulas(model), seq.inputs, seq.targets, seq.mask).all()
    spoilt = seq.targets.clone()
    spoilt[7, -1] = 3  # EOS, the last of all
    spoilt[9, 30] = (spoilt[9, 30] + 1) % 10
    right = responses_right(Formulas(model), seq.inputs, spoilt, seq.mask)
    assert (~right).nonzero().flatten().tolist() == [7, 9]


def test_a_nan_is_wrong():
    model = coder("")
    seq = sequences(model, 3, 3, n=4)
    with torch.no_grad():
        weights = dict(model.effective_weights())
        weights["unembed.W_U"] = weights["unembed.W_U"] * float("nan")
        predicted = torch.zeros_like(seq.targets)
        assert not responses_right(Formulas(model, weights), seq.inputs, predicted, seq.mask).any()


def test_a_wide_copy_holds_its_heads_as_products_take_them():
    wide = dense(d_model=256, n_heads=4, d_head=64, positional_embedding_type="fire", normalization_type="LN")(0)
    with torch.no_grad():
        for name, parameter in wide.named_parameters():
            if name.endswith(("b_Q", "b_in", "/b")):  # zeros are left out, but for FIRE's own
                parameter.zero_()
    copy, tokens = wide.dense_copy(), wide.task.encode([(57, 48), (9, 1)])
    for name in ("W_Q", "W_K", "W_V"):
        own, held = (model.effective_weights()[f"blocks.0.attn.{name}"] for model in (wide, copy))
        assert torch.equal(own, held)
        assert held.transpose(0, 1).is_contiguous()
    assert_same(copy(tokens), wide(tokens), 1e-6)
    with torch.no_grad():
        # Sums over 256 numbers in another order: 2e-5 apart on a processor without AVX.
        assert_same(logits_by_formulas(Formulas(copy), tokens, 2), wide(tokens)[:, 2:], 1e-4)
