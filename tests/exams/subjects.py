"""Subjects in which the truth is known: trained adders with a part replaced, curves, tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import models
from models.tasks.paired.problem_pairs import ProblemPairs, problem_pairs
from studies.population.symmetries import symmetries_of

ADDER = "microadder-57"


def trained() -> Any:
    """MicroAdder: one head looks at two columns ten to one, two units switch on the carry out, the MLP writes."""
    return models.load(ADDER)


def untrained(seed: int = 1) -> Any:
    return models.build(ADDER, seed=seed)


def without(name: str) -> Any:
    """The trained adder with one of its parameters at zero."""
    return scaled(name, 0.0)


def scaled(name: str, factor: float) -> Any:
    model = trained()
    with torch.no_grad():
        getattr(model.weight_map, name).mul_(factor)
    return model


def planted(hook: str, value: Callable[[Tensor], Tensor]) -> Any:
    """The trained adder with an activation replaced for good, wherever the model is run."""
    model = trained()
    model.add_perma_hook(hook, lambda activation, hook: value(activation))
    return model


def looks_at(own: float, below: float) -> Any:
    """The trained adder with a planted pattern: these weights on an operand digit of the own and previous column."""
    task = trained().task

    def pattern(weights: Tensor) -> Tensor:
        rows = weights.clone()
        for target, query in enumerate(task.query_positions):
            roles = task.relative_roles(target)
            if not roles["own operands"] or not roles["previous operands"]:
                continue
            row = torch.zeros(rows.shape[-1])
            row[roles["own operands"]], row[roles["previous operands"]] = own, below
            left = [key for role in ("rest", "delimiters", "previous output") for key in roles[role]]
            row[left] = (1 - row.sum()) / len(left)
            rows = rows.index_copy(2, torch.tensor([query]), row.expand(*rows.shape[:2], 1, -1).to(rows))
        return rows

    return planted("blocks.0.attn.hook_pattern", pattern)


def carry_pairs(model: Any, turned: bool = False, n: int = 48) -> tuple[Any, ProblemPairs]:
    """(model, pairs that differ in a carry made in the previous column); ``turned``: clean and corrupted exchanged."""
    pairs = problem_pairs(model.task, "made carry", column=4, n=n)
    if turned:
        pairs = ProblemPairs(pairs.task, pairs.corrupted, pairs.clean, pairs.target, pairs.what, pairs.seed)
    return model, pairs


def arc(order: list[int] | None = None) -> np.ndarray:
    """Ten points, 30 degrees apart on a circle, in this order."""
    angle = np.radians(30) * np.array(range(10) if order is None else order)
    return np.stack((np.cos(angle), np.sin(angle), 0 * angle), 1)


def noise(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns))


SHUFFLED = [5, 0, 8, 3, 9, 1, 6, 2, 7, 4]
negated: Callable[[str], Any] = partial(planted, value=lambda activation: -activation)


def with_parameters(change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Any:
    """The trained adder with parameters made from its own."""
    model = trained()
    parameters = dict(model.weight_map.named_parameters())
    made = change({name: value.detach().double() for name, value in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(made[name])
    return model


def moved(seed: int = 0) -> Any:
    """The trained adder's function, with parameters moved along its symmetries."""
    symmetries = symmetries_of(trained())
    generator = torch.Generator().manual_seed(seed)
    return with_parameters(lambda own: symmetries.random(symmetries.canonical(own), generator))


def shaken(by: float) -> Any:
    """The trained adder with every parameter off by so many times a normal draw, the same for every ``by``."""
    generator = torch.Generator().manual_seed(0)
    return with_parameters(
        lambda own: {
            name: value * (1 + by * torch.randn(value.shape, generator=generator, dtype=value.dtype))
            for name, value in own.items()
        }
    )


looks_everywhere: Callable[[], Any] = partial(looks_at, 1 / 25, 1 / 25)
