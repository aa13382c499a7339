"""A registry of tools, served as an MCP server over standard streams or HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Collection
from typing import Any, Literal, get_args

import uvicorn
from mcp import stdio_server, types
from mcp.server import Server

from toolkit.calls.rendering import render
from toolkit.messages import Permission, ToolResult, Verdict
from toolkit.tools.registry import ToolRegistry, ToolsGiven, registry_of
from toolkit.tools.tool import Tool

_log = logging.getLogger("toolkit")

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    registry: ToolsGiven,
    *,
    name: str = "toolkit",
    tiers: Collection[Permission] = ("read", "write"),
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: int = 8000,
    deps: Any = None,
) -> None:
    """Serve tools to MCP clients until the client leaves (stdio) or the process is stopped (http).

    registry: the tools, as for a run: a list or "module:name" serves as well. Later registrations show in it.
    name: the server's name, which it tells its clients.
    tiers: of tools that are served. With "sensitive" among them, asking for approval is left to the client.
    transport: "stdio" speaks on the process's standard streams, and sends what is printed meanwhile to standard
        error; "http" is streamable HTTP at http://host:port/mcp.
    host, port: where "http" listens. There is no authentication: whoever reaches the port can call the tools.
    deps: anything; tools find it in their `ToolContext`.

    Calls go through `registry.call`: arguments are validated, and what goes wrong is an `isError` result.
    """
    if transport not in ("stdio", "http"):
        raise ValueError(f'transport={transport!r} is neither "stdio" nor "http".')
    if isinstance(tiers, str) or (set(tiers) - set(get_args(Permission))):
        raise ValueError(
            f"tiers={tiers!r} is no list of {', '.join(get_args(Permission))}."
        )
    if not 0 <= port < 65_536:
        raise ValueError(
            f"port={port!r} is no port. Give a number from 0 (any free one) to 65535."
        )
    tools = registry_of(registry)
    server = _server(tools, name, tiers, deps)
    if transport == "stdio":
        return asyncio.run(_serve_streams(server))
    if host not in _LOOPBACK:
        _log.warning(
            "tools are served at %s without authentication: whoever reaches port %d can call them",
            host,
            port,
        )
    app = server.streamable_http_app(host=host)
    uvicorn.run(
        app, host=host, port=port, access_log=False
    )  # tells its address on standard error


async def _serve_streams(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        try:
            await server.run(incoming, outgoing, server.create_initialization_options())
        finally:
            sys.stdout.flush()  # to standard error, as long as it is in the place of standard output


def _server(
    registry: ToolRegistry, name: str, tiers: Collection[Permission], deps: Any
) -> Server[Any]:
    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        served = registry.subset(tiers=tiers).snapshot()
        return types.ListToolsResult(tools=[_listed(tool) for tool in served.values()])

    async def call_tool(
        context: Any, parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        served = registry.subset(tiers=tiers)
        tool = served.get(served.snapshot().names.get(parameters.name, ""))
        # Who asked for sensitive tools to be served has left the approval to the client.
        verdict = (
            Verdict("approve")
            if tool is not None and tool.permission == "sensitive"
            else None
        )
        result = await served.acall(
            parameters.name, parameters.arguments or {}, verdict=verdict, deps=deps
        )
        return types.CallToolResult(
            content=[types.TextContent(text=result.content)],
            structured_content=_structured(result),
            is_error=result.is_error,
        )

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)


def _listed(tool: Tool) -> types.Tool:
    tier = tool.permission
    hints = types.ToolAnnotations(
        read_only_hint=tier == "read", destructive_hint=tier == "sensitive" or None
    )
    return types.Tool(
        name=tool.wire_name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=hints,
    )


def _structured(result: ToolResult) -> dict[str, Any] | None:
    """What the tool returned, where it is an object in JSON: the protocol's versions before 2026 take nothing else."""
    if (
        result.is_error
        or result.value is None
        or isinstance(result.value, (str, bytes, int, float, list))
    ):
        return None
    try:
        plain = json.loads(render(result.value))
    except ValueError:  # it was too long, and is cut
        return None
    return plain if isinstance(plain, dict) else None
