"""An inter-process file lock; released also if the process is killed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from models.errors import Caution, UserError

_TRIES = 1_000  # to take a lock whose file or folder others remove meanwhile

try:
    import fcntl
except ImportError:  # not POSIX: nothing is locked there
    fcntl = None


@contextlib.contextmanager
def locked(path: Path, what: object) -> Iterator[None]:
    """Hold the lock file ``path`` (made if missing, as is its folder; removed at the end) while the block runs.

    The lock is a ``flock``: it belongs to the open file and ends with the process, so that the lock of a killed process
    is simply taken over. The file says who holds it. A file system without locks gives a warning.

    Raises:
        UserError: another process holds it (named with host and time; ``what`` says what is in use), or the folder
            cannot be written.
    """
    descriptor = _take(path, what)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # removed while it is still held, so that nobody locks a deleted file
            path.unlink()
        os.close(descriptor)


def _take(path: Path, what: object) -> int:
    for left in reversed(range(_TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
            if isinstance(error, FileNotFoundError) and left:  # who was refused took the folder away in between
                continue
            why = getattr(error, "strerror", None) or error
            raise UserError(f"{what} could not be locked: {path} cannot be written ({why}).") from error
        try:
            _flock(descriptor, path)
            if _still_named(path, descriptor):
                holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(holder).encode(), 0)
                return descriptor
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise UserError(f"{what} is in use by {holder}; wait until it ends, or choose another folder.") from None
        except OSError as error:
            os.close(descriptor)
            raise UserError(f"{what} could not be locked: {path} cannot be written ({error.strerror}).") from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it in between
    raise UserError(f"{what} is in use by processes that come and go; wait until they end, or choose another folder.")


def _flock(descriptor: int, path: Path) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        warnings.warn(
            f"{path} could not be locked ({error.strerror}); see to it that no second process uses its folder.",
            category=Caution,
            stacklevel=2,
        )


def _still_named(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """Who holds the lock, according to its file."""
    try:
        found = json.loads(os.pread(descriptor, 10_000, 0))
        return f"process {found['pid']} on {found['host']} since {found['since']}"
    except (ValueError, KeyError, TypeError, OSError):  # the holder has not written to the file yet
        return "another process"
