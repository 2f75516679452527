"""The process in which the tools of ``interp mcp`` run: one that is ended when a call takes too long or is cancelled,
that has a limit on its memory, and that ends with the process that started it."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from interp.cli.written_files import warned
from models.errors import UserError, in_short

LARGEST_REPLY = 4 << 20  # bytes
LONGEST_REFUSAL = 600  # characters
START = 120.0  # seconds to import what the tools need
MEMORY = 4.0  # GiB, on top of what the imports take
_LOOK = 0.05  # seconds between looks at whether a call was cancelled


class Cancelled(Exception):
    """The one who asked does not want the answer any more."""


class ToolProcess:
    """Calls tools by name, one at a time, in a process of its own that keeps loaded models.

    Args:
        seconds: the longest a call may take; the process is then ended, and the next call starts another.
        memory: GiB that it may take on top of what its imports do, where the system can limit it (Linux).
    """

    def __init__(self, seconds: float, memory: float = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._lock = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    def call(self, tool: str, arguments: dict[str, Any], cancelled: threading.Event | None = None) -> dict[str, Any]:
        """What the tool answers, as JSON. When ``cancelled`` is set, the process is ended with the call that it works
        on.

        Raises:
            UserError: the tool refused, took too long, answered too much or failed.
            Cancelled: it was cancelled.
        """
        cancelled = cancelled or threading.Event()
        while not self._lock.acquire(timeout=_LOOK):  # another call runs, which this one does not end
            if cancelled.is_set():
                raise Cancelled
        try:
            if self._process is None or not self._process.is_alive():
                self._start(cancelled)
            assert self._pipe is not None
            try:
                self._pipe.send_bytes(json.dumps([tool, arguments]).encode())
                if not _answers(self._pipe, self.seconds, cancelled):
                    raise UserError(f"{tool} took more than {self.seconds:g} seconds and was stopped; ask for less.")
                said, value = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                self.close()
                raise UserError(f"{tool} ended its process, perhaps for lack of memory; ask for less.") from None
            except BaseException:
                self.close()
                raise
        finally:
            self._lock.release()
        if said == "refused":
            raise UserError(value)
        return value

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self, cancelled: threading.Event) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self.memory, self.seconds), daemon=True)
        self._process.start()
        theirs.close()
        try:
            if not _answers(self._pipe, START, cancelled):
                raise EOFError
            self._pipe.recv_bytes()
        except (EOFError, OSError):
            self.close()
            raise UserError("The process of the tools does not start.") from None
        except Cancelled:
            self.close()
            raise


def _answers(pipe: Connection, seconds: float, cancelled: threading.Event) -> bool:
    """Whether something comes in time. Raises Cancelled."""
    end = time.monotonic() + seconds
    while not pipe.poll(min(_LOOK, max(0.0, end - time.monotonic()))):
        if cancelled.is_set():
            raise Cancelled
        if time.monotonic() >= end:
            return False
    return True


def _serve(pipe: Connection, memory: float, seconds: float) -> None:
    """What the process runs: calls that come in, until there are no more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.dup2(2, 1)  # the output belongs to the protocol
    from interp.cli.mcp_tools import TOOLS, limit_time
    from interp.cli.shared_options import one_thread
    from interp.core.probe import import_rooms

    one_thread()
    limit_time(seconds)
    import_rooms()
    _limit_memory(memory)
    tools = {tool.__name__: tool for tool in TOOLS}
    pipe.send_bytes(b"ready")
    while True:
        try:
            name, arguments = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(answered(tools[name], arguments))


def _end_with_parent() -> None:
    """End this process, whatever it works on, when the one that started it ends, however that is."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _limit_memory(gigabytes: float) -> None:
    """Limit what this process can still allocate, on Linux."""
    if not sys.platform.startswith("linux"):
        return
    import resource

    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    limit = taken + int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def answered(tool: Any, arguments: dict[str, Any]) -> bytes:
    """A tool's answer as JSON, or why there is none."""
    name = tool.__name__
    try:
        with warned() as warnings:
            found = tool(**arguments)
        value = found if isinstance(found, dict) else found.to_dict()
        value.get("reply", value)["warnings"] = warnings  # a figure has its reply beside it
        said = json.dumps(["found", value], allow_nan=False).encode()
    except UserError as error:
        return _refused(str(error))
    except Exception as error:  # the process lives on; somebody's options may break a probe in ways of their own
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            return _refused(f"{name} needs more memory than a call may take; ask for less.")
        return _refused(f"{name} failed with {type(error).__name__}: {error}")
    if len(said) > LARGEST_REPLY:
        return _refused(f"{name} has {len(said) >> 20} MiB to say; ask for less.")
    return said


def _refused(text: str) -> bytes:
    return json.dumps(["refused", one_line(text)]).encode()


def one_line(text: str) -> str:
    """A refusal on one line, no longer than a sentence can be."""
    return in_short(" ".join(in_short(text, 4 * LONGEST_REFUSAL).split()), LONGEST_REFUSAL)
