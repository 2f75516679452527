"""One folder per paper, with everything that exists only because of that paper. The rest works without them.

A paper's package says in ``PAPER`` what it is called and which of its modules register studies
(:mod:`interp.papers.studies`). Its headline numbers are in its file ``headlines.toml``, if it has one, and functions
of its module ``headlines`` find ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules


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


@cache
def papers() -> dict[str, Paper]:
    """The packages here that belong to a paper, by name, in the papers' order."""
    modules = {name: import_module(f"{__name__}.{name}") for _, name, package in iter_modules(__path__) if package}
    found = {name: module.PAPER for name, module in modules.items() if hasattr(module, "PAPER")}
    return dict(sorted(found.items(), key=lambda item: item[1].order))
