"""The command ``interp mcp``: the tools of :mod:`interp.cli.mcp_tools` over the Model Context Protocol."""

from __future__ import annotations

import os
import signal
import tempfile
from importlib.util import find_spec

from models.errors import UserError

LONGEST, MOST_MEMORY = 3_600, 1_024


def mcp(seconds: float = 300.0, memory: float = 4.0) -> None:
    """Serve the tools to a program that speaks the Model Context Protocol, over standard input and output: list models,
    load, guess what a file is for, probes that apply, ask, patch, certify, solve, and a figure as PNG.

    The tools write no files, apart from scratch in a folder that is removed. It needs the extra "mcp".

    Args:
        seconds: The longest a call may take.
        memory: GiB that calls may take, on Linux.
    """
    from interp.cli.mcp_process import ToolProcess

    if not 0 < seconds <= LONGEST:
        raise UserError(f"--seconds must be above 0 and at most {LONGEST:,}, not {seconds:g}.")
    if not 0 < memory <= MOST_MEMORY:
        raise UserError(f"--memory must be above 0 and at most {MOST_MEMORY:,}, not {memory:g}.")
    if find_spec("mcp") is None:
        raise UserError("`interp mcp` needs the package mcp; install it with `pip install 'carrylens[mcp]'`.")
    from interp.cli.mcp_server import server

    with tempfile.TemporaryDirectory(prefix=".interp-mcp-", dir=os.getcwd()) as scratch:
        # A relative name, since the path of a browser's socket must be short.
        os.environ |= {"TMPDIR": os.path.basename(scratch), "HOME": scratch, "XDG_CACHE_HOME": scratch}
        os.environ["CARRYLENS_NATIVE"] = "0"
        tempfile.tempdir = scratch
        process = ToolProcess(seconds, memory)
        _end_at_signals(process, scratch)
        try:
            server(process).run("stdio")
        finally:
            process.close()


def _end_at_signals(process: object, scratch: str) -> None:
    """At Ctrl-C and SIGTERM, end at once, with the process of the tools and the scratch. An exception would not do:
    the thread that reads the input cannot be told to stop."""
    import shutil

    def end(number: int, frame: object) -> None:
        process.close()  # pyright: ignore[reportAttributeAccessIssue]
        shutil.rmtree(scratch, ignore_errors=True)
        os.write(2, b"interp: interrupted.\n")
        os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
