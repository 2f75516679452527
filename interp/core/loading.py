"""What the registries of this room cannot import, as it is above them: the modules that register probes and drawings.

``interp`` itself, which knows all rooms, says here how they are imported. A registry asks when it is first read.
"""

from __future__ import annotations

from collections.abc import Callable

_LOADERS: dict[str, Callable[..., None]] = {}


def loads(what: str, loader: Callable[..., None]) -> None:
    """Say what imports the modules that register such things ("probes", "drawings")."""
    _LOADERS[what] = loader


def load(what: str, *of: str) -> None:
    """Import the modules that register such things; for drawings, also those beside the module ``of`` a result."""
    _LOADERS[what](*of)
