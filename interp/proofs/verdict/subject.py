"""A model and a task as the methods read them: each thing once, and kept for the next method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from interp.core.task_checks import resolve_task
from interp.proofs.verdict.identity import identify
from models import ArithmeticTransformer, UserError
from models.importers import from_transformer_lens
from models.tasks import Domain, Machine, Task, domain_of, machine_of
from models.transformer import HookedModel, model_name

T = TypeVar("T")


class CannotJudge(UserError):
    """Raised by a method that finds on the way why it cannot judge a model; ``reason`` says it in words."""

    def __init__(self, model: HookedModel, reason: str):
        super().__init__(f"The certifier cannot judge {model_name(model)}: {reason}.")
        self.reason = reason


class Subject:
    """What a verdict is about, and what was read of it.

    Nothing is read before it is asked for. What only one room reads, it keeps by :meth:`once`.

    Attributes:
        model: the model that is judged, which answers problems alone. given: the task that was given, if one was.
        started: when it was begun with, for its seconds.
    """

    def __init__(self, model: HookedModel, task: Task | None = None):
        self.model, self.given, self.started = model, task, time.perf_counter()
        self._read: dict[Callable[[Subject], Any], tuple[Any, UserError | None]] = {}

    @cached_property
    def task(self) -> Task:
        """The task, checked against the model. Raises UserError as :func:`interp.core.task_checks.resolve_task`."""
        return resolve_task(self.model, self.given)

    @cached_property
    def identity(self) -> str:
        """The fingerprint. Raises UserError if the model does not compute what its weights say."""
        return identify(self.model, self.task)

    @cached_property
    def own(self) -> ArithmeticTransformer:
        """The model itself, or its copy, if it is a stock TransformerLens one."""
        model = self.model
        return model if isinstance(model, ArithmeticTransformer) else from_transformer_lens(model, self.task)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The effective weights, which nobody changes: bounds and what is run read the same numbers.

        Raises:
            CannotJudge: a number that is NaN or infinite, other than -inf in a bias of attention, which hides a key.
        """
        found = {name: value.detach().clone() for name, value in self.own.effective_weights().items()}
        for name, value in found.items():
            hides = name.endswith("attn.bias")
            if not (value.isfinite() | (hides & (value == -math.inf))).all():
                raise CannotJudge(self.model, f"{name} has NaN or infinite numbers")
        return found

    @property
    def domain(self) -> Domain:
        """All problems, numbered. Raises UserError for a task that does not list them."""
        return self.once(_domain)

    @property
    def machine(self) -> Machine:
        """The task's machine. Raises UserError for a task that has none."""
        return self.once(_machine)

    def once(self, read: Callable[[Subject], T]) -> T:
        """What ``read`` returns for this subject, or the UserError that it raises; it is called once."""
        if read not in self._read:
            try:
                self._read[read] = read(self), None
            except UserError as error:
                self._read[read] = None, error
        found, error = self._read[read]
        if error is not None:
            raise error
        return cast(T, found)


def _domain(subject: Subject) -> Domain:
    return domain_of(subject.task)


def _machine(subject: Subject) -> Machine:
    return machine_of(subject.task)


def reason_of(read: Callable[[], Any]) -> str | None:
    """Why something cannot be read, in words without the full stop; None if it can be."""
    try:
        read()
    except UserError as error:
        return str(error).rstrip(".")
    return None


def not_float32(model: ArithmeticTransformer) -> str | None:
    """Why what a model computes is not float32 on the CPU, which bounds of rounding are about; None if it is."""
    if model.config.dtype != "float32" or model.dtype != torch.float32 or model.device.type != "cpu":
        return "models are proved in float32 on the CPU"
    return None


def require_logits(model: HookedModel, targets: Tensor) -> None:
    """Raises UserError for right tokens that the model never predicts."""
    if (largest := int(targets.max())) >= (n := model.config.n_logits):
        raise UserError(f"The right tokens go up to {largest}, and {model_name(model)} predicts {n}, from 0 on.")
