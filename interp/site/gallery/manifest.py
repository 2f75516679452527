"""The list of a gallery's pages, from which a build knows which of them are up to date."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from interp.site.gallery.folder import FILE, check_folder
from models.errors import UserError
from models.files.checkpoint import read_json, sha256, write_bytes_atomic, write_json_atomic

FORMAT = 1
_PACKAGES = Path(__file__).parents[3]


@dataclass(frozen=True)
class Record:
    """A page as it was made: digests of its inputs and of the file, and its row in the index."""

    inputs: str
    sha256: str
    row: dict[str, Any] | None = None


@dataclass
class Manifest:
    """``gallery.json`` in a folder. It is rewritten after every page, so a build can be stopped anywhere."""

    folder: Path
    pages: dict[str, Record] = field(default_factory=dict)

    def is_current(self, path: str, inputs: str) -> bool:
        """Whether the page was made from these inputs and has not been changed since."""
        record, file = self.pages.get(path), self.folder / path
        return (
            record is not None
            and record.inputs == inputs
            and file.is_file()
            and sha256(file.read_bytes()) == record.sha256
        )

    def put(self, path: str, data: bytes, inputs: str, row: dict[str, Any] | None = None) -> None:
        """Write a page and record it."""
        write_bytes_atomic(self.folder / path, data)
        self.pages[path] = Record(inputs, sha256(data), row)
        self.save()

    def drop(self, path: str) -> None:
        """Remove a page that is no longer part of the site."""
        (self.folder / path).unlink(missing_ok=True)
        del self.pages[path]
        self.save()

    def save(self) -> None:
        pages = {path: asdict(record) for path, record in sorted(self.pages.items())}
        write_json_atomic(self.folder / FILE, {"format": FORMAT, "gallery": "carrylens", "pages": pages})

    def size(self) -> int:
        """Bytes of all files of the site."""
        return sum((self.folder / path).stat().st_size for path in (*self.pages, FILE))


def open_folder(folder: Path) -> Manifest:
    """The manifest of the gallery in a folder, or an empty one for an empty or new folder. Writes nothing.

    Raises:
        UserError: as for :func:`check_folder`, or ``gallery.json`` is not a gallery's.
    """
    check_folder(folder)
    if not (folder / FILE).is_file():
        return Manifest(folder)
    value = read_json(folder / FILE)
    try:
        if value["gallery"] != "carrylens" or value["format"] != FORMAT:
            raise KeyError("format")
        pages = {path: Record(**record) for path, record in value["pages"].items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FILE} is not a gallery's ({error}); give --out an empty or new folder.") from None
    if not all(_inside(folder, path) for path in pages):
        raise UserError(f"{folder / FILE} names a page outside its folder.")
    return Manifest(folder, pages)


def _inside(folder: Path, path: str) -> bool:
    return (folder / path).resolve().is_relative_to(folder.resolve())


def digest(parts: Iterable[str]) -> str:
    """One digest of several texts in order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{len(part)}:".encode() + part.encode())
    return whole.hexdigest()


def digest_of(paths: Iterable[Path]) -> str:
    """One digest of the names and contents of files, in order of their names."""
    return digest(f"{path.name}={sha256(path.read_bytes())}" for path in sorted(paths))


@cache
def code_digest() -> str:
    """One digest of this project's code and templates, and of the versions of the libraries that pages depend on."""
    files = [
        path
        for package in ("interp", "models")
        for suffix in ("py", "j2", "css", "js", "c", "h")
        for path in (_PACKAGES / package).rglob(f"*.{suffix}")
    ]
    sources = (f"{path.relative_to(_PACKAGES)}={sha256(path.read_bytes())}" for path in sorted(files))
    return digest([*sources, *(version(name) for name in ("plotly", "torch", "numpy", "markdown-it-py"))])
