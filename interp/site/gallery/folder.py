"""A check of the folder for a gallery, in a module that does not import torch."""

from __future__ import annotations

from pathlib import Path

from models.errors import UserError

FILE = "gallery.json"


def check_folder(folder: Path) -> None:
    """Raise a UserError for a file, and for a folder that holds something other than a gallery."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give --out the name of a folder.")
    if folder.is_dir() and not (folder / FILE).is_file() and any(folder.iterdir()):
        raise UserError(f"{folder} holds other files and no gallery; give --out an empty or new folder.")
