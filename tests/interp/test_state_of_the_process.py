"""What a program has set for its own computations: an answer is about the model as the caller has it, or refused.

Each state is entered around a public call. Where the model computes something else in it (autocast, say), the call must
not speak of what it computes elsewhere; where it computes the same, the answer must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

import interp
import models
from interp.proofs.certify import check_certificate
from models import UserError
from models.weight_maps import WeightMap
from tests.sampling import every_third

PAIRS = [(i * 7919 % 10**10, i * 104729 % 10**10) for i in range(64)]


@contextmanager
def _set(put: Callable[[Any], None], value: Any, before: Any) -> Iterator[None]:
    put(value)
    try:
        yield
    finally:
        put(before)


@contextmanager
def _hooked(model: Any, forward: Callable[..., Any]) -> Iterator[None]:
    handle = model.hook_embed.register_forward_hook(forward)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _training(model: Any) -> Iterator[None]:
    with _set(model.train, True, False):
        yield


STATES: dict[str, Callable[[Any], Any]] = {
    "autocast": lambda model: torch.autocast("cpu", torch.bfloat16),
    "default dtype float64": lambda model: _set(torch.set_default_dtype, torch.float64, torch.float32),
    "default dtype float16": lambda model: _set(torch.set_default_dtype, torch.float16, torch.float32),
    "matmul precision": lambda model: _set(torch.set_float32_matmul_precision, "medium", "highest"),
    "deterministic": lambda model: _set(torch.use_deterministic_algorithms, True, False),
    "hook that writes": lambda model: _hooked(model, lambda module, given, out: torch.zeros_like(out)),
    "hook that reads": lambda model: _hooked(model, lambda module, given, out: None),
    "training mode": _training,
    "no gradients": lambda model: torch.no_grad(),
    "inference mode": lambda model: torch.inference_mode(),
}
#: States that change nothing: a refusal in them would be a fault too.
HARMLESS = ("default dtype float64", "default dtype float16", "deterministic", "no gradients", "inference mode")


@cache
def adder() -> Any:
    return models.load("microadder-57")


@cache
def summer() -> Any:
    model: Any = models.load("parity-coupling-1l4h-small")
    model.task = model.task.at(3)
    return model


@cache
def certificate() -> Any:
    return interp.certify(summer())


def proved(verdict: Any) -> dict[str, Any]:
    return verdict.replace(seconds=0.0).to_dict()


QUESTIONS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "certify": (summer, lambda model: proved(interp.certify(model))),
    "check_certificate": (summer, lambda model: proved(check_certificate(certificate(), model))),
    "score": (adder, lambda model: models.score(model, PAIRS)),
    "attention_by_role": (adder, lambda model: interp.attention_by_role(model, n=64).to_dataframe().to_json()),
    "logit_lens": (adder, lambda model: interp.logit_lens(model, n=64).to_dataframe().to_json()),
}


@cache
def in_plain_state(question: str) -> Any:
    subject, ask = QUESTIONS[question]
    return ask(subject())


def logits(model: Any) -> torch.Tensor:
    return model(model.task.encode(model.task.sample(8, torch.Generator().manual_seed(0)))).detach()


@pytest.mark.parametrize(("state", "question"), every_third(product(STATES, QUESTIONS)))
def test_an_answer_is_about_the_model_as_the_caller_has_it(state: str, question: str):
    subject, ask = QUESTIONS[question]
    model, expected = subject(), in_plain_state(question)
    plain = logits(model)
    with STATES[state](model):
        inside = logits(model)
        same = inside.dtype == plain.dtype and torch.equal(inside, plain)
        try:
            found = ask(model)
        except UserError as error:
            assert len(str(error).splitlines()) == 1 and str(error).endswith((".", "!"))
            assert state not in HARMLESS, error
            return
        if same:
            assert found == expected
        else:  # what is said must be of the model as it is here
            assert question not in ("certify", "check_certificate")
            assert state != "hook that writes" or found != expected
        if question == "score":
            tokens = model.task.encode(torch.tensor(PAIRS))
            answers = model(tokens)[:, list(model.task.query_positions)].argmax(-1)
            right = (answers == model.task.targets(torch.tensor(PAIRS))).all(1)
            assert found.correct == int(right.sum())


@pytest.mark.parametrize("state", ["no gradients", "inference mode"])
def test_what_follows_gradients_is_asked_where_gradients_are_off_too(state: str):
    ask = lambda: interp.jacobian_lens(adder(), n=64).to_dataframe().to_json()  # noqa: E731
    expected = ask()
    with STATES[state](adder()):
        assert ask() == expected


@pytest.mark.parametrize("question", ["certify", "check_certificate", "score", "attention_by_role"])
def test_autocast_is_refused(question: str):
    subject, ask = QUESTIONS[question]
    in_plain_state(question)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(UserError, match="autocast"):
        ask(subject())
    assert ask(subject()) == in_plain_state(question)


class _OfTheDefault(WeightMap):
    """Weights with a number in torch's default dtype, as somebody's own map may have."""

    def __init__(self, inner: WeightMap):
        super().__init__(inner.config)
        self.inner = inner

    def forward(self) -> dict[str, torch.Tensor]:
        weights = self.inner()
        return weights | {"embed.W_E": weights["embed.W_E"] * torch.tensor(1 + 2.0**-12)}


@pytest.mark.parametrize("ask", [interp.certify, models.score, interp.attention_by_role])
def test_weights_that_depend_on_the_default_dtype_are_refused_where_they_are_others(ask: Callable[..., Any]):
    model = models.ArithmeticTransformer(_OfTheDefault(adder().weight_map), adder().task, "mine")
    with _set(torch.set_default_dtype, torch.float16, torch.float32):
        with pytest.raises(UserError, match="float16"):
            ask(model)
        assert torch.get_default_dtype() == torch.float16
