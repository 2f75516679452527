"""The server of ``interp mcp``: its tools, how calls reach their process, and how malformed messages are answered."""

from __future__ import annotations

import functools
import inspect
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import CallToolResult, ErrorData, JSONRPCError, TextContent, ToolAnnotations
from pydantic import ValidationError

from interp.cli import mcp_tools
from interp.cli.mcp_process import one_line
from interp.core.replies import Reply  # noqa: F401  the tools' annotations name it
from models.calls import shown
from models.errors import UserError, unknown_name

if TYPE_CHECKING:
    from interp.cli.mcp_process import ToolProcess

ABOUT = """Questions about small transformers that do arithmetic. Every answer has `provenance` (how many inputs, their
seed, what they are) and `strength_of_evidence`: "sampled" says nothing about other inputs; "exhaustive" and
"certified ..." are about all of them. Never claim more than that. Start with list_models or load, then probes. Tables
are cut to their first rows and main columns; `rows` and `detail` ask for more."""
NOT_JSON = -32_700  # the protocol's code
_BY_NAME = {tool.__name__: tool for tool in mcp_tools.TOOLS}


class Server(MCPServer):
    """A server that refuses malformed calls of tools in one sentence, and answers lines that are not messages."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        try:
            _require(name, arguments)
            return await super().call_tool(name, arguments, context)
        except UserError as error:
            raise ToolError(one_line(str(error))) from None
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(one_line(f"{name}: {_misfit(error.__cause__)}")) from None
            raise ToolError(one_line(str(error))) from None

    async def run_stdio_async(self) -> None:
        """Serve the standard streams; a line that is no message, which the protocol's library passes over, is answered
        by an error."""
        send, receive = anyio.create_memory_object_stream[Any](0)
        async with stdio_server() as (read, write), anyio.create_task_group() as group:

            async def passed_on() -> None:
                async with send:
                    async for message in read:
                        if isinstance(message, Exception):
                            error = ErrorData(code=NOT_JSON, message="The line is not a message of JSON-RPC 2.0.")
                            await write.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
                        else:
                            await send.send(message)

            group.start_soon(passed_on)
            own = self._lowlevel_server
            await own.run(receive, write, own.create_initialization_options())
            group.cancel_scope.cancel()


def _require(name: str, arguments: dict[str, Any]) -> None:
    """Raise UserError for an unknown tool or argument, with the nearest name, or a missing one."""
    if name not in _BY_NAME:
        raise unknown_name("tool", name, _BY_NAME)
    parameters = inspect.signature(_BY_NAME[name]).parameters
    for given in arguments:
        if given not in parameters:
            raise unknown_name(f"argument of {name}", given, parameters)
    needed = [each.name for each in parameters.values() if each.default is each.empty]
    if missing := [each for each in needed if each not in arguments]:
        raise UserError(f"{name} needs {' and '.join(missing)}.")


def _misfit(error: ValidationError) -> str:
    """The first thing that is wrong with the arguments of a call."""
    first = error.errors(include_url=False)[0]
    at = ".".join(map(str, first["loc"]))
    return f"{at} does not take {shown(first['input'])} ({first['msg']})."


def server(process: ToolProcess) -> MCPServer:
    """The server: every tool with the types of its function, each call in ``process``."""

    async def called(tool: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
        cancelled = threading.Event()
        call = functools.partial(process.call, tool.__name__, given, cancelled)
        try:
            return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            cancelled.set()  # which ends the process, if it works on this call
            raise
        except UserError as error:
            raise ToolError(str(error)) from None

    def remote(tool: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(tool)
        async def asked(**given: Any) -> Any:
            words = (f"{name}={shown(value)}" for name, value in given.items())
            value = await called(tool, given) | {"command": f"{tool.__name__}({', '.join(words)})"}
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=value)

        return asked

    @functools.wraps(mcp_tools.figure)
    async def figure(**given: Any) -> list[Any]:
        import plotly.io

        from interp.figures.save_figure import picture

        found = await called(mcp_tools.figure, given)
        drawn = plotly.io.from_json(found["figure"])
        try:
            data = await anyio.to_thread.run_sync(picture, drawn, "png", abandon_on_cancel=True)
        except UserError as error:
            raise ToolError(str(error)) from None
        return [Image(data=data, format="png"), found["reply"]]

    made = Server("carrylens", instructions=ABOUT, log_level="ERROR")
    only_reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    for tool in mcp_tools.TOOLS:
        if tool is mcp_tools.figure:
            made.tool(annotations=only_reads, structured_output=False)(figure)
        else:
            made.tool(annotations=only_reads)(remote(tool))
    return made
