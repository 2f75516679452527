"""Storage that survives crashes and notices damage.

Writing: temporary file in the same folder, fsync, rename, fsync of the folder. Whatever happens in between (a
kill, a full disk), the path holds either all of the old bytes or all of the new ones.

A device, a pipe or the terminal is written to and not replaced; a link is followed; permissions are kept.

Reading: a weight file carries the SHA-256 of its own contents, so one rename replaces weights and checksum
together. A folder that stores several files keeps their hashes in a JSON file as well (see :mod:`models.zoo`).

Weights are safetensors; nothing here unpickles.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as format_safetensors
from torch import Tensor, nn

from models.errors import UserError
from models.files.headers import require_header
from models.files.stored_names import CONFIG, ZOO, not_installed

# safetensors writes metadata in random order: with one entry, equal contents give equal files.
_ENTRY = "carrylens"

# ---- bytes and JSON


def write_bytes_atomic(path: str | Path, data: bytes, mode: int | None = None) -> None:
    """Replace the file at ``path`` by ``data``, entirely or not at all; missing folders are made.

    A link stays, and the file that it points to is replaced. A replaced file keeps its permissions (``mode`` sets
    others). A device, a pipe, or what this process prints to (``/dev/stdout``) is written to instead.

    Raises:
        UserError: the write failed (full disk, no permission); a file that was there before is untouched.
    """
    path = Path(path)
    try:
        target = Path(os.path.realpath(path))
        if _write_through(path, data):
            return
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb", opener=_private if mode is not None or target.exists() else None) as file:
                _keep_permissions(file.fileno(), target, mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
    except BrokenPipeError:  # its reader has stopped reading; the caller decides what that means
        raise
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise UserError(
            f"{path} could not be written ({_reason(error)}); what was there before is untouched."
        ) from error
    fsync_folder(target.parent)


def _write_through(path: Path, data: bytes) -> bool:
    """Write to a path that cannot be replaced, and say whether it is one. An output of this process is written through
    its open descriptor."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        with contextlib.suppress(OSError):
            if os.path.samestat(there, os.fstat(descriptor)):
                if stream is not None:
                    stream.flush()
                _write_all(descriptor, data)
                return True
    if stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode):  # replacing a folder fails later
        return False
    descriptor = os.open(path, os.O_WRONLY)
    try:
        _write_all(descriptor, data)
    finally:
        os.close(descriptor)
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else may read until it gets its final permissions."""
    return os.open(path, flags, 0o600)


def _keep_permissions(descriptor: int, target: Path, mode: int | None) -> None:
    """Give the new file the mode and, where that is allowed, the owner of the one that it replaces."""
    with contextlib.suppress(FileNotFoundError):
        there = target.stat()
        if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):
                os.fchown(descriptor, there.st_uid, there.st_gid)
        mode = stat.S_IMODE(there.st_mode) if mode is None else mode
    if mode is not None:
        os.fchmod(descriptor, mode)


def temporary_files(folder: Path) -> list[Path]:
    """Files directly in ``folder`` left by writers that were killed in the middle of :func:`write_bytes_atomic`."""
    return sorted(folder.glob(".*.tmp"))


def fsync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` durable, where the system can (some file systems refuse)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_json_atomic(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically. NaN and infinities are refused: they are not JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes_atomic(path, (text + "\n").encode())


def read_bytes(path: str | Path) -> bytes:
    """The file's bytes. Raises UserError if it is missing or cannot be read, or if it is large and not what its suffix
    says, or larger than the memory (:mod:`models.files.headers`)."""
    path = Path(path)
    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a pipe or a device may never end
            raise UserError(f"{path} is a pipe or a device, not a file.")
        require_header(path)
        return path.read_bytes()
    except MemoryError:
        raise UserError(f"{path} does not fit into this machine's memory.") from None
    except UserError:
        raise
    except FileNotFoundError:
        if path.is_relative_to(ZOO) and (path.parent / CONFIG).is_file():
            raise not_installed(path) from None
        raise UserError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, not a file.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        raise UserError(f"{path} could not be read ({_reason(error)}).") from error


def read_json(path: str | Path) -> dict[str, Any]:
    """The JSON object in a file. Raises UserError if it is missing, or not a complete JSON object."""
    return parse_json(read_bytes(path), path)


def parse_json(data: bytes, path: object) -> dict[str, Any]:
    """The JSON object that a file's bytes hold. Raises UserError, naming ``path``, if they do not hold one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or a number with too many digits
        raise UserError(f"{path} is not valid JSON ({error}); restore it from where it came from.") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not a {type(value).__name__}.")
    return value


def sha256(data: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def check_sha256(data: bytes, expected: str, source: object) -> None:
    """Raises UserError, naming ``source``, if ``data`` does not have the SHA-256 ``expected``."""
    if sha256(data) != expected:
        raise UserError(f"{source} does not match its recorded SHA-256: it is truncated or was changed; restore it.")


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# ---- weights


def content_digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 over names, dtypes, shapes, values and metadata, independent of the order of either mapping."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def format_weights(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a weight file: safetensors with ``metadata`` and a digest of the contents in its header."""
    # Cloned because safetensors refuses tensors that share memory (views, tied weights).
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    header = {"sha256": content_digest(stored, metadata or {}), "metadata": dict(metadata or {})}
    return format_safetensors(stored, {_ENTRY: json.dumps(header, sort_keys=True)})


def save_weights(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Store tensors (any shapes and dtypes) and text metadata in one file, atomically.

    Returns:
        the SHA-256 of the file's bytes, for :func:`load_weights` or a list of hashes.

    Raises:
        UserError: the write failed; a file that was there before is untouched.
    """
    data = format_weights(tensors, metadata)
    write_bytes_atomic(path, data)
    return sha256(data)


def load_weights(path: str | Path, file_sha256: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a file written by :func:`save_weights`, checked against its digest.

    Args:
        path: the file.
        file_sha256: the SHA-256 that the file's bytes must have. A safetensors file that another program
            wrote has no digest of its own and is read only if this is given.

    Raises:
        UserError: the file is missing, truncated, changed, or not such a file.
    """
    data = read_bytes(path)
    if file_sha256 is not None:
        check_sha256(data, file_sha256, path)
    return parse_weights(data, path, trusted=file_sha256 is not None)


def parse_weights(data: bytes, source: object, trusted: bool = False) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata from the bytes of a weight file, checked against the digest they carry.

    ``trusted`` says that the bytes were checked already, so that they need no digest.

    Raises:
        UserError: truncated, changed or not such bytes; ``source`` is named.
    """
    try:
        tensors = parse_safetensors(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        own = json.loads(header.get("__metadata__", {}).get(_ENTRY, "null"))
        digest, metadata = (own["sha256"], own["metadata"]) if own is not None else (None, {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            raise TypeError
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise UserError(f"{source} is not a complete safetensors file; restore it from where it came from.") from None
    if digest is None and not trusted:
        raise UserError(f"{source} carries no checksum of its own, so damage could not be noticed; it was not loaded.")
    if digest is not None and content_digest(tensors, metadata) != digest:
        raise UserError(f"{source} does not match the checksum it carries: its contents were changed; restore it.")
    return tensors, metadata


def assign_parameters(module: nn.Module, tensors: Mapping[str, Tensor], source: object) -> None:
    """Copy ``tensors`` into the module's parameters; names, shapes and dtypes must agree exactly.

    Nothing is copied unless everything fits.

    Raises:
        UserError: missing or unknown names, another shape or dtype; ``source`` is named.
    """
    parameters = dict(module.named_parameters())
    missing, unknown = parameters.keys() - tensors.keys(), tensors.keys() - parameters.keys()
    if missing:
        raise UserError(f"{source} lacks {_listed(missing)}: it belongs to another model.")
    if unknown:
        raise UserError(f"{source} has {_listed(unknown)}, which this model does not: it belongs to another model.")
    for name, parameter in parameters.items():
        tensor = tensors[name]
        if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
            found = f"{list(tensor.shape)} of {tensor.dtype}"
            raise UserError(f"{source} holds {name} as {found}; this model needs {_kind(parameter)}.")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def _kind(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
