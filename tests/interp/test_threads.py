"""One model that several threads ask: every answer is the answer of one thread."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import interp
import models

PAIRS = [(i * 7919 % 10**10, i * 104729 % 10**10) for i in range(64)]
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "hooks that write": lambda m: interp.component_ablation(m, n=32, control=False, replacement="zero"),
    "hooks that read": lambda m: interp.logit_lens(m, n=64),
    "a fast forward": lambda m: models.score(m, PAIRS),
    "run_with_hooks": lambda m: zeroed(m),
    "a plain run": lambda m: m(tokens(m)).sum().item(),
    "a cache": lambda m: m.run_with_cache(tokens(m))[1]["unembed.hook_out"].sum().item(),
    "gradients": lambda m: slope(m),
    "a sweep": lambda m: interp.attention_by_role(m, n=32),
}


def tokens(model: Any) -> torch.Tensor:
    return model.task.encode(torch.tensor(PAIRS))


def zeroed(model: Any) -> float:
    zero = ("blocks.0.hook_mlp_out", lambda value, hook: torch.zeros_like(value))
    return model.run_with_hooks(tokens(model), fwd_hooks=[zero]).sum().item()


def slope(model: Any) -> float:
    with torch.enable_grad():
        parameters = [p for p in model.parameters() if p.requires_grad]
        return float(sum(g.abs().sum() for g in torch.autograd.grad(model(tokens(model)).square().mean(), parameters)))


@pytest.mark.slow
def test_sixteen_questions_in_four_threads_get_the_answers_of_one():
    model = models.load("microadder-57")
    alone = {name: str(ask(model)) for name, ask in QUESTIONS.items()}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    names = [*QUESTIONS] * 2
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda name: str(QUESTIONS[name](model)), names))
    assert dict(zip(names, found, strict=True)) == alone and len(found) == 16
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


@pytest.mark.parametrize("other", ["the model", "a model with the same weight map"])
def test_a_run_waits_until_another_thread_has_taken_its_hooks_off(other: str):
    model = models.load("microadder-57")
    asked = model if other == "the model" else copy.copy(model)
    expected, given = model(tokens(model)), []
    thread = threading.Thread(target=lambda: given.append(asked(tokens(asked))))
    with model.hooks([("blocks.0.hook_mlp_out", lambda value, hook: torch.zeros_like(value))]):
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and not given
        assert not torch.equal(model(tokens(model)), expected)  # this thread has the model's turn
    thread.join()
    assert torch.equal(given[0], expected)


def test_other_models_do_not_wait_and_copies_have_turns_of_their_own():
    model = models.load("microadder-57")
    others = [models.load("microadder-67"), copy.deepcopy(model)]
    with model.hooks([]), ThreadPoolExecutor(2) as pool:
        assert len([pool.submit(other, tokens(other)).result(timeout=60) for other in others]) == 2


def test_the_default_dtype_comes_back_after_the_last_of_several_threads():
    model = models.load("microadder-57")
    torch.set_default_dtype(torch.float64)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: models.score(models.load("microadder-57"), PAIRS).correct, range(8)))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == [models.score(model, PAIRS).correct] * 8
