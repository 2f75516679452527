"""Packages that can be called like the function of their name: ``interp.compare(a, b)``, ``interp.probes(model)``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


def call(room: str, module: str, name: str) -> None:
    """Make the package ``room`` a function as well: a call and a look at its signature go to ``name`` of ``module``,
    which is imported only then."""

    def function() -> Callable[..., Any]:
        own = getattr(import_module(module), name)
        from interp.core.probe import known

        return known(name) or own

    class Room(ModuleType):
        __doc__ = sys.modules[room].__doc__

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(function())

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return function()(*args, **kwargs)

    sys.modules[room].__class__ = Room
