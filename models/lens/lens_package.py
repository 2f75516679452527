"""TransformerLens' hook point without the rest of its package.

``import transformer_lens.hook_points`` first runs the package's ``__init__``, which imports all of it and with it
``transformers`` and ``datasets``: more than half of what a command costs that needs none of them. :func:`defer` puts
packages in place whose ``__init__`` has not run. A name that the ``__init__`` imports from a module is taken from
there when it is first asked for; for any other name the ``__init__`` runs, and everything is as usual.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

LENS = "transformer_lens"
#: The packages whose ``__init__`` stands between the hook point and an import of little more than torch.
PACKAGES = (LENS, f"{LENS}.conversion_utils", f"{LENS}.conversion_utils.conversion_steps", f"{LENS}.utilities")


class Deferred(ModuleType):
    """A package whose ``__init__`` runs when a name is asked for that it does not just import from a module."""

    def __init__(self, spec: ModuleSpec, names: dict[str, tuple[str, str | None]]):
        super().__init__(spec.name)
        self.__dict__["_names"] = names
        self.__spec__, self.__loader__, self.__package__ = spec, spec.loader, spec.name
        self.__path__, self.__file__ = list(spec.submodule_search_locations or ()), spec.origin

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name in self.__dict__["_names"]:
            module, of_module = self.__dict__["_names"][name]
            found = import_module(module)
            self.__dict__[name] = value = found if of_module is None else getattr(found, of_module)
            return value
        object.__setattr__(self, "__class__", ModuleType)  # from here on it is a package like any other
        self.__spec__.loader.exec_module(self)  # pyright: ignore[reportOptionalMemberAccess]
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """An imported module becomes an attribute of its package, unless the ``__init__`` gives its name to something
        else, such as a class of that module."""
        of_module = self.__dict__.get("_names", {}).get(name, (None, None))[1]
        if of_module is not None and isinstance(value, ModuleType):
            value = getattr(value, of_module)
        super().__setattr__(name, value)


def imported_names(spec: ModuleSpec) -> dict[str, tuple[str, str | None]]:
    """The names that a package's ``__init__`` imports at its top level: the module that has each, and its name there
    (None: it is a module itself)."""
    found: dict[str, tuple[str, str | None]] = {}
    for node in ast.parse(Path(str(spec.origin)).read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level < 2 and (node.level or (node.module or "").startswith(LENS)):
            module = ".".join(filter(None, (spec.name if node.level else "", node.module)))
            for each in node.names:
                own = (module, each.name) if node.module else (f"{module}.{each.name}", None)
                found[each.asname or each.name] = own
    return found


def defer() -> None:
    """Put the packages in place, unless TransformerLens is imported already or is not laid out in this way."""
    if LENS in sys.modules:
        return
    made: dict[str, Deferred] = {}
    for name in PACKAGES:
        above, _, last = name.rpartition(".")
        spec = PathFinder.find_spec(name, made[above].__path__ if above in made else None)
        if spec is None or type(spec.loader) is not SourceFileLoader or not spec.submodule_search_locations:
            return
        made[name] = Deferred(spec, imported_names(spec))
        if above:
            made[above].__dict__[last] = made[name]
    sys.modules.update(made)
