"""The process in which the tools of ``interp mcp`` run: one that is ended when a call takes too long."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection
from typing import Any

from models.errors import UserError

LARGEST_REPLY = 4 << 20  # bytes
START = 120.0  # seconds to import what the tools need


class ToolProcess:
    """Calls tools by name, one at a time, in a process of its own that keeps loaded models.

    Args:
        seconds: the longest a call may take; the process is then ended, and the next call starts another.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: Any = None
        self._pipe: Connection | None = None

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the tool answers, as JSON.

        Raises:
            UserError: the tool refused, took too long, answered too much or failed.
        """
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._start()
            assert self._pipe is not None
            try:
                self._pipe.send_bytes(json.dumps([tool, arguments]).encode())
                if not self._pipe.poll(self.seconds):
                    self.close()
                    raise UserError(f"{tool} took more than {self.seconds:g} seconds and was stopped; ask for less.")
                said, value = json.loads(self._pipe.recv_bytes())
            except (EOFError, OSError):
                self.close()
                raise UserError(f"{tool} ended its process, perhaps for lack of memory; ask for less.") from None
        if said == "refused":
            raise UserError(value)
        return value

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        try:
            if not self._pipe.poll(START):
                raise EOFError
            self._pipe.recv_bytes()
        except (EOFError, OSError):
            self.close()
            raise UserError("The process of the tools does not start.") from None


def _serve(pipe: Connection) -> None:
    """What the process runs: calls that come in, until there are no more."""
    os.dup2(2, 1)  # the output belongs to the protocol
    from interp.cli.arguments import one_thread
    from interp.cli.tools import TOOLS
    from interp.core.probe import import_rooms

    one_thread()
    import_rooms()
    tools = {tool.__name__: tool for tool in TOOLS}
    pipe.send_bytes(b"ready")
    while True:
        try:
            name, arguments = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(answered(tools[name], arguments))


def answered(tool: Any, arguments: dict[str, Any]) -> bytes:
    """A tool's answer as JSON, or why there is none."""
    name = tool.__name__
    try:
        found = tool(**arguments)
        said = json.dumps(["found", found if isinstance(found, dict) else found.to_dict()], allow_nan=False).encode()
    except UserError as error:
        return json.dumps(["refused", str(error)]).encode()
    except Exception as error:  # the process lives on; somebody's options may break a probe in ways of their own
        return json.dumps(["refused", f"{name} failed with {type(error).__name__}: {str(error)[:300]}"]).encode()
    if len(said) > LARGEST_REPLY:
        return json.dumps(["refused", f"{name} has {len(said) >> 20} MiB to say; ask for less."]).encode()
    return said
