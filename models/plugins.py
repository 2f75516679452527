"""Packages that add readers, models and chapters where they are importable; the library does without them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

#: Top-level packages of a checkout, beside ``models``; an installed package has none of them.
PLUGINS = ("studies",)
_BESIDE = Path(__file__).parents[1]


@cache
def import_plugins() -> tuple[str, ...]:
    """Import those of :data:`PLUGINS` that lie beside this package, once, and return their names. A package of the same
    name that is found elsewhere is not this project's, and is left alone."""
    found = {name: find_spec(name) for name in PLUGINS}
    here = [name for name, spec in found.items() if spec and spec.origin and Path(spec.origin).parents[1] == _BESIDE]
    for name in here:
        import_module(name)
    return tuple(here)
