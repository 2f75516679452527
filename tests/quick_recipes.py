"""Registered models whose recipe is a few steps, for one test."""

from dataclasses import replace
from typing import Any

import pytest

from models import registry


def change_recipe(monkeypatch: pytest.MonkeyPatch, name: str, **changes: Any) -> None:
    """The registered model has its own recipe with these changes, until the test ends."""
    spec = registry.get_spec(name)
    monkeypatch.setitem(registry._REGISTRY, name, replace(spec, recipe=registry.recipe_of(name).replace(**changes)))
