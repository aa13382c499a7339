"""The result of a call, as a tool here returns it."""

from __future__ import annotations

from typing import Any

from mcp import types

from toolkit.errors import ToolError
from toolkit.messages import ToolReturn


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
