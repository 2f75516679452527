"""The command ``interp mcp``: the tools of :mod:`interp.cli.tools` over the Model Context Protocol."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from models.errors import UserError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from interp.cli.tool_process import ToolProcess

ABOUT = """Questions about small transformers that do arithmetic. Every answer has `provenance` (how many inputs, their
seed, what they are) and `strength_of_evidence`: "sampled" says nothing about other inputs; "exhaustive" and
"certified ..." are about all of them. Never claim more than that. Start with list_models or load, then probes."""
LONGEST = 3_600


@dataclass(frozen=True)
class Mcp:
    """Serve the tools to a program that speaks the Model Context Protocol, over standard input and output: list models,
    load, probes that apply, ask, patch, certify, solve, and a figure as PNG.

    The tools write no files, apart from scratch in a folder that is removed. It needs the extra "mcp".
    """

    seconds: float = 300.0
    """The longest a call may take."""

    def run(self) -> None:
        from interp.cli.tool_process import ToolProcess

        if not 0 < self.seconds <= LONGEST:
            raise UserError(f"--seconds must be above 0 and at most {LONGEST:,}, not {self.seconds:g}.")
        if find_spec("mcp") is None:
            raise UserError("`interp mcp` needs the package mcp; install it with `pip install 'carrylens[mcp]'`.")
        with tempfile.TemporaryDirectory(prefix=".interp-mcp-", dir=os.getcwd()) as scratch:
            # A relative name, since the path of a browser's socket must be short.
            os.environ |= {"TMPDIR": os.path.basename(scratch), "HOME": scratch, "XDG_CACHE_HOME": scratch}
            os.environ["CARRYLENS_NATIVE"] = "0"
            tempfile.tempdir = scratch
            process = ToolProcess(self.seconds)
            try:
                server(process).run("stdio")
            finally:
                process.close()


def server(process: ToolProcess) -> MCPServer:
    """The server: every tool with the types of its function, each call in ``process``."""
    from mcp.server.mcpserver import Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import ToolAnnotations

    from interp.cli import tools
    from interp.core.replies import Found, Reply, RestsOn

    def reply_from(value: dict[str, Any]) -> Reply:
        rests = value["provenance"]
        return Reply(**value | {"result": Found(**value["result"]), "provenance": rests and RestsOn(**rests)})

    def called(tool: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        try:
            return process.call(tool.__name__, given)
        except UserError as error:
            raise ToolError(str(error)) from None

    def remote(tool: Callable[..., Any]) -> Callable[..., Reply]:
        @functools.wraps(tool)
        def asked(**given: Any) -> Reply:
            said = f"{tool.__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"
            return replace(reply_from(called(tool, given)), command=said)

        return asked

    @functools.wraps(tools.figure)
    def figure(**given: Any) -> list[Any]:
        import plotly.io

        from interp.figures.save import picture

        found = called(tools.figure, given)
        try:
            data = picture(plotly.io.from_json(found["figure"]), "png")
        except UserError as error:
            raise ToolError(str(error)) from None
        return [Image(data=data, format="png"), found["reply"]]

    made = MCPServer("carrylens", instructions=ABOUT, log_level="ERROR")
    only_reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in tools.TOOLS:
        if tool is tools.figure:
            made.tool(annotations=only_reads, structured_output=False)(figure)
        else:
            made.tool(annotations=only_reads)(remote(tool))
    return made
