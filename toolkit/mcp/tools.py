"""What a server lists and returns, as tools here and their values."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mcp import types

from toolkit.errors import ToolDefinitionError, ToolError
from toolkit.messages import Permission, ToolReturn
from toolkit.tools.tool import FunctionTool, Tool, ToolOptions

_log = logging.getLogger("toolkit")

_LONGEST_DESCRIPTION, _LONGEST_SCHEMA = 8_000, 50_000  # characters


def as_tools(
    entries: Sequence[types.Tool],
    server: str,
    call: Callable[..., Any],
    *,
    timeout: float | None,
    trusted: bool,
) -> list[Tool]:
    """The tools of the list, without those that cannot be tools here; each calls `call` with its own name."""
    own_names = {tool.name for tool in entries}
    tools = dict[str, Tool]()
    for tool in entries:
        name = _full_name(server, tool.name, own_names)
        hints = tool.annotations or types.ToolAnnotations()
        tier: Permission = "read" if trusted and hints.read_only_hint else "write"
        try:
            if name in tools:
                raise ToolDefinitionError("There is another tool of that name.")
            if len(json.dumps(tool.input_schema)) > _LONGEST_SCHEMA:
                raise ToolDefinitionError(
                    f"Its schema has more than {_LONGEST_SCHEMA:,} characters."
                )
            options = ToolOptions(
                name=name,
                description=(tool.description or "")[:_LONGEST_DESCRIPTION],
                schema=tool.input_schema,
                permission="sensitive" if hints.destructive_hint else tier,
                timeout=timeout,
            )
            tools[name] = FunctionTool(functools.partial(call, tool.name), options)
        except (ToolDefinitionError, RecursionError) as error:
            _log.warning(
                "tool %r of MCP server %r is left out: %s", tool.name, server, error
            )
    return list(tools.values())


def _full_name(server: str, tool: str, own_names: Collection[str]) -> str:
    """The name of a tool after its server's, unless it begins with that, and cannot be taken for another tool."""
    prefix, rest = tool[: len(server) + 1], tool[len(server) + 1 :]
    has_prefix = prefix in (f"{server}_", f"{server}.", f"{server}-")
    if not server or (has_prefix and rest and rest not in own_names):
        return tool
    return f"{server}_{tool}"


def value_of(result: types.CallToolResult, server: str) -> Any:
    """The text, the structured content, or both. Raises ToolError if the server reports an error."""
    text = "\n".join(map(_as_text, result.content))
    if result.is_error:
        raise ToolError(
            text.strip()
            or f"The MCP server {server!r} reports that the call failed, but not why."
        )
    if result.structured_content is None:
        return text
    if not text:
        return result.structured_content
    return ToolReturn(result.structured_content, text)


def _as_text(block: types.ContentBlock) -> str:
    """A piece of a result as text. Anything else is named, with its size: its bytes would say nothing to a model."""
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.type}: {block.mime_type}, {_size(block.data)}, not shown]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource: {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            kind = resource.mime_type or "binary"
            return (
                f"[resource: {resource.uri}, {kind}, {_size(resource.blob)}, not shown]"
            )
        case types.ResourceLink():
            parts = filter(None, [str(block.uri), block.name, block.description])
            return f"[link: {', '.join(parts)}]"
    return "[something that is not text]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
