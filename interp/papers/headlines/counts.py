"""Numbers that are counted at once, on models that are built for it; several papers need them."""

from __future__ import annotations

import math
from collections.abc import Callable

import models
from interp.papers.headlines.rules import Ours, counted
from interp.papers.headlines.store import Store

Finder = Callable[[Store], Ours]


def parameters_of(name: str) -> int:
    """Free parameters of a registered model, counted without drawing them."""
    spec = models.get_spec(name)
    return sum(p.numel() for p in spec.weight_map(**spec.options).parameters())


def parameters(name: str) -> Finder:
    return lambda store: counted(parameters_of(name), f"parameters of {name}, counted on the model")


def numbers_named(name: str, *prefixes: str) -> Finder:
    """Free numbers of a model whose names begin so."""

    def found(store: Store) -> Ours:
        named = models.build(name).weight_map.named_parameters()
        n = sum(p.numel() for key, p in named if key.startswith(prefixes))
        return counted(n, f"free numbers of {name}, counted on the model")

    return found


def config(name: str, field: str) -> Finder:
    """A size of a registered model, "d_model"."""
    return lambda store: counted(getattr(models.build(name).config, field), f"{field} of {name}")


def setting(name: str, field: str) -> Finder:
    """A number of the recipe that an entry was trained with, "steps"."""
    return lambda store: counted(store.entry(name)["training"]["recipe"][field], f"{field} of the recipe of {name}")


def score(name: str) -> Finder:
    return lambda store: store.score(name)


def certified(name: str) -> Finder:
    return lambda store: store.certified(name)


def grokked(name: str) -> Finder:
    return lambda store: store.grokked(name)


def minutes(name: str) -> Finder:
    """Wall time of the run that trained all of an entry's seeds together, on one CPU thread."""

    def found(store: Store) -> Ours:
        made = store.entry(name)["training"]
        remark = f"for {made['seeds_tried']} seeds together; one alone was not timed"
        return counted(1, f"run of {name} on one CPU thread of a shared machine").with_value(
            made["seconds"] / 60, remark
        )

    return found


def cosine(a: list[float], b: list[float]) -> float:
    size = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / size
