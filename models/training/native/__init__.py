"""Small C kernels for the inner loop of training, built on first use where a C compiler is found.

Each is an exact twin of a torch implementation beside it, which is its reference in the tests and the fallback
without a compiler or on CUDA. Libraries are cached by the hash of source, flags and machine, under the user's cache
folder; ``CARRYLENS_NATIVE=0`` switches them off.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
_COMPILERS = ("gcc", "cc")
#: Rows that the loss kernels take at a time, as one vector.
LANES = 16
#: What -ffast-math means, less the two parts that do harm: on loading, it would have the whole process flush
#: subnormal numbers to zero, and it would let the compiler assume that a failed seed's NaNs do not exist.
FAST = ("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math", "-freciprocal-math")
_FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-std=gnu11", "-Wno-psabi")


@cache
def library(source: str, *flags: str) -> ctypes.CDLL | None:
    """The compiled ``source`` of this folder, or None where it cannot be had (no compiler, or switched off)."""
    compiler = next((found for c in _COMPILERS if (found := shutil.which(c))), None)
    if compiler is None or os.environ.get("CARRYLENS_NATIVE") == "0":
        return None
    text = b"".join(path.read_bytes() for path in (*sorted(FOLDER.glob("*.h")), FOLDER / source))
    machine = f"{platform.machine()} {_processor()} {compiler}".encode()
    key = hashlib.sha256(text + repr((_FLAGS, flags)).encode() + machine).hexdigest()[:20]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "carrylens"
    target = folder / f"{Path(source).stem}-{key}.so"
    try:
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                built = Path(scratch) / "kernel.so"
                subprocess.run(
                    [compiler, *_FLAGS, *flags, str(FOLDER / source), "-o", str(built), "-lm"],
                    check=True,
                    capture_output=True,
                )
                built.rename(target)  # atomic: two processes may build at once
        return ctypes.CDLL(str(target))
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    """What ``-march=native`` depends on, so that a cache on a shared home does not cross machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith("flags")), "")
    except OSError:
        return platform.processor()
