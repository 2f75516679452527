"""The words and options that commands share: one annotated type each, with what its help says and how it is checked.

A command is a function; its parameters, annotated with these types where they are shared, are what may be typed after
its name (:mod:`interp.cli.parsing`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from models.errors import UserError
from models.files import is_path, stored


@dataclass(frozen=True)
class Named:
    """Marks parameters that can be refused before anything is computed: ``check`` raises UserError for an unknown name
    or for a place that cannot be written to."""

    check: Callable[[Any], None]
    place: bool = False
    """Whether the check is on what lies where, so that a command that is only read passes it by."""


@dataclass(frozen=True)
class Bare:
    """Marks an option that may be given without a value: at the end of the line, and before another option or one of
    ``before``."""

    value: str
    """What it then means."""
    before: Callable[[], Collection[str]] = tuple


@dataclass(frozen=True)
class Parts:
    """Marks a parameter whose parts are options of their own; ``of_words`` makes their defaults, a dataclass, from the
    words of the line."""

    of_words: Callable[[list[str]], Any]


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")


def _check_page(path: Path) -> None:
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


def _check_probe(name: str) -> None:
    from interp.core.probe import find_probe

    find_probe(name)


_Word = tyro.conf.Positional
_MODEL_HELP = "A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."
STORED = "stored"  # what a bare ``--check`` of ``interp certify`` means
#: Marks a parameter that names a file to write.
OUTPUT = object()
#: Marks a parameter that names programs, which are run with --trust.
PROGRAMS = object()
MODEL = Named(_check_loadable)
MODEL_FILE = Named(_check_model_file, place=True)
FOLDER = Named(_check_folder, place=True)

# ---- words without an option's name
Model = Annotated[str, MODEL, MODEL_FILE, _Word, tyro.conf.arg(metavar="MODEL", help=_MODEL_HELP)]
Models = Annotated[tuple[str, ...], MODEL, MODEL_FILE, _Word, tyro.conf.arg(metavar="[MODEL ...]")]
Other = Annotated[str | None, MODEL, MODEL_FILE, tyro.conf.arg(metavar="MODEL")]
ProbeName = Annotated[str | None, Named(_check_probe), _Word, tyro.conf.arg(metavar="[PROBE]")]
Problems = Annotated[
    tuple[str, ...], _Word, tyro.conf.arg(metavar="PROBLEM [PROBLEM ...]", help_behavior_hint="(required)")
]
RunFolders = Annotated[
    tuple[Path, ...], FOLDER, _Word, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
]

# ---- what is asked
Shape = Annotated[
    tuple[int, ...],
    tyro.conf.arg(
        metavar="INT [INT ...]",
        help_behavior_hint="",
        help="The task's shape, for tasks of many: operands and digits of an addition, --shape 8 for eight bits; the "
        "model's own by default.",
    ),
]
HowMany = Annotated[int | None, tyro.conf.arg(aliases=["--n"])]  # as it is called in Python
ClusterAddress = Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")]
OptionalFile = Annotated[Path | None, Named(_check_file), tyro.conf.arg(metavar="PATH")]

# ---- what is written
Page = Annotated[Path, Named(_check_page), OUTPUT]
OptionalPage = Annotated[Path | None, Named(_check_page), OUTPUT, tyro.conf.arg(metavar="PATH")]
OptionalOutput = Annotated[Path | None, Named(_check_file), OUTPUT, tyro.conf.arg(metavar="PATH")]
Json = Annotated[
    Path | None,
    Named(_check_file),
    OUTPUT,
    tyro.conf.arg(metavar="PATH", help="Also write the reply as JSON here; with -, to the standard output and alone."),
]
Force = Annotated[bool, tyro.conf.arg(help="Replace files that are there and that this package did not write.")]
MOST_THREADS = 1_024


def ended(complete: bool) -> None:
    """Print a note if a resumable command has more to do."""
    if not complete:
        print("Not finished; the same command goes on.")


def one_thread() -> None:
    """Compute with one thread: these models are too small for more, which would only wait for each other."""
    use_threads(1)


def use_threads(n: int) -> None:
    """Compute with ``n`` threads. Raises UserError unless 1 <= n <= 1,024."""
    import torch

    if not 1 <= n <= MOST_THREADS:
        raise UserError(f"--threads must be at least 1 and at most {MOST_THREADS:,}, not {n}.")
    torch.set_num_threads(n)


def shaped(task: Any, shape: tuple[int, ...]) -> Any:
    """The task in the shape that was asked for, or as it is if none was. Raises UserError for a shape that it cannot
    have."""
    from models.tasks import SequenceTask

    if not shape:
        return task
    if not isinstance(task, SequenceTask):
        raise UserError(f"Problems of {task.name} have one shape; there is none to choose.")
    if len(shape) != (n := len(task.shape)):
        raise UserError(f"A shape of {task.name} is {n} number{'s' * (n > 1)}, not {shape}.")
    return task.at(*shape)


def use_data(path: Path | None) -> None:
    """Let this process read texts from ``path``. Raises UserError if there is no such file."""
    from models.files import VARIABLE

    if path is not None:
        if not path.is_file():
            raise UserError(f"There is no file {path}.")
        os.environ[VARIABLE] = str(path)
