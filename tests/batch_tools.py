"""Tools and a model that other processes find by their module."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from toolkit import Message, ScriptedModel, ToolCall, tool
from toolkit.tools.registry import ToolRegistry
from toolkit.tools.request import Request

TOOLS = ToolRegistry()


@tool(registry=TOOLS)
def append(path: str, line: str, seconds: float = 0.0) -> str:
    """Append a line to a file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    time.sleep(seconds)
    return f"appended {line}"


@tool(registry=TOOLS)
def die_once(path: str) -> str:
    """End this process, the first time."""
    Path(path).touch(exist_ok=False)
    os.kill(os.getpid(), 9)
    return "still here"


def answer(request: Request) -> Any:
    """Do what the prompt says ("append PATH LINE SECONDS", "die PATH", "fail", or anything), then tell the result."""
    *_, last = request.messages
    if isinstance(last, Message) and last.tool_results:
        return last.tool_results[0].content
    match last.text.split():
        case ["append", path, line, seconds]:
            return ToolCall(
                "a", "append", {"path": path, "line": line, "seconds": float(seconds)}
            )
        case ["die", path]:
            return ToolCall("d", "die_once", {"path": path})
        case ["fail"]:
            raise RuntimeError("the model is out")
    return f"you said {last.text}"


MODEL = ScriptedModel(answer)


def count(request: Request) -> Any:
    """Answer with how long the prompt is."""
    return ToolCall("f", "final_answer", {"answer": len(request.messages[-1].text)})


COUNTING = ScriptedModel(count)
