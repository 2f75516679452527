"""Stored models as parameters of a test: one of every family in `make test`, all of them in `make test-all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from models.zoo import zoo_names


def stored_models(names: Sequence[str] | None = None) -> list[Any]:
    """These names, by default the whole zoo; the first of a family ("toygpt", "adder") is not slow."""
    met: set[str] = set()
    found = []
    for name in zoo_names() if names is None else names:
        family = name.partition("-")[0]
        found.append(pytest.param(name, marks=[pytest.mark.slow] * (family in met)))
        met.add(family)
    return found
