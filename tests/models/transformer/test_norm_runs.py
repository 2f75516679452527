"""The norm before attention runs once where nothing looks at it, and once for each of q, k and v where a hook does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import models
from models.transformer.parts.norms import Norm

NAMES = ("adder-763", "toygpt-learned-pre")  # LN with biases


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the norms that run."""
    ran, forward = [], Norm.forward
    with monkeypatch.context() as patch:
        patch.setattr(Norm, "forward", lambda self, *args: ran.append(self.name) or forward(self, *args))
        yield ran


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_on_the_norm_sees_it_three_times_and_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch):
    model = models.load(name)
    tokens = model.task.encode(model.task.sample(5, torch.Generator().manual_seed(0)))
    with counted(monkeypatch) as ran:
        plain = model(tokens)
        assert ran.count("blocks.0.ln1") == 1
        seen = []
        hooks: list[Any] = [("blocks.0.ln1.hook_normalized", lambda value, hook: seen.append(value))]
        hooked = model.run_with_hooks(tokens, fwd_hooks=hooks)
    assert len(seen) == 3 and ran.count("blocks.0.ln1") == 4
    assert torch.equal(plain, hooked)


@pytest.mark.parametrize("name", NAMES)
def test_a_hook_may_treat_queries_keys_and_values_apart(name: str):
    model = models.load(name)
    tokens = model.task.encode(model.task.sample(5, torch.Generator().manual_seed(0)))
    calls = iter(range(3))
    shift = lambda value, hook: value + 1.0 if next(calls) == 2 else value  # noqa: E731
    _, plain = model.run_with_cache(tokens)
    cache: dict[str, torch.Tensor] = {}
    keep = lambda value, hook: cache.update({hook.name: value})  # noqa: E731
    names = [f"blocks.0.attn.hook_{letter}" for letter in "qkv"]
    hooks: list[Any] = [("blocks.0.ln1.hook_normalized", shift), *((name, keep) for name in names)]
    model.run_with_hooks(tokens, fwd_hooks=hooks)
    assert torch.equal(cache[names[0]], plain[names[0]]) and torch.equal(cache[names[1]], plain[names[1]])
    assert not torch.allclose(cache[names[2]], plain[names[2]])


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_a_hook_on_gradients_sees_those_of_queries_keys_and_values_apart(register: str):
    model = models.load(NAMES[0])
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    calls: list[int] = []
    norm: Any = model.blocks[0].ln1
    handle = getattr(norm, register)(lambda *_: calls.append(1))
    model(tokens).sum().backward()
    handle.remove()
    assert len(calls) == 3


def test_a_hook_on_all_modules_sees_the_norm_three_times():
    model = models.load(NAMES[0])
    tokens = model.task.encode(model.task.sample(2, torch.Generator().manual_seed(0)))
    seen: list[str] = []
    keep = lambda module, *_: seen.append(getattr(module, "name", "")) if isinstance(module, Norm) else None  # noqa: E731
    handle = torch.nn.modules.module.register_module_forward_hook(keep)
    try:
        model(tokens)
    finally:
        handle.remove()
    assert seen.count("blocks.0.ln1") == 3


@pytest.mark.usefixtures("without_shape_checks")  # a vector is not what a block hands on
def test_a_single_vector_and_autocast_add_the_bias_as_before():
    model = models.load("toygpt-learned-pre")
    mlp: Any = model.blocks[0].mlp
    x = torch.randn(3, model.cfg.d_model, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(torch.stack([mlp(row) for row in x]), mlp(x), atol=1e-5)
    assert torch.allclose(torch.func.vmap(model.unembed)(x), model.unembed(x), atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        product, bias = x @ model.unembed.W_U, model.unembed.b_U
        assert torch.equal(model.unembed(x), product + bias)
