"""The files of a zoo entry: their names, and a folder that is written as a whole or not at all."""

from __future__ import annotations

import contextlib
import glob
import json
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from models.errors import UserError
from models.files.checkpoint import fsync_folder
from models.files.locks import locked
from models.files.stored_names import CONFIG
from models.files.stored_names import WEIGHTS as WEIGHTS

FORMAT = 1
CARD = "card.md"
STORED_AS = "stored_as"  # in a weight file's metadata: how the parameters were rounded


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock ``folder`` for saving, and clear what killed writers left next to it."""
    with locked(folder.parent / f".{folder.name}.lock", folder):
        finish_interrupted_swap(folder)
        for left in folder.parent.glob(f".{glob.escape(folder.name)}.carrylens-new-*"):
            shutil.rmtree(left, ignore_errors=True)
        if no_entry(_aside(folder)) is None:
            shutil.rmtree(_aside(folder), ignore_errors=True)
        yield


def swap_in(staging: Path, folder: Path) -> None:
    """Rename ``staging`` to ``folder``; an old entry is moved aside first and deleted last."""
    aside = _aside(folder)
    try:
        if folder.exists():
            folder.rename(aside)
        staging.rename(folder)
    except OSError as error:
        finish_interrupted_swap(folder)
        raise UserError(
            f"{folder} could not be written ({error.strerror}); what was there before is untouched."
        ) from error
    fsync_folder(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def finish_interrupted_swap(folder: Path) -> None:
    """Put back the old entry if a crash fell between the two renames of :func:`swap_in`."""
    if not folder.exists() and no_entry(_aside(folder)) is None:
        with contextlib.suppress(OSError):
            _aside(folder).rename(folder)


def _aside(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.carrylens-old"


def no_entry(folder: Path) -> str | None:
    """Why a folder is not an entry, and so not ours to remove; None if it is one, with nothing else in it."""
    if not folder.is_dir():
        return "it is not a folder"
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        known = {CONFIG, *config["sha256"]} if config["format"] == FORMAT and config["weights"] else set()
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    if not known:
        return "it is not an entry of a zoo"
    others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    others = [name for name in others if name not in known and not name.endswith(".tmp")]
    return f"it holds {others[0]}, which is not part of the entry" if others else None


def check_file_name(name: str, source: Path) -> None:
    """Files of an entry lie inside its folder, whatever its config says."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name:
        raise UserError(f"{source} names a file {name!r} outside its own folder.")
