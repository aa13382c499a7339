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

    registry: the tools, as for a run; a list or "module:name" works as well. Tools registered later are served too.
    name: the server's name, which its clients see.
    tiers: the tiers of the tools that are served. With "sensitive" among them, asking for approval is left to the
        client.
    transport: "stdio" speaks on the process's standard streams, and sends what is printed to standard error
        meanwhile; "http" is streamable HTTP at http://host:port/mcp.
    host, port: where "http" listens. There is no authentication: whoever reaches the port can call the tools.
    deps: any value; tools find it in their `ToolContext`.

    Calls go through `registry.call`: arguments are validated, and a failure is an `isError` result. Raises ValueError
    for a transport, a tier or a port that does not exist.
    """
    if transport not in ("stdio", "http"):
        raise ValueError(f'transport must be "stdio" or "http", not {transport!r}.')
    known_tiers = get_args(Permission)
    if isinstance(tiers, str) or not set(tiers) <= set(known_tiers):
        raise ValueError(f"tiers={tiers!r} must be a list of {', '.join(known_tiers)}.")
    if not 0 <= port < 65_536:
        raise ValueError(
            f"port={port!r} is not a port. Pass a number from 0 (any free one) to 65535."
        )
    server = _server(registry_of(registry), name, tiers, deps)
    if transport == "stdio":
        return asyncio.run(_serve_streams(server))
    if host not in ("127.0.0.1", "localhost", "::1"):
        _log.warning(
            "tools are served at %s without authentication: whoever reaches port %d can call them",
            host,
            port,
        )
    app = server.streamable_http_app(host=host)
    # It writes its address to standard error.
    uvicorn.run(app, host=host, port=port, access_log=False)


async def _serve_streams(server: Server[Any]) -> None:
    async with stdio_server() as (incoming, outgoing):
        try:
            await server.run(incoming, outgoing, server.create_initialization_options())
        finally:
            # To standard error, as long as that takes the place of standard output.
            sys.stdout.flush()


def _server(
    registry: ToolRegistry, name: str, tiers: Collection[Permission], deps: Any
) -> Server[Any]:
    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        tools = registry.subset(tiers=tiers).snapshot().values()
        return types.ListToolsResult(tools=list(map(_entry, tools)))

    async def call_tool(
        context: Any, parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tools = registry.subset(tiers=tiers)
        tool = tools.get(tools.snapshot().names.get(parameters.name, ""))
        verdict = None
        # Whoever serves sensitive tools has left the approval to the client.
        if tool is not None and tool.permission == "sensitive":
            verdict = Verdict("approve")
        result = await tools.acall(
            parameters.name, parameters.arguments or {}, verdict=verdict, deps=deps
        )
        return types.CallToolResult(
            content=[types.TextContent(text=result.content)],
            structured_content=_structured_content(result),
            is_error=result.is_error,
        )

    return Server(name, on_list_tools=list_tools, on_call_tool=call_tool)


def _entry(tool: Tool) -> types.Tool:
    tier = tool.permission
    return types.Tool(
        name=tool.wire_name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=types.ToolAnnotations(
            read_only_hint=tier == "read",
            destructive_hint=tier == "sensitive" or None,
        ),
    )


def _structured_content(result: ToolResult) -> dict[str, Any] | None:
    """What the tool returned, if it is a JSON object: the protocol's versions before 2026 take nothing else."""
    is_plain = isinstance(result.value, (str, bytes, int, float, list))
    if result.is_error or result.value is None or is_plain:
        return None
    try:
        content = json.loads(render(result.value))
    except ValueError:  # it was too long, and is cut
        return None
    return content if isinstance(content, dict) else None
