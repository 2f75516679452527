"""An inter-process file lock that says who holds it; released also if the process is killed."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from models.errors import Caution, UserError

if TYPE_CHECKING:
    from filelock import FileLock

WAIT = 0.2  # seconds, in which who was refused may take away a folder or file that it made
#: What file systems without locks answer, some over a network among them.
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EIO)


@contextlib.contextmanager
def locked(path: Path, what: object) -> Iterator[None]:
    """Hold the lock file ``path`` (made if missing, as is its folder; removed at the end) while the block runs.

    The lock of a killed process is simply taken over. The file says who holds it. A file system without locks gives a
    warning.

    Raises:
        UserError: another process holds it (named with host and time; ``what`` says what is in use), or the folder
            cannot be written.
    """
    from filelock import FileLock, Timeout  # 0.04 seconds, which nothing else of an import needs

    lock = FileLock(path, timeout=WAIT, poll_interval=WAIT / 20, fallback_to_soft=False)
    try:
        _take(lock, path)
    except Timeout:
        raise UserError(f"{what} is in use by {_holder(path)}; wait until it ends, or choose another folder.") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        why = getattr(error, "strerror", None) or error
        if getattr(error, "errno", None) not in _NO_LOCKS:
            raise UserError(f"{what} could not be locked: {path} cannot be written ({why}).") from error
        no_second = "see to it that no second process uses its folder"
        warnings.warn(f"{path} could not be locked ({why}); {no_second}.", category=Caution, stacklevel=3)
    try:
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with contextlib.suppress(OSError):
            path.write_text(json.dumps(holder))
        yield
    finally:
        with contextlib.suppress(OSError):  # removed while it is still held, so that nobody locks a deleted file
            path.unlink()
        lock.release()


def _take(lock: FileLock, path: Path) -> None:
    """Take the lock in a folder that another process, which was refused, may take away again."""
    until = time.monotonic() + WAIT
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
            return
        except FileNotFoundError:
            if time.monotonic() > until:
                raise


def _holder(path: Path) -> str:
    """Who holds the lock, according to its file."""
    try:
        found = json.loads(path.read_text())
        return f"process {found['pid']} on {found['host']} since {found['since']}"
    except (ValueError, KeyError, TypeError, OSError):  # the holder has not written to the file yet
        return "another process"
