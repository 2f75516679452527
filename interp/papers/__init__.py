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


@dataclass(frozen=True)
class Paper:
    """``key`` as in ``interp reproduce KEY:WHAT``; ``order`` among papers; ``studies``, the modules of its package."""

    key: str
    title: str
    order: int
    studies: tuple[str, ...] = ()


@cache
def papers() -> dict[str, Paper]:
    """The packages here that belong to a paper, by name, in the papers' order."""
    modules = {name: import_module(f"{__name__}.{name}") for _, name, package in iter_modules(__path__) if package}
    found = {name: module.PAPER for name, module in modules.items() if hasattr(module, "PAPER")}
    return dict(sorted(found.items(), key=lambda item: item[1].order))
