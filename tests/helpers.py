"""What several test modules share."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from toolkit import RunResult, ToolCall, ToolRegistry
from toolkit.messages import Message, ModelInfo
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool

Runner = Callable[..., RunResult]
WIRE = Path(__file__).parent / "wire"

# Tools


def look(key: str = "") -> str:
    """Look something up."""
    return f"seen {key}"


def pay(key: str = "") -> str:
    """Pay somebody."""
    return f"paid {key}"


def forecast(place: str) -> str:
    """The weather at a place."""
    return f"sun in {place}"


def clock(zone: str = "UTC") -> str:
    """The time in a zone."""
    return f"noon {zone}"


def of(*functions: Any, **options: Any) -> ToolRegistry:
    """A registry of these functions, each registered with the same options."""
    registry = ToolRegistry()
    for function in functions:
        registry.register_tool(function, **options)
    return registry


class Till:
    """A registry with a tool of each tier, and what they did."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        self.paid: list[int] = []
        self.looked: list[str] = []
        self.tools = ToolRegistry()

        def look(what: str = "") -> str:
            self.did.append(what)
            self.looked.append(what)
            return f"seen {what}"

        def note(text: str) -> str:
            self.did.append(text)
            return f"noted {text}"

        def pay(sum: int) -> str:
            self.did.append(sum)
            self.paid.append(sum)
            return f"paid {sum}"

        self.tools.register_tool(look, permission="read")
        self.tools.register_tool(note, permission="write", tags=["paper"])
        self.tools.register_tool(pay, permission="sensitive", tags=["money"])


# Calls and requests


def ask(name: str, id: str = "", **arguments: Any) -> ToolCall:
    """A call as a script writes it; its id is the name of the tool unless another one is given."""
    return ToolCall(id or name, name, arguments)


async def approve_later(call: ToolCall) -> str:
    await asyncio.sleep(0)
    return "approve"


def encode(
    dialect: ModuleType,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (),
    *,
    strict: bool = False,
    structured: bool = False,
    **fields: Any,
) -> Any:
    """The body that a dialect makes of a request to the model "m"."""
    info = ModelInfo(strict=strict, structured_output=structured)
    request = Request(list(messages), list(tools), model="m", info=info, **fields)
    return dialect.encode(request)


def recorded(name: str) -> dict[str, Any]:
    """What a server really sent, from wire/."""
    return dict(json.loads((WIRE / f"{name}.json").read_text(encoding="utf-8")))


# Schemas


def array(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def either(*members: Any, **more: Any) -> dict[str, Any]:
    return {"anyOf": [*members], **more}


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


# Drivers and waiting


def in_loop(function: Callable[..., Any]) -> Runner:
    """An async function as a plain one: each call has an event loop of its own."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        return asyncio.run(function(*arguments, **options))

    return run


def wait_until(condition: Callable[[], Any]) -> None:
    """Loosely: it holds in a fraction of a second, or never."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
