"""The fast objective is the general one: same loss, same gradient."""

import pytest
import torch
from torch.nn import functional as F

import models
from models import TransformerConfig
from models.tasks.named.addition import TenDigitAddition
from models.training.choose_objective import objective_for
from models.training.one_layer_kernel import OneLayerObjective
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import GeneralObjective, ParameterLayout
from models.training.unstacked_objective import UnstackedObjective
from models.weight_maps import DenseWeights
from tests.models.training.stacked import assert_stream_is_split, batch, stack

MICROADDERS = ["microadder-57", "microadder-67", "microadder-74"]


def loss_and_gradient(objective, layout, theta, tokens, targets):
    loss = objective.loss(layout.unflatten(theta), tokens, targets)
    return loss.detach(), torch.autograd.grad(loss.sum(), theta)[0]


@pytest.mark.parametrize("name", MICROADDERS)
def test_the_general_objective_is_the_cross_entropy_of_the_models_own_logits(name: str):
    model, layout, theta = stack(name)
    tokens, targets = batch()
    loss = GeneralObjective(model).loss(layout.unflatten(theta), tokens, targets)
    for seed in range(3):
        layout.load_into(model, theta[seed].detach())
        logits = model(tokens[seed].T.long())[:, 21:]
        expected = F.cross_entropy(logits.flatten(0, 1), targets[seed].T.long().flatten())
        torch.testing.assert_close(loss[seed], expected)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "torch"])
@pytest.mark.parametrize("name", MICROADDERS)
def test_attention_once_a_seed_gives_the_same_loss_and_gradient(name: str, kernel: bool):
    model, layout, theta = stack(name)
    tokens, targets = batch()
    fast = PositionOnlyObjective(model)
    if kernel and fast.kernel is None:
        pytest.skip("no C compiler here")
    if not kernel:
        fast.kernel = None
    assert fast.takes_kernel(tokens) == kernel
    expected, expected_gradient = loss_and_gradient(GeneralObjective(model), layout, theta, tokens, targets)
    loss, gradient = loss_and_gradient(fast, layout, theta, tokens, targets)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    scale = expected_gradient.abs().amax(1, keepdim=True)
    assert ((gradient - expected_gradient).abs() / scale).max() < 2e-5


def test_in_saturation_the_kernel_is_as_exact_as_torch():
    """Large weights: softmax and GELU at their flat ends, where fast approximations tend to break.

    float32 itself is off there, so both are held against the general objective in float64.
    """
    model, layout, theta = stack("microadder-57")
    fast = PositionOnlyObjective(model)
    if fast.kernel is None:
        pytest.skip("no C compiler here")
    theta = (theta.detach() * 5).requires_grad_()
    tokens, targets = batch()
    double = models.build("microadder-57").double()
    exact = theta.detach().double().requires_grad_()
    expected, expected_gradient = loss_and_gradient(GeneralObjective(double), layout, exact, tokens, targets)
    assert expected.max() > 20
    errors = {}
    for objective in (fast, GeneralObjective(model)):
        loss, gradient = loss_and_gradient(objective, layout, theta, tokens, targets)
        torch.testing.assert_close(loss.double(), expected, rtol=1e-4, atol=1e-5)
        scale = expected_gradient.abs().amax(1, keepdim=True)
        errors[type(objective)] = float(((gradient - expected_gradient).abs() / scale).max())
    assert errors[PositionOnlyObjective] < 3 * errors[GeneralObjective] + 1e-6


def test_the_kernels_leave_the_processors_arithmetic_as_it_was():
    """A library linked with -ffast-math would flush the subnormal numbers of the whole process to zero."""
    model, layout, theta = stack("microadder-57")
    loss_and_gradient(PositionOnlyObjective(model), layout, theta, *batch())
    assert 5e-324 * float(len("x")) > 0
    assert float(torch.tensor(1e-40) * torch.tensor(1.0)) > 0


def test_rows_that_do_not_fill_a_vector_take_the_torch_path():
    model, layout, theta = stack("microadder-57")
    tokens, targets = batch(rows=10)
    fast = PositionOnlyObjective(model)
    assert not fast.takes_kernel(tokens)
    torch.testing.assert_close(
        fast.loss(layout.unflatten(theta), tokens, targets),
        GeneralObjective(model).loss(layout.unflatten(theta), tokens, targets),
    )


@pytest.mark.parametrize("name", MICROADDERS)
def test_the_promise_of_a_split_stream_holds(name: str):
    """For random parameters."""
    model, layout, theta = stack(name)
    for row in theta.detach():
        layout.load_into(model, row)
        assert_stream_is_split(model)


@pytest.mark.parametrize("switch", [{"attn_bias": True}, {"attn_softmax": "softmax1"}, {"use_qk_norm": True}])
def test_switches_that_a_kernel_does_not_know_take_the_general_objective(switch: dict):
    """Fixed numbers on the scores are no matter where the pattern is made in torch, once a seed."""
    plain = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 16, "d_vocab": 10, "n_ctx": 34}
    made = []
    for more in ({}, switch):
        weights = DenseWeights(TransformerConfig(**plain, **more))
        made.append(objective_for(models.ArithmeticTransformer(weights, TenDigitAddition())))
    assert isinstance(made[0], OneLayerObjective) and type(made[1]) is GeneralObjective


def test_a_model_without_a_split_stream_takes_the_general_objective():
    cfg = TransformerConfig(n_layers=2, d_model=8, n_heads=2, d_head=4, d_mlp=16, d_vocab=10, n_ctx=34)
    weights = DenseWeights(cfg)
    weights.initialise(torch.Generator().manual_seed(0))
    model = models.ArithmeticTransformer(weights, TenDigitAddition())
    objective = objective_for(model)
    assert type(objective) is GeneralObjective
    layout = ParameterLayout(model)
    theta = layout.flatten(model)[None].requires_grad_()
    tokens, targets = batch(1, rows=8)
    loss, gradient = loss_and_gradient(objective, layout, theta, tokens, targets)
    model.zero_grad()
    logits = model(tokens[0].T.long())[:, 21:]
    own = F.cross_entropy(logits.flatten(0, 1), targets[0].T.long().flatten())
    own.backward()
    torch.testing.assert_close(loss[0], own.detach())
    named = torch.cat([p.grad.flatten() for p in model.weight_map.parameters()])
    torch.testing.assert_close(gradient[0], named, rtol=1e-4, atol=1e-6)


def test_seeds_one_by_one_through_the_cheap_forward_give_the_same_loss_and_gradient():
    cfg = TransformerConfig(2, 64, 2, 32, 128, 10, 34, act_fn="gelu_new", normalization_type="LN")
    model = models.ArithmeticTransformer(DenseWeights(cfg), TenDigitAddition())
    fast = objective_for(model)
    assert isinstance(fast, UnstackedObjective)
    layout = ParameterLayout(model)
    generator = torch.Generator().manual_seed(0)
    theta = (0.1 * torch.randn(2, layout.n, generator=generator)).requires_grad_()
    expected = loss_and_gradient(GeneralObjective(model), layout, theta, *batch(2, 16))
    found = loss_and_gradient(fast, layout, theta, *batch(2, 16))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
