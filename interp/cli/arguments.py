"""What the commands' arguments have in common."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro

from models.errors import UserError

ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
ModelNames = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
MOST_THREADS = 1_024


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
