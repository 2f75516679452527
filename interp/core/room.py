"""Packages that can be called like the function of their name: ``interp.compare(a, b)``, ``interp.probes(model)``."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def call(room: str, module: str, name: str) -> None:
    """Make the package ``room`` callable: a call goes to ``name`` of ``module``, which is imported only then."""

    def called(*args: Any, **kwargs: Any) -> Any:
        function = getattr(import_module(module), name)
        from interp.core.probe import known

        return (known(name) or function)(*args, **kwargs)

    own = sys.modules[room]
    own.__class__ = type("Room", (ModuleType,), {"__call__": staticmethod(called), "__doc__": own.__doc__})
