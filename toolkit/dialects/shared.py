"""What several wires need: the names of a request's tools, the tool that it forces, careful looks into JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolkit.dialects import JSONDict, JSONObject
from toolkit.errors import MalformedReply
from toolkit.messages import ToolCall
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool, wire_name

OPENING = "(The conversation begins.)"
"""A first word of the user, for wires that refuse a conversation in which the model speaks first."""


class WireNames(dict[str, str]):
    """The name of each tool on the wire, by the tool's own name.

    A name of no tool, as in an earlier call of a tool that is no longer offered, gets an alias that every wire takes.
    """

    def __init__(self, tools: Iterable[Tool]) -> None:
        super().__init__((tool.name, tool.wire_name) for tool in tools)

    def __missing__(self, name: str) -> str:
        return wire_name(name or "unnamed")


def forced_tool(request: Request, names: WireNames) -> str | None:
    """The wire name of the tool that a request forces; None if it forces no tool by name."""
    choice = request.tool_choice
    if choice in ("auto", "none", "required"):
        return None
    return names.get(choice, choice)


def is_unmended(call: ToolCall) -> bool:
    """True if the arguments were read as they came, so that they can go back as they came."""
    return not call.repairs and not call.problem


def without_nulls(fields: JSONObject) -> JSONDict:
    """A copy of an object without the keys whose value is null: what says nothing is not sent back."""
    return {key: value for key, value in fields.items() if value is not None}


def object_at(fields: JSONObject, key: str) -> JSONObject:
    """The object under a key, {} if there is none."""
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def list_in_reply(body: Any, key: str) -> list[Any]:
    """The list under a key of a response body. Raises MalformedReply if there is none."""
    value = body.get(key) if isinstance(body, Mapping) else None
    if not isinstance(value, list):
        raise MalformedReply.told_by(body, f"The server answered with no {key}")
    return value
