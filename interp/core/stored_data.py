"""The results that come with this package, and tables that are made of them and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from models.files import not_installed

DATA = Path(str(files("interp"))) / "data"


def require_stored(path: Path) -> None:
    """Raise UserError for a file or folder of :data:`DATA` that an installed package does without."""
    if path.is_relative_to(DATA) and not path.exists():
        raise not_installed(path)


def digest(sources: Iterable[Path]) -> str:
    """The SHA-256 of some files' names and contents, in the order of their paths."""
    found = hashlib.sha256()
    for path in sorted(sources):
        data = path.read_bytes()
        found.update(f"{path.parent.name}/{path.name} {len(data)}\n".encode() + data)
    return found.hexdigest()


def kept(file: Path, sources: Iterable[Path], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` gives for these files: read from ``file`` if it was made of them as they are now, else made now.

    Making a table may import torch and take seconds; reading it takes a tenth of one.
    """
    if file.is_file():
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored.get("made_of") == digest(sources):
            return stored["table"]
    return make()


def keep(file: Path, sources: Iterable[Path], table: dict[str, Any]) -> None:
    """Write the file that :func:`kept` reads."""
    file.write_text(json.dumps({"made_of": digest(sources), "table": table}, indent=1) + "\n", encoding="utf-8")
