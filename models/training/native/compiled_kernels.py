"""Small C kernels for the inner loop of training, built on first use where a C compiler is found.

Each computes the same as a torch implementation, which is its reference in the tests and the fallback without a
compiler or on CUDA. Libraries are cached in the user's cache folder by the hash of source, flags and machine, and have
the hash of their own bytes in their name: a file that is truncated, empty or owned by somebody else is built again and
never loaded. ``CARRYLENS_NATIVE=0`` switches them off.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from models.errors import Caution, UserError
from models.files.checkpoint import sha256, write_bytes_atomic

FOLDER = Path(__file__).parent
_COMPILERS = ("gcc", "cc")
#: Rows that the loss kernels take at a time, as one vector.
LANES = 16
#: -ffast-math without the two parts that do harm: on loading, it would make the whole process flush subnormal numbers
#: to zero, and it would let the compiler assume that a failed seed's NaNs do not exist.
FAST = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11", "-Wno-psabi")
#: Seconds after which a compiler is stopped.
PATIENCE = 60.0
#: Lines of /proc/cpuinfo that show the differences that matter to -march=native: on x86, on ARM, on RISC-V.
_TELLING = ("flags", "cpu family", "model", "Features", "CPU implementer", "CPU variant", "CPU part", "isa", "uarch")
_given_up: list[str] = []  # compilers that hung in this process


@cache
def library(source: str, *flags: str) -> ctypes.CDLL | None:
    """The compiled ``source`` of this folder, or None if it is not available (no compiler, or switched off).

    A compiler that fails or takes longer than :data:`PATIENCE` gives a warning, since torch then computes other bits.
    """
    compiler = next((found for c in _COMPILERS if (found := shutil.which(c))), None)
    if compiler is None or compiler in _given_up or os.environ.get("CARRYLENS_NATIVE") == "0":
        return None
    text = b"".join(path.read_bytes() for path in (*sorted(FOLDER.glob("*.h")), FOLDER / source))
    machine = f"{platform.machine()} {processor()} {compiler}".encode()
    key = hashlib.sha256(text + repr((_FLAGS, flags)).encode() + machine).hexdigest()[:20]
    name = f"{Path(source).stem}-{key}"
    folder = _cache_folder()
    found = None if folder is None else _cached(folder, name)
    if found is not None:
        return found
    data = _compiled(compiler, source, flags)
    if data is None:
        return None
    if folder is not None:
        with contextlib.suppress(UserError):  # a full disk, say
            write_bytes_atomic(folder / _file_name(name, data), data, mode=0o600)
            found = _cached(folder, name)
    return found or _loaded_once(name, data)


def pointers(arrays: Iterable[Any]) -> list[Any]:
    """A pointer to each tensor's first number, as a kernel takes them."""
    return [ctypes.c_void_p(array.data_ptr()) for array in arrays]


def kernel_name(kernel: ctypes.CDLL) -> str:
    """The name of what :func:`library` built it from: the source, and a hash of source, flags and machine."""
    return Path(kernel._name).stem.rpartition("-")[0]


@cache
def processor() -> str:
    """What ``-march=native`` depends on, so that a cache on a shared home does not cross machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    found = {line for line in lines if line.partition(":")[0].strip() in _TELLING}
    return "\n".join(sorted(found)) or f"{platform.processor()} {platform.node()}"


def _file_name(name: str, data: bytes) -> str:
    return f"{name}-{sha256(data)[:20]}.so"


def _cache_folder() -> Path | None:
    """The folder of libraries, which nobody else can write to, or None if there cannot be one."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carrylens"
        folder.mkdir(parents=True, exist_ok=True)
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            folder.chmod(0o700)
        return folder if _is_ours(folder) else None
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None


def _is_ours(path: Path) -> bool:
    """Whether a file belongs to this user and nobody else may write to it."""
    status = path.lstat()
    return (
        status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and not stat.S_ISLNK(status.st_mode)
    )


def _cached(folder: Path, name: str) -> ctypes.CDLL | None:
    """The library of that name, if it is whole and ours."""
    for path in sorted(folder.glob(f"{name}-*.so")):
        with contextlib.suppress(OSError):
            if _is_ours(path) and path.name == _file_name(name, path.read_bytes()):
                return ctypes.CDLL(str(path))
    return None


def _loaded_once(name: str, data: bytes) -> ctypes.CDLL | None:
    """The library, loaded from a temporary folder."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / _file_name(name, data)
            path.write_bytes(data)
            return ctypes.CDLL(str(path))
    except OSError as error:
        warnings.warn(
            f"{name} could not be loaded ({error}); torch computes in its place.", category=Caution, stacklevel=3
        )
        return None


def _compiled(compiler: str, source: str, flags: tuple[str, ...]) -> bytes | None:
    """The bytes of the compiled ``source``, or None, with a warning, if the compiler fails or takes too long."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            built = Path(scratch) / "kernel.so"
            command = [compiler, *_FLAGS, *flags, str(FOLDER / source), "-o", str(built), "-lm"]
            # A session of its own, so that the programs that a compiler starts end with it.
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
            try:
                status = process.wait(PATIENCE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            data = built.read_bytes() if status == 0 else b""
    except subprocess.TimeoutExpired:
        _given_up.append(compiler)
        data, status = b"", f"nothing for {PATIENCE:.0f} s"
    except OSError as error:
        data, status = b"", error
    if not data:
        warnings.warn(
            f"{compiler} could not compile {source} ({status}); torch computes in its place, slower and with other "
            "last bits.",
            category=Caution,
            stacklevel=3,
        )
    return data or None
