"""The public code in the form that outside conformance runners call: one function for each kind of case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolkit import (
    Model,
    ModelInfo,
    RunResult,
    ToolRegistry,
    arun_agent_with_tools,
    run_agent_with_tools,
)
from toolkit.calls.parsing import parse
from toolkit.dialects.chat_stream import Assembly
from toolkit.dialects.leaked import read_text
from toolkit.dialects.react_text import read_react
from toolkit.tools.strict import strict_form

__all__ = ["arguments", "loop", "schema", "stream", "strict", "text", "wire"]


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """A callable as its Chat Completions entry."""
    registry = ToolRegistry([function])
    return registry.schemas()[0]


def strict(given: dict[str, Any]) -> dict[str, Any]:
    """A JSON Schema in strict form."""
    return strict_form(given)


class Refused(Exception):
    """The error text that a model would have read."""


def arguments(function: Callable[..., Any], raw: Any) -> dict[str, Any]:
    """The keyword arguments that a tool is called with, or Refused."""
    got: dict[str, Any] = {}
    registry = ToolRegistry()
    made = registry.register_tool(function)
    made.call = lambda values, context: got.update(values)  # type: ignore[method-assign]
    result = registry.call(made.name, raw)
    if result.is_error:
        raise Refused(result.content)
    return got


def loop(
    base_url: str,
    api_key: str,
    model: str,
    tools: list[Any],
    system: str | None,
    user: str,
    max_turns: int,
) -> str:
    """The final text; raises where a run ended without one."""
    result = run_agent_with_tools(
        user,
        model=model,
        base_url=base_url,
        api_key=api_key,
        tools=tools,
        instructions=system,
        max_turns=max_turns,
    )
    if result.stop_reason != "max_turns" or not result.text:
        result.raise_for_stop()
    return result.text


def text(
    raw: str,
    tools: list[dict[str, Any]],
    family: str,
    format: str,
    reasoning_prefilled: bool,
) -> dict[str, Any]:
    """The calls in a raw text. ReAct's final answer belongs to its own wire, so the family counts there."""
    known = {
        entry["function"]["name"]: entry["function"].get("parameters", {})
        for entry in tools
    }
    read = read_text(raw, known, reasoning_prefilled=reasoning_prefilled)
    calls = []
    for name, given in read.calls:
        calls.append(
            {
                "name": name,
                "arguments": parse(given).arguments
                if isinstance(given, str)
                else given,
            }
        )
    content, reasoning = read.text, read.reasoning
    if family == "react" and not calls:
        step = read_react(raw)
        content, reasoning = step.answer or content, step.thought or reasoning
    return {"calls": calls, "content": content or None, "reasoning": reasoning or None}


def stream(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Chat Completions chunks as the message that they make."""
    assembly = Assembly()
    for chunk in chunks:
        assembly.add(chunk)
    choice = assembly.body()["choices"][0]
    calls = [
        {"id": call.get("id"), **call["function"]}
        for call in choice["message"].get("tool_calls") or []
    ]
    return {
        "content": choice["message"].get("content"),
        "tool_calls": [
            {key: call.get(key) for key in ("id", "name", "arguments")}
            for call in calls
        ],
        "finish_reason": choice.get("finish_reason"),
    }


def wire(
    wire: str, base_url: str, api_key: str, model: str, *, tools: list[Any], prompt: str,
    stream: bool, asynchronous: bool, max_turns: int, options: dict[str, Any],
) -> Any:  # fmt: skip
    """One play against a strict scripted server."""
    choice = options.get("tool_choice", "auto")
    info = ModelInfo(strict=options.get("strict", False))
    name = "chat" if wire == "local" else wire
    shown: list[str] = []
    asked: dict[str, Any] = {
        "model": Model(model, wire=name, base_url=base_url, api_key=api_key, info=info),
        "tools": tools,
        "instructions": options.get("system"),
        "max_turns": max_turns,
        "tool_choice": choice["name"] if isinstance(choice, dict) else choice,
        "on_text": shown.append if stream else None,
        **{
            key: options[key]
            for key in ("parallel_tool_calls", "store", "previous_response_id")
            if key in options
        },
    }
    if "store" in asked:
        asked["extra_body"] = {"store": asked.pop("store")}
    if options.get("reasoning") and wire == "responses":
        asked["reasoning"] = {"summary": "auto"}
    elif options.get("reasoning") and wire == "anthropic":
        budget = {"type": "enabled", "budget_tokens": 2048}
        asked["thinking"] = budget if "haiku-4-5" in model else {"type": "adaptive"}
    if not asynchronous:
        return _told(run_agent_with_tools(prompt, **asked))

    async def run() -> dict[str, Any]:
        return _told(await arun_agent_with_tools(prompt, **asked))

    return run()


def _told(result: RunResult) -> dict[str, Any]:
    calls = [
        {"name": call.name, "arguments": dict(call.arguments)} for call in result.calls
    ]
    return {
        "text": result.text,
        "calls": calls,
        "stop_reason": _WORDS.get(result.stop_reason, result.stop_reason),
    }


_WORDS = {
    "answered": "stop",
    "truncated": "length",
    "refused": "refusal",
    "max_turns": "max_turns",
}
