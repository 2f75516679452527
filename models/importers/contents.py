"""What is in a file that may hold a model, by its suffix: tensors by name, or a JSON object. Nothing of it is run."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.errors import UserError
from models.files.checkpoint import parse_json, parse_weights, read_bytes
from models.files.stored_names import TORCH_FILES
from models.importers.safe_torch import parse_torch, require_size

MOST_UNPACKED = 256 << 20  # bytes of the arrays of a small compressed file


def read_content(path: Path) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """The content of a file, and what a ``.safetensors`` of this project says beside it.

    Raises:
        UserError: the file is missing, damaged, or has code in it.
    """
    return PARSERS[path.suffix](read_bytes(path), path)


def _parse_npz(data: bytes, path: Path) -> dict[str, Any]:
    """The arrays of a NumPy archive as tensors."""
    require_size(data, path, max(MOST_UNPACKED, 2 * len(data)))
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: torch.from_numpy(np.ascontiguousarray(archive[name])) for name in archive.files}
    except (
        ValueError,
        OSError,
        TypeError,
        KeyError,
        EOFError,
        SyntaxError,
        RecursionError,
        zipfile.BadZipFile,
    ) as error:
        raise UserError(f"{path} is not an .npz file of numbers ({error}).") from None


#: (bytes, path) -> content and metadata, by suffix.
PARSERS: dict[str, Callable[[bytes, Path], tuple[Mapping[str, Any], Mapping[str, str]]]] = {
    ".json": lambda data, path: (parse_json(data, path), {}),
    ".npz": lambda data, path: (_parse_npz(data, path), {}),
    ".safetensors": lambda data, path: parse_weights(data, path, trusted=True),  # other programs write no digest
    **dict.fromkeys(TORCH_FILES, lambda data, path: (parse_torch(data, path), {})),
}
