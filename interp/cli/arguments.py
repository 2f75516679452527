"""What the commands' arguments have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from models.errors import UserError
from models.known_names import check_loadable

LOADED = "a model that is loaded"  # marks arguments that name one; their names are checked before torch is imported
ModelName = Annotated[str, LOADED, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
ModelNames = Annotated[tuple[str, ...], LOADED, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
MOST_THREADS = 1_024


def check_models(command: Any) -> None:
    """Raises UserError for a command that is to load a model that there is not.

    Args:
        command: an instance of a command's dataclass.
    """
    for field, hint in get_type_hints(type(command), include_extras=True).items():
        if LOADED in getattr(hint, "__metadata__", ()):
            given = getattr(command, field)
            for name in (given,) if isinstance(given, str) else given:
                check_loadable(name)


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
