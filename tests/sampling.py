"""Parameters of which `make test` takes some and `make test-all` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from models.zoo import zoo_names


def sampled(values: Iterable[Any], *kept: Any) -> list[Any]:
    """These values, of one parameter or (as tuples) of several; only those that are ``kept`` are not slow."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=[pytest.mark.slow] * (value not in kept))
        for value in values
    ]


def every_third(values: Iterable[Any], first: int = 0) -> list[Any]:
    """These values, of which one in three, from this place on, is not slow. Suites that ask the same questions begin at
    different places."""
    values = list(values)
    return sampled(values, *values[first::3])


def stored_models(names: Iterable[str] | None = None) -> list[Any]:
    """These names, by default the whole zoo's; the first of each family ("toygpt", "adder") is not slow."""
    names = list(zoo_names() if names is None else names)
    first = {name.partition("-")[0]: name for name in reversed(names)}
    return sampled(names, *first.values())
