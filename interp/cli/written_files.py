"""What a command may write. One function decides it, before the work; the files are named after it.

A page of this package says so in its head, its JSON in the key ``made_by``. A file that is there and does not say so is
somebody else's, and is not replaced unless ``--force`` is given.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from interp.cli.shared_options import OUTPUT
from models.errors import Caution, UserError
from models.files import ZOO, is_path, stored

if TYPE_CHECKING:
    from interp.cli.parsing import Command
    from interp.core.replies import Reply
    from interp.core.results import Result

MADE_BY = "carrylens"
GENERATOR = f'<meta name="generator" content="{MADE_BY}">'
_HEAD = 2**12  # bytes of a page in which the generator stands
_LARGEST = 2**26  # bytes of a JSON file that may be ours
STDOUT = Path("-")  # of --json

_asked: dict[str, Any] = {}  # the command's line, and the warnings that it has given
_streams: list[TextIO] = []  # the output that is kept for JSON alone


def check_outputs(command: Command) -> None:
    """Raise UserError unless a command may write all files that it was asked for.

    No two are one file; none is a file that the command reads, or lies in a model that it reads or in the zoo; none
    replaces a file that this package did not write, unless the command was given ``--force``.
    """
    taken: dict[Path, str] = {}
    inputs = [place.resolve() for place in _inputs(command)]
    for name, path in outputs(command):
        place = path.resolve()
        if place in taken:
            raise UserError(f"--{name} and --{taken[place]} are one file, {path}; give two.")
        taken[place] = name
        if place.is_dir():
            raise UserError(f"{path} is a folder; give the name of a file.")
        if any(place == one or (one.is_dir() and place.is_relative_to(one)) for one in inputs):
            raise UserError(f"{path} is part of what the command reads; write somewhere else.")
        _check_writable(path, place)
        if place.is_file() and not getattr(command, "force", False) and not _is_ours(place):
            raise UserError(f"{path} is there, and was not written by this package; --force replaces it.")


def outputs(command: Command) -> Iterator[tuple[str, Path]]:
    """The files that a command is asked to write, by the names of its options."""
    for name, marks, given in command.marked():
        if OUTPUT in marks and given is not None and not (name == "json" and given == STDOUT):
            yield name, Path(given)


def name_outputs(command: Command) -> None:
    """Print the files that a command has written; to the error stream if its output is a table to be read on."""
    table = getattr(command, "csv", False) or getattr(command, "markdown", False) or _on_stdout(command)
    for _, path in outputs(command):
        if path.is_file():
            print(f"wrote {path}", file=sys.stderr if table else sys.stdout)


@contextmanager
def answering(command: Command, line: str, said: Sequence[str] = ()) -> Iterator[None]:
    """For the time of a command: with ``--json -``, its reply has the standard output for itself, and what the command
    prints for people, which is in the reply, is dropped. Progress is on the error stream as always. ``said`` are the
    warnings that the command gives, and grows with them."""
    _asked.update(line=line, warnings=said)
    if not _on_stdout(command):
        yield
        return
    _streams.append(sys.stdout)
    try:
        with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
            yield
    finally:
        _streams.pop()


@contextmanager
def warned(show: Callable[[str], None] | None = None) -> Iterator[list[str]]:
    """The texts of the warnings (:class:`models.errors.Caution`) that are given in this context, each once, for the
    replies to what is asked in it; all warnings go to ``show`` in place of the error stream."""
    said: list[str] = []

    def keep(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        text = str(message)
        if issubclass(category, Caution) and text not in said:
            said.append(text)
        if show is not None:
            show(text)

    with warnings.catch_warnings():
        warnings.showwarning = keep
        yield said


def command_line() -> str:
    """The command that runs, as it was typed."""
    return _asked.get("line", "")


def write_reply(path: Path | None, found: Reply | Result) -> None:
    """Write what a command found as JSON, to the standard output for ``-``; nothing without a path."""
    if path is None:
        return
    from interp.core.replies import Reply, reply_of
    from models.files import write_bytes_atomic

    reply = found if isinstance(found, Reply) else reply_of(found)
    said = tuple(_asked.get("warnings", ()))
    value = replace(reply, command=command_line(), warnings=said).to_dict()
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if path == STDOUT:
        _streams[-1].write(text)
    elif path.suffix == ".gz":
        write_bytes_atomic(path, gzip.compress(text.encode(), mtime=0))
    else:
        write_bytes_atomic(path, text.encode())


def _on_stdout(command: Command) -> bool:
    return getattr(command, "json", None) == STDOUT


def _inputs(command: Command) -> Iterator[Path]:
    """Files and folders that a command reads: paths, and the entries of models that it names."""
    names = stored(ZOO)
    read = [given for _, marks, given in command.marked() if OUTPUT not in marks]
    for given in read:
        for value in given if isinstance(given, (tuple, list)) else [given]:
            if isinstance(value, str) and value in names:
                yield ZOO / value
            elif isinstance(value, (str, Path)) and is_path(value) and (place := Path(value).expanduser()).exists():
                yield place
    yield ZOO


def _check_writable(path: Path, place: Path) -> None:
    folder: Path = next(parent for parent in place.parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"{path} cannot be written: {folder} is not a folder that can be written to.")


def _is_ours(place: Path) -> bool:
    """Whether a file was written by this package."""
    try:
        if not stat.S_ISREG(place.stat().st_mode) or not (size := place.stat().st_size):
            return True  # a device is written to, and nothing is lost with an empty file
        with place.open("rb") as file:
            head = file.read(_HEAD)
            if GENERATOR.encode() in head:
                return True
            if head[:2] == b"\x1f\x8b":
                file.seek(0)
                head = gzip.GzipFile(fileobj=file).read(_LARGEST)
            elif size > _LARGEST or not head.lstrip().startswith(b"{"):
                return False
            else:
                head += file.read()
        value = json.loads(head)
    except (OSError, ValueError, EOFError, RecursionError):
        return False
    return _says_so(value)


def _says_so(value: Any) -> bool:
    certificate = ("format", "fingerprint")  # which certificates of all methods have
    return isinstance(value, dict) and (value.get("made_by") == MADE_BY or set(certificate) <= set(value))
