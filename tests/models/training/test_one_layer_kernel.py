"""The kernel of one-layer models computes the general objective: same loss, same gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import models
from models import TransformerConfig
from models.tasks.named.addition import TenDigitAddition
from models.training.choose_objective import objective_for
from models.training.one_layer_kernel import OneLayerObjective
from models.training.stacked_objective import GeneralObjective, ParameterLayout
from models.training.ten_digit_problems import AdditionProblems
from models.training.training_batches import TrainingStream
from models.transformer.parts.weights import Weights
from models.weight_maps import DenseWeights

SHAPE = TransformerConfig(1, 7, 1, 7, 14, 10, 34, normalization_type="RMS", eps=1e-8)


class LowRank(DenseWeights):
    """Free matrices whose keys and outputs are replaced by products of rank 3 and 2, with the factors beside them."""

    def forward(self) -> Weights:
        weights, attn = super().forward(), "blocks.0.attn"
        k, o = weights[f"{attn}.W_K"], weights[f"{attn}.W_O"]
        factors = {"K": (k[..., :3], k.mT[..., :3].mT), "O": (o[..., :2], o.mT[..., :2].mT)}
        for name, (left, right) in factors.items():
            weights |= {
                f"{attn}.W_{name}": left @ right,
                f"{attn}.W_{name}_left": left,
                f"{attn}.W_{name}_right": right,
            }
        return weights


CASES = {
    "one head": DenseWeights(SHAPE, biases=False),
    "two heads, layer norm, biases": DenseWeights(
        SHAPE.replace(n_heads=2, d_head=3, normalization_type="LN", eps=1e-5)
    ),
    "low ranks": LowRank(SHAPE, biases=False),
    "low ranks and the norms' biases": LowRank(SHAPE.replace(normalization_type="LN")),
    "one unit, another scale": DenseWeights(SHAPE.replace(d_mlp=1, attn_scale=1.5), biases=False),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_are_the_general_objectives(case: str):
    model = models.ArithmeticTransformer(CASES[case], TenDigitAddition())
    fast, layout = objective_for(model), ParameterLayout(model)
    assert isinstance(fast, OneLayerObjective)
    generator = torch.Generator().manual_seed(0)
    theta = (0.5 * torch.randn(3, layout.n, generator=generator)).requires_grad_()
    source = AdditionProblems()
    tokens, targets = TrainingStream(model.task, source, 48, [0, 1, 2], torch.device("cpu")).batch(20_000)
    tokens, targets = tokens.to(torch.uint8), targets.to(torch.uint8)
    if not fast.takes_kernel(tokens):
        pytest.skip("no C compiler here")
    expected = GeneralObjective(model).loss(layout.unflatten(theta), tokens, targets)
    found = fast.loss(layout.unflatten(theta), tokens, targets)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    weight = torch.tensor([1.0, -2.0, 0.5])  # each seed's loss has a gradient of its own
    (a,) = torch.autograd.grad((weight * found).sum(), theta)
    (b,) = torch.autograd.grad((weight * expected).sum(), theta)
    torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-5 * float(b.abs().max()))


@pytest.mark.parametrize("case", CASES)
def test_predictions_are_the_highest_logits(case: str):
    model = models.ArithmeticTransformer(CASES[case], TenDigitAddition())
    fast, layout = OneLayerObjective(model), ParameterLayout(model)
    theta = torch.randn(2, layout.n, generator=torch.Generator().manual_seed(2))
    tokens = model.task.encode(model.task.sample(37, torch.Generator().manual_seed(3))).T.expand(2, -1, -1)
    logits = GeneralObjective(model).logits(layout.unflatten(theta), tokens)
    predicted = fast.predictions(layout.unflatten(theta), tokens).long()
    chosen = logits.gather(1, predicted[:, None])[:, 0]
    torch.testing.assert_close(chosen, logits.max(1).values, rtol=1e-4, atol=1e-4)  # two may tie up to rounding
    assert (predicted == logits.argmax(1)).float().mean() > 0.999


def test_a_failed_seed_predicts_nothing_and_leaves_the_others_alone():
    model = models.ArithmeticTransformer(CASES["one head"], TenDigitAddition())
    fast, layout = OneLayerObjective(model), ParameterLayout(model)
    if not fast.has_kernel:
        pytest.skip("no C compiler here")
    theta = torch.randn(2, layout.n, generator=torch.Generator().manual_seed(4))
    tokens = model.task.encode(model.task.sample(16, torch.Generator().manual_seed(5))).T.expand(2, -1, -1)
    alone = fast.predictions(layout.unflatten(theta), tokens)
    theta[0, 3] = float("nan")
    predicted = fast.predictions(layout.unflatten(theta), tokens)
    assert bool((predicted[0] == 255).any()) and torch.equal(predicted[1], alone[1])


def test_factors_that_are_given_shorten_keys_and_values():
    model = models.ArithmeticTransformer(CASES["low ranks"], TenDigitAddition())
    folded = OneLayerObjective(model).fold({k: w[None] for k, w in model.effective_weights().items()})
    assert (folded.w_q.shape[-1], folded.w_k.shape[-1], folded.w_v.shape[-1]) == (3, 3, 2)


def test_rows_that_fill_no_vector_take_the_general_path():
    model = models.ArithmeticTransformer(CASES["one head"], TenDigitAddition())
    objective, layout = OneLayerObjective(model), ParameterLayout(model)
    theta = 0.3 * torch.randn(1, layout.n, generator=torch.Generator().manual_seed(1))
    tokens, targets = TrainingStream(model.task, AdditionProblems(), 5, [0], torch.device("cpu")).batch(9_000)
    assert not objective.takes_kernel(tokens)
    layout.load_into(model, theta[0])
    logits = model(tokens[0].T.long())[:, 21:]
    expected = F.cross_entropy(logits.flatten(0, 1), targets[0].T.long().flatten())
    torch.testing.assert_close(objective.loss(layout.unflatten(theta), tokens, targets)[0], expected)


@pytest.mark.parametrize(
    "switch",
    [
        {"n_layers": 2},
        {"act_fn": "relu"},
        {"norm_placement": "post"},
        {"attn_top_k": 3},
        {"positional_embedding_type": "none"},
    ],
    ids=str,
)
def test_other_models_are_left_to_other_objectives(switch: dict):
    model = models.ArithmeticTransformer(DenseWeights(SHAPE.replace(**switch)), TenDigitAddition())
    assert not OneLayerObjective.applies_to(model)
