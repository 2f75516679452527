"""What the registries of this room cannot import, as it is above them: the modules that register probes, drawings,
chapters of the report and methods of proof.

``interp`` itself, which knows all rooms, says here how they are imported, and so do packages that add to them
(:mod:`models.plugins`). A registry asks when it is first read.
"""

from __future__ import annotations

from collections.abc import Callable

from models.plugins import import_plugins

_LOADERS: dict[str, list[Callable[..., None]]] = {}


def loads(what: str, loader: Callable[..., None]) -> None:
    """Say what imports modules that register such things ("probes", "drawings", "chapters", "methods")."""
    _LOADERS.setdefault(what, []).append(loader)


def load(what: str, *of: str) -> None:
    """Import the modules that register such things; for drawings, those of the module ``of`` a result are enough."""
    import_plugins()
    for loader in _LOADERS.get(what, []):
        loader(*of)
