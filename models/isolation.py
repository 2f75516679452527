"""Call a function in a process of its own that can do little: somebody's program runs there, and data comes back.

Before the function is called, the process has limits on its time, its memory and the size of what it writes; its
folder is empty and its environment minimal. On Linux it has no network and cannot write outside its folder, start
programs or signal others, as far as the kernel has user namespaces and Landlock. In any case Python refuses sockets,
programs and writes elsewhere, which stops accidents and not a program that is written to get around it. It may read
what its user may read. What it sends back is tensors and text in safetensors, never objects.

Cost: a Python process that imports torch, about two seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from models.errors import UserError

#: Wall-clock and processor seconds after the imports, and bytes of memory on top of what Python with torch takes.
SECONDS, MEMORY = 120.0, 2 << 30
LARGEST_ANSWER = 64 << 20  # bytes; also of any file that the process writes
_LONGEST_ERROR = 300  # characters
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from models.isolation import _child; _child()"
_KEPT = ("LD_LIBRARY_PATH", "LANG")
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}


def run_isolated(
    target: str, arguments: dict[str, Any], seconds: float = SECONDS, memory: int = MEMORY
) -> tuple[dict[str, Any], Any]:
    """Call ``target`` ("package.module:function") with JSON arguments, in a process of its own.

    The function returns (tensors by name, facts that are JSON), as it does here; the facts have an additional entry
    ``unprotected``, what this system could not forbid.

    Raises:
        UserError: the function did, or anything else that it raised, in one sentence; time or memory ran out; the
            process ended without an answer; or its limits cannot be set on this system.
    """
    if os.name != "posix":
        raise UserError("programs of others are only run where a process can be limited, as on Linux")
    from models.checkpoint import parse_weights

    paths = [path for path in map(os.path.abspath, sys.path) if path != os.getcwd()]
    paths.insert(0, str(Path(__file__).resolve().parents[1]))
    compiled = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="isolated-") as folder, tempfile.TemporaryFile() as answer:
        job = {"target": target, "arguments": arguments, "seconds": seconds, "memory": memory}
        job["answer"] = answer.fileno()
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", *compiled, "-c", _START, json.dumps(paths), json.dumps(job)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=[answer.fileno()],
            cwd=folder, env=kept | _ONE_THREAD | {"HOME": folder, "TMPDIR": folder, "CUDA_VISIBLE_DEVICES": ""},
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            process.stdout.read(1)  # until it has imported what it needs, or has failed to
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise UserError(f"it took more than {seconds:g} seconds") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
            process.stdout.close()
        answer.seek(0)
        data = answer.read(LARGEST_ANSWER + 1)
    if process.returncode in (-signal.SIGKILL, -signal.SIGXCPU):
        raise UserError(f"it took more than {seconds:g} seconds, or too much memory")
    if process.returncode != 0:
        raise UserError(f"its process ended without an answer (exit status {process.returncode})")
    try:
        tensors, header = parse_weights(data, "its answer")
        facts = json.loads(header["facts"])
        error = facts.get("error")
    except (UserError, ValueError, KeyError, AttributeError):
        raise UserError("its process sent back something that is no answer") from None
    if error is not None:
        line = "".join(c if c.isprintable() else "?" for c in " ".join(str(error).split()))
        raise UserError(line[:_LONGEST_ERROR])
    return tensors, facts


def _child() -> None:
    """What the process runs: limits first, then the function."""
    job = json.loads(sys.argv[2])
    tensors: dict[str, Any] = {}
    try:
        unprotected = [] if _without_network() else ["the network"]  # before torch starts threads
        module, _, name = job["target"].partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        from models.checkpoint import format_weights  # now, as the limits may forbid it later

        os.write(1, b"!")
        os.dup2(2, 1)  # what the program prints goes nowhere
        _limit(job["seconds"], job["memory"])
        unprotected += [] if without_writing(os.getcwd()) else ["other files"]
        sys.addaudithook(_guard(os.path.realpath(os.getcwd())))
        tensors, facts = function(**job["arguments"])
        said = json.dumps(facts | {"unprotected": unprotected})
    except UserError as error:
        said = json.dumps({"error": str(error)})
    except BaseException as error:  # whatever a program raises, SystemExit and MemoryError too
        said = json.dumps({"error": f"it fails with {type(error).__name__}" + f": {error}" * bool(str(error))})
    data = format_weights(tensors, {"facts": said})
    with os.fdopen(job["answer"], "wb") as file:
        file.write(data)
    os._exit(0)  # without what the program may have left to be done at the end


def _limit(seconds: float, memory: int) -> None:
    """Set the limits of the system, which cannot be raised again."""
    import resource

    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits = {
            "AS": pages * resource.getpagesize() + memory,
            "CPU": math.ceil(time.process_time() + seconds),
            "FSIZE": LARGEST_ANSWER,
            "CORE": 0,
            "NPROC": 0,  # of further threads and processes; the system exempts its administrator
        }
        for name, limit in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    except (OSError, ValueError):
        raise UserError("programs of others are only run where their time and memory can be limited") from None


_NEW_USER, _NEW_NETWORK = 0x1000_0000, 0x4000_0000
_END_WITH_PARENT, _NO_NEW_PRIVILEGES = 1, 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock's system calls, the same on all machines


def _without_network() -> bool:
    """Move to a network of this process's own, which leads nowhere. False if the system does not allow it."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    libc.prctl(_END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    return libc.unshare(_NEW_USER | _NEW_NETWORK) == 0


def without_writing(folder: str) -> bool:
    """Forbid, by Landlock, to write outside ``folder``, to start programs, to connect and to signal other processes.
    False if the kernel does not have it."""
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    execute, write, truncate = 1, 1 << 1, 1 << 14
    change = sum(1 << bit for bit in range(4, 13))  # remove and make
    places = write | change | (truncate if version >= 3 else 0)
    attributes = [places | execute, *([3] if version >= 4 else []), *([3] if version >= 6 else [])]
    buffer = struct.pack(f"={len(attributes)}Q", *attributes)
    rules = libc.syscall(_CREATE_RULESET, buffer, len(buffer), 0) if version >= 1 else -1
    if rules < 0:
        return False
    own = os.open(folder, os.O_PATH)
    allowed = libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", places, own), 0) == 0
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    restricted = libc.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(own)
    os.close(rules)
    return allowed and restricted


_REFUSED = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill", "pty.",
    "ctypes.dlopen",
)  # fmt: skip
_CHANGES = ("remove", "rename", "rmdir", "mkdir", "link", "symlink", "truncate", "chmod", "chown", "utime")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _guard(folder: str) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook: Python itself refuses what the system may not."""
    changes = {f"os.{name}" for name in _CHANGES}

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event.startswith(_REFUSED):
            raise PermissionError(f"it may not use {event}")
        if event in changes or (event == "open" and isinstance(given[2], int) and given[2] & _WRITING):
            for path in given[:1] if event == "open" else given[:2]:
                if isinstance(path, (str, bytes)) and not _inside(os.fsdecode(path), folder):
                    raise PermissionError("it may not write outside its own folder")

    return hook


def _inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(folder + os.sep)
