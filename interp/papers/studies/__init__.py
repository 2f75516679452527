"""Numbers and figures of the papers, each made by one command: ``interp reproduce PAPER:WHAT``.

An experiment trains what is missing in run folders under ``--out`` (the same command goes on after any kind of stop),
measures, and writes one HTML page with its data beside it. Adding one is a function with :func:`experiment` above it in
a module of this package, named in ``_MODULES``. Position Coupling's figures have their own table
(:mod:`interp.papers.position_coupling.reproduce`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from interp.papers import papers
from models.errors import UserError, unknown_name

#: Imported when an experiment is looked up, so that ``import interp`` stays quick.
_OWN = ("causal", "comparison", "comparison_seeds", "comparison_swaps")  # on models of several papers


@dataclass(frozen=True)
class Settings:
    """How to run an experiment; None leaves a number to the experiment."""

    out: Path = Path("runs/reproduce")
    size: str = "small"
    seeds: int | None = None
    problems: int | None = None
    device: str = "auto"
    minutes: float | None = None  # stop and save after so many
    yes: bool = False  # start even what takes days here
    progress: bool = True
    say: Callable[[str], None] = print
    started: float = field(default_factory=time.monotonic, repr=False, compare=False)

    def minutes_left(self) -> float | None:
        """What is left of ``minutes`` since these settings were made, at least 0; None if there is no limit."""
        return None if self.minutes is None else max(0.0, self.minutes - (time.monotonic() - self.started) / 60)

    def __post_init__(self) -> None:
        for name in ("seeds", "problems"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"--{name} must be at least 1, not {value}.")


@dataclass(frozen=True)
class Experiment:
    """``run`` returns the page it wrote, or None if time ran out before there was one."""

    target: str  # "toygpt:tables"
    title: str
    run: Callable[[Settings], Path | None]


_EXPERIMENTS: dict[str, Experiment] = {}


def experiment(target: str, title: str) -> Callable[[Callable[[Settings], Path | None]], Experiment]:
    """Register a function as the experiment ``target`` ("paper:what")."""

    def add(run: Callable[[Settings], Path | None]) -> Experiment:
        if target in _EXPERIMENTS:
            raise UserError(f"An experiment named {target!r} is registered already.")
        _EXPERIMENTS[target] = Experiment(target, title, run)
        return _EXPERIMENTS[target]

    return add


def experiments() -> dict[str, Experiment]:
    """All registered experiments by target."""
    modules = [f"{name}.{module}" for name, paper in papers().items() for module in paper.studies]
    for module in modules + [f"studies.{module}" for module in _OWN]:
        import_module(f"interp.papers.{module}")
    return dict(_EXPERIMENTS)


def find_experiment(target: str) -> Experiment:
    """An experiment by ``paper:what``. Raises UserError with the closest match."""
    known, (paper, colon, what) = experiments(), target.partition(":")
    if not colon:
        raise UserError(f"Name a figure or table as PAPER:WHAT, for example position-coupling:fig1, not {target!r}.")
    papers = {name.partition(":")[0] for name in known}
    if paper not in papers:
        raise unknown_name("paper", paper, papers | {"position-coupling"})
    if target not in known:
        here = [name.partition(":")[2] for name in known if name.startswith(f"{paper}:")]
        raise unknown_name(f"experiment of {paper}", what, here)
    return known[target]
