"""Numbers and figures of the papers, each made by one command: ``python -m studies reproduce PAPER:WHAT``.

A study trains what is missing in run folders under ``--out`` (the same command continues after any kind of stop),
measures, and returns its data. To add one, write a function with :func:`study` above it, in a module of
:data:`studies.MODULES`, and one with :func:`shows` that makes the sections of a page from the data, new or stored.
It also gets the results, which hold more than is stored, but only for their figures.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from interp.core.loading import load
from interp.core.sections import Page, Section
from models.errors import UserError, known_name
from models.training.cluster import Cluster
from studies.runs.stored_tables import show_tables

KEPT = Path(__file__).with_name("kept.toml")


@dataclass(frozen=True)
class Settings:
    """How to run a study; None leaves a number to the study."""

    out: Path = Path("runs/reproduce")
    size: str = "small"
    seeds: int | None = None
    problems: int | None = None
    device: str = "auto"
    minutes: float | None = None  # stop and save after this time
    yes: bool = False  # start even what takes days
    progress: bool = True
    offsets: str = "start 1"  # offsets of position ids at test time, for Position Coupling
    cluster: Cluster | None = None  # where sweeps are trained and grids evaluated
    extend: Path | None = None  # stored data that the study keeps and completes, if it can be extended
    say: Callable[[str], None] = print
    started: float = field(default_factory=time.monotonic, repr=False, compare=False)

    def minutes_left(self) -> float | None:
        """Minutes that are left, at least 0; None without a limit."""
        return None if self.minutes is None else max(0.0, self.minutes - (time.monotonic() - self.started) / 60)

    def __post_init__(self) -> None:
        for name in ("seeds", "problems"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name} must be at least 1, not {value}.")


@dataclass(frozen=True)
class Made:
    """What a run has made: ``data`` is JSON and is stored; ``results`` are for figures and are not stored."""

    data: dict[str, Any]
    title: str = ""  # title of the page, if it is not the study's
    results: Any = None
    options: str = ""  # options of the command that makes it


Run = Callable[["Settings"], Made | None]


@dataclass(frozen=True)
class Study:
    """A study; ``run`` returns what it has made, or None if time ran out before there was anything."""

    target: str  # "toygpt:tables"
    title: str
    run: Run | None  # None: another command makes the numbers
    stored: str = ""  # the file of kept numbers, if it is not named after the target
    command: str = ""  # what makes the numbers, if it is not ``python -m studies reproduce TARGET``
    extends: bool = False  # whether it can keep stored data and add what they lack
    kept: str = ""  # the last commit that has the study; this version only shows its numbers


Show = Callable[..., list[Section]]  # (data), or (data, results) if the study has results
_Shown = TypeVar("_Shown", bound=Show)
_STUDIES: dict[str, Study] = {}
_SHOWS: dict[str, Show] = {}


def study(target: str, title: str, extends: bool = False, stored: str = "") -> Callable[[Run], Study]:
    """Register a function as the study ``target`` ("paper:what"); the arguments are those of :class:`Study`."""

    def add(run: Run) -> Study:
        return register_study(Study(target, title, run, stored=stored, extends=extends))

    return add


def register_study(new: Study) -> Study:
    """Register a study. Raises UserError if its name is taken."""
    if new.target in _STUDIES:
        raise UserError(f"A study named {new.target!r} is registered already.")
    _STUDIES[new.target] = new
    return new


def shows(*targets: str) -> Callable[[_Shown], _Shown]:
    """Register a function that makes sections from the stored data of these studies."""

    def add(show: _Shown) -> _Shown:
        _SHOWS.update(dict.fromkeys(targets, show))
        return show

    return add


def show_of(target: str) -> Show:
    """The function that makes sections from a study's data; by default it shows tables."""
    studies()
    return _SHOWS.get(target) or _SHOWS.get(target.removesuffix("-small"), show_tables)


def reproduce(target: str, settings: Settings) -> Page | None:
    """Run a study and show what it made; None if time ran out before there was anything.

    Raises:
        UserError: no study of this name, one of which only the numbers are kept, or what the study refuses.
    """
    found = find_study(target)
    if found.run is None:
        raise UserError(
            f"{target} is kept as data: this version shows its numbers, and commit {found.kept} is the last that "
            "has the study."
        )
    if settings.extend is not None and not found.extends:
        raise UserError(f"{target} cannot keep stored numbers; it takes no --extend.")
    made = found.run(settings)
    if made is None:
        return None
    shown = (made.data,) if made.results is None else (made.data, made.results)
    return Page(made.title or found.title, show_of(target)(*shown), made.data, made.options)


def studies() -> dict[str, Study]:
    """All registered studies by target."""
    load("studies")
    for target, (title, commit) in _kept().items():
        _STUDIES.setdefault(target, Study(target, title, None, kept=commit))
    return dict(_STUDIES)


@cache
def _kept() -> dict[str, tuple[str, str]]:
    """Title and commit of studies whose stored numbers are shown and not made again."""
    return {target: (row["title"], row["commit"]) for target, row in tomllib.loads(KEPT.read_text()).items()}


def find_study(target: str) -> Study:
    """A study by ``paper:what``. Raises UserError with the closest match."""
    known = {name: each for name, each in studies().items() if each.run is not None or each.kept}
    paper, colon, what = target.partition(":")
    if not colon:
        raise UserError(f"Name a figure or table as PAPER:WHAT, for example position-coupling:fig1, not {target!r}.")
    known_name("paper", paper, dict.fromkeys(name.partition(":")[0] for name in known))
    known_name(f"study of {paper}", what, [name.partition(":")[2] for name in known if name.startswith(f"{paper}:")])
    return known[target]
