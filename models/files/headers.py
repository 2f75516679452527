"""Whether a large file of tensors can be one, from its first bytes or its directory: before it is read into memory."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from models.errors import UserError
from models.files.stored_names import TORCH_FILES

LARGE = 64 << 20  # bytes; a smaller file is read, and its reader says what is wrong with it
_LONGEST = 100 << 20  # bytes of the header of a safetensors file; the format's own limit


def _of_safetensors(file: BinaryIO, size: int) -> bool:
    """Whether the header lists tensors that end where the file ends."""
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(_LONGEST, size - 8):
        return False
    listed = json.loads(file.read(length))
    ends = [tensor["data_offsets"][1] for name, tensor in listed.items() if name != "__metadata__"]
    return 8 + length + max(ends, default=0) == size


def _of_archive(file: BinaryIO, size: int) -> bool:
    """Whether the directory at its end, which is all that is read, names members that the file has room for."""
    with zipfile.ZipFile(file) as archive:
        return sum(member.compress_size for member in archive.infolist()) <= size


def _of_torch(file: BinaryIO, size: int) -> bool:
    """Whether it is an archive, or begins as a pickle does, as earlier versions of torch wrote."""
    begins = file.read(1)
    return _of_archive(file, size) if begins == b"P" else begins == b"\x80"


#: By suffix: (the open file, its size in bytes) -> whether it can be such a file.
_HEADERS: Mapping[str, Callable[[BinaryIO, int], bool]] = {
    ".safetensors": _of_safetensors,
    ".npz": _of_archive,
    ".json": lambda file, size: file.read(64).lstrip()[:1] == b"{",
    **dict.fromkeys(TORCH_FILES, _of_torch),
}


def require_header(path: Path) -> None:
    """Raise UserError for a large file that is not what its suffix says, or that is larger than this machine's memory.

    What is missing, small, or no file passes: whoever reads it says so.
    """
    try:
        there = path.stat()
    except (OSError, ValueError):
        return
    size = there.st_size
    if not stat.S_ISREG(there.st_mode) or size <= LARGE:
        return
    try:
        with open(path, "rb") as file:
            right = _HEADERS.get(path.suffix, lambda *_: True)(file, size)
    except OSError:
        return
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, zipfile.BadZipFile):
        right = False
    if not right:
        raise UserError(f"{path} has {size:,} bytes and is no complete {path.suffix} file; restore it.")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else size
    if size > memory:
        raise UserError(f"{path} has {size:,} bytes, more than the {memory:,} of this machine's memory.")
