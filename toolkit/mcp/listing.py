"""The list of a server's tools: what might be malformed is taken out, and the rest becomes tools here."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

from mcp import types

from toolkit.errors import ToolDefinitionError
from toolkit.messages import Permission, whole_characters
from toolkit.tools.json_schema import rewrite
from toolkit.tools.tool import FunctionTool, Tool, ToolOptions

_log = logging.getLogger("toolkit")

_LONGEST_DESCRIPTION, _LONGEST_SCHEMA = 8_000, 50_000  # characters
_HINTS = ("readOnlyHint", "destructiveHint")
_FIELDS = {
    "name": str,
    "description": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
}
"""The fields of a tool that are used here."""


def as_tools(
    listed: Sequence[types.Tool],
    server: str,
    call: Callable[..., Any],
    *,
    timeout: float | None,
    trusted: bool,
) -> list[Tool]:
    """The tools of the list, without those that cannot be tools here; each calls `call` with its own name."""
    own_names = {tool.name for tool in listed}
    tools = dict[str, Tool]()
    for tool in listed:
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


def clean_tool(listed: Any, server: str) -> dict[str, Any] | None:
    """A tool of a raw list without what might be malformed and is not used here. None for one that is of no use."""
    fields = whole_characters(listed) if isinstance(listed, dict) else {}
    tool: dict[str, Any] = {
        key: fields[key]
        for key, kind in _FIELDS.items()
        if isinstance(fields.get(key), kind)
    }
    schema = tool.get("inputSchema", {"type": "missing"})
    is_object = schema.get("type", "object") in ("object", ["object"])
    if not tool.get("name", "").strip() or not is_object:
        _log.warning(
            "a tool of MCP server %r is left out, because it has no name or no schema: %.200r",
            server,
            listed,
        )
        return None
    schema = {key: value for key, value in schema.items() if value is not None}
    tool["inputSchema"] = _without_patterns({**schema, "type": "object"})
    output_schema = tool.pop("outputSchema", {})
    if output_schema.get("type") == "object":
        tool["outputSchema"] = _without_patterns(output_schema)
    hints = tool.get("annotations", {})
    tool["annotations"] = {
        key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)
    }
    return tool


def _without_patterns(schema: dict[str, Any]) -> Any:
    """The schema with its regular expressions only described: often they are JavaScript's, and some take for ever."""
    return rewrite(schema, _without_pattern)


def _without_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    if "pattern" in schema:
        pattern, description = schema.pop("pattern"), schema.get("description", "")
        schema["description"] = f"{description} (pattern: {pattern})".strip()
    if schema.pop("patternProperties", None) is not None:
        schema["additionalProperties"] = True
    return schema
