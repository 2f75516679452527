"""Packages that add readers, models and chapters where they are importable; the library does without them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PLUGINS = ("studies",)


@cache
def import_plugins(part: str = "") -> tuple[str, ...]:
    """Import each plug-in that lies beside this package, and return the names of what was imported.

    A package of the same name elsewhere is somebody else's, and is left alone.

    Args:
        part: a module of each plug-in that registers what only some callers need, such as "proofs": what it imports
            would be too much for whoever loads a model. A plug-in may be without it. By default the package itself,
            which registers its readers.
    """
    here = Path(__file__).resolve().parents[1]
    found = [name for name in PLUGINS if _file_of(name) == here / name / "__init__.py"]
    if part:
        found = [module for name in found if _file_of(module := f"{name}.{part}") is not None]
    for name in found:
        import_module(name)
    return tuple(found)


def _file_of(name: str) -> Path | None:
    """The file that a module would be imported from; None if there is none."""
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).resolve()
