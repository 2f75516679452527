"""Types of arguments that several commands share, and their checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from interp.cli.outputs import OUTPUT
from models.errors import UserError
from models.files.stored_names import is_path, stored


@dataclass(frozen=True)
class Named:
    """Marks arguments that can be refused before anything is computed: ``check`` raises UserError for an unknown name
    or for a place that cannot be written to."""

    check: Callable[[Any], None]
    place: bool = False
    """Whether the check is on what lies where, so that a command that is only read passes it by."""


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")


def _check_page(path: Path) -> None:
    """Raise UserError unless a page can be written here."""
    _check_file(path)
    if path.suffix != ".html":
        raise UserError(f"The page is an .html file, not {path}.")


def _check_folder(path: Path) -> None:
    if not path.is_dir():
        raise UserError(f"There is no folder {path}.")


def _check_model_file(name_or_path: str) -> None:
    if is_path(name_or_path) and not Path(name_or_path).exists():
        raise UserError(f"There is no file or folder {name_or_path}.")


def _check_loadable(name_or_path: str) -> None:
    """Raises UserError, as :func:`models.load` does, for anything but a path or the name of a loadable model."""
    if is_path(name_or_path) or name_or_path in stored():
        return
    from models.registry import constructed, is_constructed
    from models.zoo import resolve

    if not is_constructed(name_or_path):
        resolve(name_or_path, constructed)


MODEL = Named(_check_loadable)
MODEL_FILE = Named(_check_model_file, place=True)
FOLDER = Named(_check_folder, place=True)
ModelName = Annotated[str, MODEL, MODEL_FILE, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
ModelNames = Annotated[tuple[str, ...], MODEL, MODEL_FILE, tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
Shape = Annotated[tuple[int, ...], tyro.conf.arg(metavar="INT [INT ...]", help_behavior_hint="")]
Page = Annotated[Path, Named(_check_page), OUTPUT]
ClusterAddress = Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")]
OptionalPage = Annotated[Path | None, Named(_check_page), OUTPUT, tyro.conf.arg(metavar="PATH")]
OptionalOutput = Annotated[Path | None, Named(_check_file), OUTPUT, tyro.conf.arg(metavar="PATH")]
Json = Annotated[
    Path | None,
    Named(_check_file),
    OUTPUT,
    tyro.conf.arg(metavar="PATH", help="Also write the reply as JSON here; with -, to the standard output and alone."),
]
OptionalFile = Annotated[Path | None, Named(_check_file), tyro.conf.arg(metavar="PATH")]
Force = Annotated[bool, tyro.conf.arg(help="Replace files that are there and that this package did not write.")]
HowMany = Annotated[int | None, tyro.conf.arg(aliases=["--n"])]  # as it is called in Python
MOST_THREADS = 1_024
STORED = "stored"  # what a bare ``--check`` of ``interp certify`` means


def check_names(command: Any, places: bool = True) -> None:
    """Raise UserError for a command with an unknown model, probe, study or paper, a missing folder, or an output file
    where a folder is.

    Args:
        command: an instance of a command's dataclass.
        places: whether the folders and files that are read must exist.
    """
    for field, hint in get_type_hints(type(command), include_extras=True).items():
        given = getattr(command, field)
        values = list(given) if isinstance(given, (tuple, list)) else [] if given is None else [given]
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, Named) and (places or not mark.place):
                for value in values:
                    mark.check(value)


def with_bare(flag: str, value: str, arguments: list[str], names: Collection[str] = ()) -> list[str]:
    """The arguments with ``value`` added to a bare ``flag``: one that ends the line or stands before another option or
    one of ``names``."""
    found = []
    for word, following in zip(arguments, [*arguments, "--"][1:], strict=True):
        found.append(word)
        if word == flag and (following.startswith("-") or following in names):
            found.append(value)
    return found


def ended(complete: bool) -> None:
    """Print a note if a resumable command has more to do."""
    if not complete:
        print("Not finished; the same command goes on.")


def one_thread() -> None:
    """Compute with one thread: these models are too small for more, which would only wait for each other."""
    import torch

    torch.set_num_threads(1)


def use_threads(n: int) -> None:
    """Compute with ``n`` threads. Raises UserError unless 1 <= n <= 1,024."""
    import torch

    if not 1 <= n <= MOST_THREADS:
        raise UserError(f"--threads must be at least 1 and at most {MOST_THREADS:,}, not {n}.")
    torch.set_num_threads(n)


def shaped(task: Any, shape: tuple[int, ...]) -> Any:
    """The task in the shape that was asked for, or as it is if none was. Raises UserError for a shape that it cannot
    have."""
    from models.tasks.sequences import SequenceTask

    if not shape:
        return task
    if not isinstance(task, SequenceTask):
        raise UserError(f"Problems of {task.name} have one shape; there is none to choose.")
    return task.at_shape(shape)


def use_data(path: Path | None) -> None:
    """Let this process read texts from ``path``. Raises UserError if there is no such file."""
    from models.files.texts import VARIABLE

    if path is not None:
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        os.environ[VARIABLE] = str(path)
