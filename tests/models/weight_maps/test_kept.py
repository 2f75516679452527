"""Weights that are kept between calls are those that the map would make now, whatever was done to it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, vmap

import models
from models.weight_maps.weight_cache import cached_weights

NAMES = ("microadder-57", "adder-456", "toygpt-learned-pre", "position-coupling-1l4h-small", "addlm-adder-two-digit")


def _tokens(model: Any, n: int = 3) -> torch.Tensor:
    task = model.task.at(2, 2) if model.task.has_other_sizes else model.task
    return task.encode(task.sample(n, torch.Generator().manual_seed(1)))


def _assert_fresh(model: Any) -> None:
    kept, fresh = cached_weights(model.weight_map), model.weight_map()
    assert list(kept) == list(fresh)
    for key, value in fresh.items():
        assert torch.equal(kept[key], value), key
        if torch.is_grad_enabled():
            assert kept[key].requires_grad == value.requires_grad, key


def _data(model: Any) -> None:
    next(model.parameters()).data.mul_(1.5)


def _numpy(model: Any) -> None:
    next(model.parameters()).detach().numpy()[...] += 0.25


def _replaced(model: Any) -> None:
    name, parameter = next(model.weight_map.named_parameters())
    setattr(model.weight_map, name, torch.nn.Parameter(parameter.detach() * 2))


def _optimiser(model: Any) -> None:
    model.zero_grad()
    model(_tokens(model), return_type="loss").backward()
    torch.optim.AdamW(model.parameters(), lr=0.1).step()


def _loaded(model: Any) -> None:
    model.load_state_dict({name: value * 3 for name, value in model.state_dict().items()})


def _frozen(model: Any) -> None:
    model.requires_grad_(False)


def _partly_frozen(model: Any) -> None:
    next(model.parameters()).requires_grad_(False)


def _double(model: Any) -> None:
    model.double()


def _hooked(model: Any) -> None:
    model.weight_map.register_forward_hook(lambda module, args, out: {key: value * 2 for key, value in out.items()})


def _attribute(model: Any) -> None:
    class Doubled(type(model.weight_map)):
        scale = 1.0

        def forward(self) -> Any:
            return {key: value * self.scale for key, value in super().forward().items()}

    model.weight_map.__class__ = Doubled
    model.weight_map()
    cached_weights(model.weight_map)
    model.weight_map.scale = 2.0


CHANGES = (_data, _numpy, _replaced, _optimiser, _loaded, _frozen, _partly_frozen, _double, _hooked, _attribute)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_no_change_of_what_weights_are_made_of_goes_unseen(change: Callable[[Any], None], with_gradients: bool) -> None:
    model = models.build("microadder-57")
    with torch.set_grad_enabled(with_gradients):
        cached_weights(model.weight_map)
        before = {key: value.detach().clone() for key, value in model.effective_weights().items()}
        with torch.enable_grad():
            change(model)
        _assert_fresh(model)
        if change not in (_frozen, _partly_frozen, _double):
            assert any(not torch.equal(before[key], value) for key, value in cached_weights(model.weight_map).items())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_those_through_the_map_each_time(name: str) -> None:
    model = models.build(name)
    tokens = _tokens(model)
    found = []
    for weights in (model.effective_weights(), None, None):
        model.zero_grad()
        model(tokens, return_type="loss", weights=weights).backward()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    for fresh, kept, again in zip(*found, strict=True):
        assert fresh is not None
        torch.testing.assert_close(kept, fresh)
        torch.testing.assert_close(again, fresh)


def test_second_derivatives_go_through() -> None:
    model = models.build("microadder-57").double()
    tokens, found = _tokens(model), []
    for weights in (model.effective_weights(), None):
        first = torch.autograd.grad(
            model(tokens, return_type="loss", weights=weights), model.parameters(), create_graph=True
        )
        second = torch.autograd.grad(sum(x.square().sum() for x in first), model.parameters(), allow_unused=True)
        found.append([torch.zeros(()) if x is None else x for x in second])
    assert any(bool(x.abs().max() > 0) for x in found[0])
    for fresh, kept in zip(*found, strict=True):
        torch.testing.assert_close(kept, fresh)


def test_a_map_is_not_made_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.build("microadder-57")
    tokens, calls = _tokens(model), []
    whole = type(model.weight_map).forward
    monkeypatch.setattr(type(model.weight_map), "forward", lambda self: (calls.append(1), whole(self))[1])
    with torch.no_grad():
        for _ in range(5):
            model(tokens)
    assert len(calls) == 1
    for _ in range(5):
        model(tokens)
    assert len(calls) == 2  # once more, to learn what has a gradient


def test_what_inference_mode_kept_serves_gradients_of_activations() -> None:
    model = models.build("microadder-57").requires_grad_(False)
    tokens = _tokens(model)
    with torch.inference_mode():
        inside = model(tokens).clone()
    stream = model(tokens, stop_at_layer=0).detach().requires_grad_()
    out = model(stream, start_at_layer=0)
    out.sum().backward()
    assert torch.equal(out.detach(), inside) and float(stream.grad.abs().max()) > 0


def test_transforms_of_parameters_see_their_own() -> None:
    model = models.build("microadder-57")
    tokens = _tokens(model)
    model(tokens)
    state = {name: value.detach() for name, value in model.named_parameters()}
    stacked = {name: torch.stack((value, value * 1.1)) for name, value in state.items()}
    both = vmap(lambda p: functional_call(model, p, (tokens,)))(stacked)
    torch.testing.assert_close(both[0], model(tokens))
    moved = copy.deepcopy(model)
    moved.load_state_dict({name: value * 1.1 for name, value in state.items()})
    torch.testing.assert_close(both[1], moved(tokens))

    def loss(p: Any) -> torch.Tensor:
        return functional_call(model, p, (tokens,), {"return_type": "loss"})

    model.zero_grad()
    model(tokens, return_type="loss").backward()
    for name, value in grad(loss)(state).items():
        torch.testing.assert_close(value, dict(model.named_parameters())[name].grad)
    swapped = {name: (value * 1.1).requires_grad_() for name, value in state.items()}
    loss(swapped).backward()
    assert all(value.grad is not None for value in swapped.values())
