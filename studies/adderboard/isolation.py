"""Call a function that runs somebody's program, in a process of its own, and take data back.

``trust`` says how. ``True`` is under bubblewrap (``bwrap``), if it is installed and can start: the process sees Python,
the folders on Python's path in which packages are installed and one folder of its file, all read-only; it is the only
process that it sees, and has an empty folder to write in, a network and an environment of its own. System calls that
start processes, open sockets or reserve memory past its limits are refused. A text is a command of one's own that is
put in front, such as a container's, and ``"unconfined"`` is no shelter at all: the program can then do what its user
can, and the limits on its time and memory stop accidents only. There is no other way, and none is taken in place of the
one that was asked for.

What comes back is tensors and text in safetensors, never objects, and it is the work of a stranger: whoever uses it
checks it.

Cost: a Python process that imports torch, about two seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import platform
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from models.errors import UserError

#: Wall-clock and processor seconds after the imports, and bytes of memory on top of what Python with torch takes.
SECONDS, MEMORY = 120.0, 2 << 30
LARGEST_ANSWER = 64 << 20  # bytes; also of any file that the process writes
UNCONFINED = "unconfined"
_TO_IMPORT = 120.0  # seconds
_MOST_FILES = 64  # open at once
_LONGEST_ERROR = 300  # characters
_START = "from studies.adderboard.isolation import _child; _child()"
_OWN_PATH = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
_KEPT = ("LD_LIBRARY_PATH", "LANG")
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}


def run_isolated(
    target: str,
    arguments: dict[str, Any],
    seconds: float = SECONDS,
    memory: int = MEMORY,
    trust: bool | str = True,
    folder: Path | None = None,
) -> tuple[dict[str, Any], Any]:
    """Call ``target`` ("package.module:function") with JSON arguments, in a process of its own.

    The function returns (tensors by name, facts that are JSON), as it does here.

    Args:
        seconds, memory: what it may take, after the imports.
        trust: how it is run: True, "unconfined", or a command that ends with a Python which has this package; in it,
            "{folder}" stands for ``folder``.
        folder: what it may read, apart from Python, this project and the packages that are installed.

    Raises:
        UserError: the function did, or anything else that it raised, in one sentence; time or memory ran out; the
            process ended without an answer; or it cannot be run as ``trust`` says (:func:`require_shelter`).
    """
    require_shelter(trust)
    job = json.dumps({"target": target, "arguments": arguments, "seconds": seconds, "memory": memory})
    with tempfile.TemporaryDirectory(prefix="isolated-") as own, tempfile.TemporaryFile() as given:
        given.write(job.encode())
        given.seek(0)
        with _command(trust, folder, own) as (command, passed, environment):
            process = subprocess.Popen(
                command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=passed, cwd=own,
                env=environment, start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        try:
            begun = _read(process.stdout.fileno(), 1, _TO_IMPORT)  # when it has imported what it needs
            data = _read(process.stdout.fileno(), LARGEST_ANSWER + 1, seconds) if begun else b""
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
        except TimeoutError:
            raise UserError(f"it took more than {seconds:g} seconds") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
    return _answer(data, process.returncode, seconds)


def _read(pipe: int, most: int, seconds: float) -> bytes:
    """What comes until the pipe is closed, at most so many bytes. Raises TimeoutError."""
    end, found = time.monotonic() + seconds, bytearray()
    while len(found) < most:
        if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        some = os.read(pipe, min(most - len(found), 1 << 20))
        if not some:
            break
        found += some
    return bytes(found)


def _answer(data: bytes, status: int, seconds: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and facts that a process sent. Raises UserError if it sent none, or an error."""
    from models.files.checkpoint import parse_weights

    if not data:
        if status in (-signal.SIGKILL, -signal.SIGXCPU, 128 + signal.SIGKILL, 128 + signal.SIGXCPU):
            raise UserError(f"it took more than {seconds:g} seconds, or too much memory")
        raise UserError(f"its process ended without an answer (exit status {status})")
    try:
        if len(data) > LARGEST_ANSWER:
            raise ValueError
        tensors, header = parse_weights(data, "its answer")
        facts = json.loads(header["facts"], parse_constant=_no_number)
        error = facts.get("error")
    except (UserError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise UserError("its process sent back something that is no answer") from None
    if error is not None:
        line = "".join(c if c.isprintable() else "?" for c in " ".join(str(error).split()))
        raise UserError(line[:_LONGEST_ERROR])
    return tensors, facts


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


# ---- how it is run


def require_shelter(trust: bool | str) -> None:
    """Raise UserError if a program cannot be run as ``trust`` says; the sentence says what can be asked for."""
    if os.name != "posix":
        raise UserError("programs of others are only run where a process can be limited, as on Linux")
    if trust is True:
        if why := _no_bubblewrap():
            raise UserError(
                f"it cannot be confined here, as {why}, so that the file could do what you can; say "
                'trust="unconfined" (on the command line, --trust unconfined) to run it all the same'
            )
    elif trust != UNCONFINED:
        words = _words(trust)
        if not words or shutil.which(words[0]) is None:
            raise UserError(
                f'trust is True, "unconfined" or a command that is put in front of the program, not {str(trust)[:80]!r}'
            )


def _words(trust: bool | str) -> list[str]:
    try:
        return shlex.split(trust) if isinstance(trust, str) else []
    except ValueError:  # a quotation that does not end
        return []


@contextlib.contextmanager
def _command(
    trust: bool | str, folder: Path | None, own: str
) -> Iterator[tuple[list[str], list[int], dict[str, str] | None]]:
    """(command, open files that it is passed, environment; None is this process's)."""
    if trust is not True and trust != UNCONFINED:
        words = _words(trust)
        yield [word.replace("{folder}", str(folder or own)) for word in words] + ["-c", _START], [], None
        return
    paths = [path for path in map(os.path.abspath, sys.path) if path != os.getcwd()]
    paths = [path for path in paths if trust is not True or _has_packages(path)]
    paths.insert(0, str(Path(__file__).resolve().parents[2]))
    compiled = ["-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
    python = [sys.executable, "-I", "-B", *compiled, "-c", _OWN_PATH + _START, json.dumps(paths)]
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ} | _ONE_THREAD
    kept |= {"HOME": "/tmp", "TMPDIR": "/tmp"} if trust is True else {"HOME": own, "TMPDIR": own}
    kept["CUDA_VISIBLE_DEVICES"] = ""
    if trust is not True:
        yield python, [], kept
        return
    seen = [*paths, sys.prefix, sys.base_prefix, *kept.get("LD_LIBRARY_PATH", "").split(":")]
    seen += [place for place in (sys.pycache_prefix, folder) if place is not None]
    with tempfile.TemporaryFile() as rules:
        rules.write(_filter() or b"")
        rules.seek(0)
        shown = [str(place) for place in seen if str(place)]
        yield [*_bubblewrap(shown), "--seccomp", str(rules.fileno()), "--", *python], [rules.fileno()], kept


def _has_packages(path: str) -> bool:
    """Whether a folder on Python's path is a part of Python, or one in which packages are installed; a script's own is
    neither."""
    if any(Path(path).is_relative_to(at) for at in (sys.prefix, sys.base_prefix)):
        return True
    return any(True for _ in distributions(path=[path]))


def _bubblewrap(seen: list[str]) -> list[str]:
    """A bubblewrap in which only the system's libraries and ``seen`` are there, read-only, with an empty /tmp.

    The program is process 1 of its own: bubblewrap itself, which no limit holds, would otherwise be there to write to.
    """
    system = ["/usr", "/lib", "/lib64", "/lib32", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives"]
    shown = [word for place in dict.fromkeys(system) for word in ("--ro-bind-try", place, place)]
    shown += ["--proc", "/proc", "--dev", "/dev", "--size", str(LARGEST_ANSWER), "--tmpfs", "/tmp"]
    real = list(dict.fromkeys(map(os.path.realpath, seen)))
    # nothing can be put where a link is: it leads to what is there by its own name
    named = [place for place in dict.fromkeys(seen) if not any(Path(place).is_relative_to(at) for at in real)]
    shown += [word for place in (*real, *named) for word in ("--ro-bind-try", place, place)]
    ends = ["--die-with-parent", "--new-session", "--unshare-all", "--cap-drop", "ALL", "--as-pid-1"]
    return ["bwrap", *ends, *shown, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


@cache
def _no_bubblewrap() -> str:
    """Why a program cannot be confined on this system; empty if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    if _filter() is None:
        return f"no filter of system calls is stated for {sys.platform} on {platform.machine()}"
    try:
        subprocess.run([*_bubblewrap([]), "--", "/usr/bin/env", "true"], check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()[:120]
        return f"bubblewrap does not start ({said or type(error).__name__})"
    return ""


#: Numbers of the system calls that start processes, reach others, open sockets, or hold memory that no limit counts.
_REFUSED = {
    "x86_64": (
        0xC000_003E,
        {
            "clone": 56, "fork": 57, "vfork": 58, "clone3": 435, "ptrace": 101, "process_vm_readv": 310,
            "process_vm_writev": 311, "socket": 41, "socketpair": 53, "shmget": 29, "msgget": 68, "semget": 64,
            "memfd_create": 319, "memfd_secret": 447, "unshare": 272, "setns": 308, "mount": 165, "add_key": 248,
            "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
            "io_uring_setup": 425,
        },
    ),
    "aarch64": (
        0xC000_00B7,
        {
            "clone": 220, "clone3": 435, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271,
            "socket": 198, "socketpair": 199, "shmget": 194, "msgget": 186, "semget": 190, "memfd_create": 279,
            "memfd_secret": 447, "unshare": 97, "setns": 268, "mount": 40, "add_key": 217, "request_key": 218,
            "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "io_uring_setup": 425,
        },
    ),
}  # fmt: skip


def _filter() -> bytes | None:
    """The filter of system calls, as the kernel reads it (classic BPF); None for a machine that none is stated for."""
    if not sys.platform.startswith("linux") or platform.machine() not in _REFUSED:
        return None
    architecture, numbers = _REFUSED[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    allow, refuse, end = 0x7FFF_0000, 0x0005_0001, 0x8000_0000  # refused with EPERM; ended
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, end)]
    steps += [(load, 0, 0, 0), (at_least, 0, 1, 0x4000_0000), (answer, 0, 0, refuse)]  # another way to call the same
    for number in numbers.values():
        steps += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    return b"".join(struct.pack("=HBBI", *step) for step in [*steps, (answer, 0, 0, allow)])


# ---- in the process


def _child() -> None:
    """What the process runs: limits first, then the function."""
    _end_with_parent()
    job = json.loads(sys.stdin.buffer.read())
    answer = os.dup(1)
    os.dup2(2, 1)  # what the program prints goes nowhere
    tensors: dict[str, Any] = {}
    try:
        module, _, name = job["target"].partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        from models.files.checkpoint import format_weights

        os.write(answer, b"!")
        _limit(job["seconds"], job["memory"])
        tensors, facts = function(**job["arguments"])
        said = json.dumps(facts)
    except UserError as error:
        said = json.dumps({"error": str(error)})
    except BaseException as error:  # whatever a program raises, SystemExit and MemoryError too
        said = json.dumps({"error": f"it fails with {type(error).__name__}" + f": {error}" * bool(str(error))})
    data = format_weights(tensors, {"facts": said})
    with os.fdopen(answer, "wb") as file:
        file.write(data)
    os._exit(0)  # without what the program may have left to be done at the end


def _end_with_parent() -> None:
    """Ask Linux to end this process when the one that started it ends, however that is."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _limit(seconds: float, memory: int) -> None:
    """Set the limits of the system, which an ordinary process cannot raise again."""
    import resource

    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits = {
            "AS": pages * resource.getpagesize() + memory,
            "CPU": math.ceil(time.process_time() + seconds),
            "FSIZE": LARGEST_ANSWER,
            "NOFILE": _MOST_FILES,
            "CORE": 0,
            "NPROC": 0,  # of further threads and processes; the system exempts its administrator
        }
        for name, limit in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    except (OSError, ValueError):
        raise UserError("programs of others are only run where their time and memory can be limited") from None
