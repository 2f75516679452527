"""What the commands' arguments have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from interp.cli.known_names import check_paper, check_probe, check_study
from models.errors import UserError
from models.known_names import check_loadable


@dataclass(frozen=True)
class Named:
    """Marks arguments that name something: ``check`` refuses a name that there is not, before torch is imported."""

    check: Callable[[str], None]


MODEL = Named(check_loadable)
ModelName = Annotated[str, MODEL, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
ModelNames = Annotated[tuple[str, ...], MODEL, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
ProbeName = Annotated[str | None, Named(check_probe), tyro.conf.Positional]
StudyName = Annotated[str, Named(check_study), tyro.conf.Positional, tyro.conf.arg(metavar="PAPER:WHAT")]
PaperName = Annotated[str | None, Named(check_paper)]
MOST_THREADS = 1_024


def check_names(command: Any) -> None:
    """Raises UserError for a command that names a model, probe, study or paper that there is not.

    Args:
        command: an instance of a command's dataclass.
    """
    for field, hint in get_type_hints(type(command), include_extras=True).items():
        for named in (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Named)):
            given = getattr(command, field)
            for name in (given,) if isinstance(given, str) else given or ():
                named.check(name)


def one_thread() -> None:
    """These models are too small for more threads, which then only wait for each other (much, on a busy machine)."""
    import torch

    torch.set_num_threads(1)


def use_threads(n: int) -> None:
    """Compute with ``n`` threads. Raises UserError for a number that no machine has."""
    import torch

    if not 1 <= n <= MOST_THREADS:
        raise UserError(f"--threads must be at least 1 and at most {MOST_THREADS:,}, not {n}.")
    torch.set_num_threads(n)


def use_data(path: Path | None) -> None:
    """Read texts from ``path`` in this process."""
    from models.data import VARIABLE

    if path is not None:
        os.environ[VARIABLE] = str(path)
