"""Reading ``.pt`` files without running code that they may contain."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.errors import UserError

#: What NumPy's numbers are pickled with, as configs hold them; they are data like Python's.
_NUMBERS = [np.dtype, type(np.float64(0)), *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8", "?"))]
_NUMBERS += [np.float64(0).__reduce__()[0]]


def parse_torch(data: bytes, path: Path) -> dict[str, Any]:
    """The dictionary in the bytes of a file that ``torch.save`` wrote: tensors (on the CPU), numbers, text and
    containers only.

    Raises:
        UserError: incomplete, with anything but data in it, compressed, or not a dictionary; ``path`` is named.
    """
    require_size(data, path, len(data))  # torch.save does not compress
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are about pickle protocols; the error below says what matters
            with torch.serialization.safe_globals(_NUMBERS):
                content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever its readers raise: UnpicklingError, RuntimeError, EOFError, ...
        asked_for = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if asked_for or _is_pickle_with_code(data):
            what = f" ({asked_for[1]})" if asked_for else ""
            raise UserError(f"{path} contains code{what}, not only data, and was not loaded.") from None
        raise UserError(f"{path} is not a complete PyTorch checkpoint: it is damaged or of another kind.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} holds a {type(content).__name__}, not a checkpoint's dictionary.")
    return content


def require_size(data: bytes, path: Path, most: int) -> None:
    """Raise UserError if an archive (zip) unpacks to more than ``most`` bytes; nothing is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error):  # no archive; its reader says so
        return
    if size > most:
        raise UserError(f"{path} unpacks to {size:,} bytes, more than the {most:,} of a file of its size.")


def _is_pickle_with_code(data: bytes) -> bool:
    """Whether a bare pickle (not torch's archive) names functions or classes; nothing is unpickled."""
    try:
        return any(opcode.name in ("GLOBAL", "STACK_GLOBAL", "INST") for opcode, _, _ in pickletools.genops(data))
    except Exception:  # not a pickle
        return False
