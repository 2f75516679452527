"""One folder per paper, with everything that exists only because of that paper. The rest works without them.

A paper's package says in ``PAPER`` what it is called and which of its modules register studies
(:mod:`interp.papers.studies`). Its headline numbers are in its file ``headlines.toml``, if it has one, and functions
of its module ``headlines`` find ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What a paper is called, and its place.

    Attributes:
        key: as in ``interp reproduce KEY:WHAT``.
        name: one of :data:`models.registry.PAPERS`.
        words: what it is about.
        order: its place among the papers.
        studies: the modules of its package that register studies.
        label: its name in figures and on pages, by default ``name``.
    """

    key: str
    name: str
    title: str
    words: str
    order: int
    studies: tuple[str, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label or self.name)


def import_figures(of: str | None = None) -> None:
    """Import the drawings of the paper whose results the module ``of`` has; without it, those of all papers."""
    folders = [each.name for each in iter_modules(__path__) if each.ispkg]
    if of is not None:
        folders = [each for each in folders if of.startswith(f"{__name__}.{each}.")]
    for folder in folders:
        if find_spec(name := f"{__name__}.{folder}.figures"):
            for each in iter_modules(getattr(import_module(name), "__path__", [])):
                import_module(f"{name}.{each.name}")


def module_of(folder: str, name: str) -> Any:
    """A module of a paper's folder."""
    return import_module(f"{__name__}.{folder}.{name}")


@cache
def papers() -> dict[str, Paper]:
    """The packages here that belong to a paper, by name, in the papers' order."""
    modules = {name: import_module(f"{__name__}.{name}") for _, name, package in iter_modules(__path__) if package}
    found = {name: module.PAPER for name, module in modules.items() if hasattr(module, "PAPER")}
    return dict(sorted(found.items(), key=lambda item: item[1].order))
