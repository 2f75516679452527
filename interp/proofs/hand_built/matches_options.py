"""Whether a hand-built model is what its options build: the same config, and the same weights to the bit.

The proofs of constructions skip what a construction cannot have (norms, biases, other heads, digits that are worth
something else). So they are about models that have none of it, which is checked here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from models.families import (
    Construction,
    HandBuiltMultiplicationOptions,
    HandBuiltMultiplicationWeights,
    HandBuiltOptions,
    HandBuiltParityOptions,
    HandBuiltParityWeights,
    HandBuiltWeights,
    hand_built_task,
    multiplication_task,
    parity_task,
)
from models.tasks import Task

#: What each kind of options builds.
_BUILDERS: dict[type, tuple[Callable[..., Construction], Callable[..., Task]]] = {
    HandBuiltOptions: (HandBuiltWeights, hand_built_task),
    HandBuiltMultiplicationOptions: (HandBuiltMultiplicationWeights, multiplication_task),
    HandBuiltParityOptions: (HandBuiltParityWeights, parity_task),
}


def why_not_built(model: Any) -> str | None:
    """What of a hand-built model is not as its options build it, in words; None if everything is.

    Precondition: ``model.weight_map.options`` are of a construction that has a proof.
    """
    options = model.weight_map.options
    weight_map, task = _BUILDERS[type(options)]
    built = weight_map(options)
    for field in fields(built.config):
        if (own := getattr(model.config, field.name)) != (wanted := getattr(built.config, field.name)):
            return f"{field.name} is {own!r}, and its options make it {wanted!r}"
    with torch.no_grad():
        own, wanted = model.effective_weights(), built()
    for name in sorted({*own, *wanted}):
        if name not in own or name not in wanted or not _same_bits(own[name], wanted[name]):
            return f"{name} is not what its options build"
    plain = task(**{field.name: getattr(options, field.name) for field in fields(options)})
    if type(model.task) is not type(plain) or _said(model.task) != _said(plain.at(*model.task.shape)):  # type: ignore[attr-defined]
        return "its task is not that of its options"
    return None


def _same_bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    of = lambda x: x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)  # noqa: E731
    return torch.equal(of(a), of(b))


def _said(task: Task) -> dict[str, Any]:
    """A task's attributes, without those that it computes from the others."""
    computed = lambda name: isinstance(getattr(type(task), name, None), cached_property)  # noqa: E731
    return {name: value for name, value in vars(task).items() if not computed(name)}
