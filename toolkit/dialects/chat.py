"""OpenAI Chat Completions, as two pure functions.

Spoken by OpenAI and by nearly every other server (vLLM, llama.cpp, Ollama, Mistral, DeepSeek,
Gemini's OpenAI endpoint …), each with quirks of its own; those met in public bug reports until
2026-11 are read here. Fields: openai-python 3.57, types/chat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.calls.parsing import parse
from toolkit.errors import MalformedReply
from toolkit.messages import (
    Finish,
    Message,
    ModelInfo,
    Reply,
    ToolCall,
    ToolResult,
    as_json,
    read_usage,
    text_at,
    text_of,
)
from toolkit.tools.request import Request
from toolkit.tools.tool import tool_entry, wire_name

PATH = "/chat/completions"
DIALECT = "chat"
STREAM: Mapping[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

_FINISHES: dict[Any, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


def encode(request: Request) -> dict[str, Any]:
    """The body of a request. `options` are further fields (temperature, max_completion_tokens …), as they are."""
    names = {tool.name: tool.wire_name for tool in request.tools}
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            wire
            for message in request.messages
            for wire in _messages(message, names, request.info)
        ],
        **request.options,
    }
    if not request.info.parallel_calls:
        body.setdefault("parallel_tool_calls", False)
    if not request.tools:
        # Servers refuse an empty list of tools, and what speaks of tools without any.
        body.pop("parallel_tool_calls", None)
        return body
    body["tools"] = [tool_entry(tool, request.info.strict) for tool in request.tools]
    choice = request.tool_choice
    if choice in ("none", "required"):
        body["tool_choice"] = choice
    elif choice != "auto":
        function = {"name": names.get(choice, choice)}
        body["tool_choice"] = {"type": "function", "function": function}
    return body


def assembly(known_names: Sequence[str]) -> Any:
    """What puts a streamed reply together."""
    from toolkit.dialects.chat_stream import Assembly

    return Assembly(known_names)


def decode(body: Mapping[str, Any]) -> Reply:
    """The reply in a response body. Raises MalformedReply where there is none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if (
        not isinstance(choices, list)
        or not choices
        or not isinstance(choices[0], Mapping)
    ):
        raise MalformedReply.told_by(body, "The server answered with no choices")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply.told_by(
            body, "The server answered with a choice that has no message"
        )
    finish = _FINISHES.get(str(choices[0].get("finish_reason")), "stop")
    text = text_of(message.get("content"))
    if refusal := message.get("refusal"):
        text, finish = text or str(refusal), "refusal"
    calls = tuple(_calls(message.get("tool_calls")))
    usage = read_usage(body.get("usage"), "prompt_tokens", "completion_tokens")
    return Reply(
        Message("assistant", text, calls, opaque={DIALECT: message}), usage, finish
    )


def read_message(message: Any) -> Message:
    """Read one message of a Chat Completions conversation. Raises ValueError where it is none."""
    role = message.get("role") if isinstance(message, Mapping) else None
    content = message.get("content") if role else None
    if role == "tool":
        return Message(
            "tool",
            tool_results=(
                ToolResult(message.get("tool_call_id") or "", text_of(content)),
            ),
        )
    if role == "assistant":
        calls = tuple(_understood(call) for call in _calls(message.get("tool_calls")))
        return Message(
            "assistant", text_of(content), calls, opaque={DIALECT: dict(message)}
        )
    if role not in ("system", "developer", "user"):
        raise ValueError(f"its role is {role!r}, not system, user, assistant or tool.")
    if not isinstance(content, (str, list)):
        raise ValueError(
            f"its content is {type(content).__name__}, neither a text nor a list of parts."
        )
    return Message(
        "user" if role == "user" else "system",
        text_of(content),
        opaque={DIALECT: dict(message)},
    )


def _messages(
    message: Message, names: Mapping[str, str], info: ModelInfo
) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.tool_results
        ]
    said = message.opaque.get(DIALECT)
    if message.role != "assistant":
        return [dict(said) if said else {"role": message.role, "content": message.text}]
    # Back goes what came, with the fields that only its provider knows (reasoning_content, thought signatures …).
    wire: dict[str, Any] = (
        {key: value for key, value in said.items() if value is not None} if said else {}
    )
    wire["role"] = "assistant"
    if not isinstance(wire.get("content"), list):
        is_null = message.tool_calls and "refusal" not in wire and info.null_content
        wire["content"] = message.text or (None if is_null else "")
    sent, calls = wire.pop("tool_calls", None), message.tool_calls
    if calls:
        extras = (
            sent
            if isinstance(sent, list) and len(sent) == len(calls)
            else [None] * len(calls)
        )
        wire["tool_calls"] = [
            _call(call, extra, names) for call, extra in zip(calls, extras, strict=True)
        ]
    return [wire]


def _call(
    call: ToolCall, sent: Mapping[str, Any] | None, names: Mapping[str, str]
) -> dict[str, Any]:
    """A call as it came; the id as it was made unique, the arguments a JSON object whatever came."""
    name = names.get(call.name) or wire_name(call.name or "unnamed")
    is_object = isinstance(call.raw, str) and call.raw.lstrip()[:1] == "{"
    verbatim = is_object and not call.repairs and not call.problem
    function = {
        "name": name,
        "arguments": call.raw if verbatim else as_json(call.arguments),
    }
    extra = sent if isinstance(sent, Mapping) else {}
    if isinstance(inner := extra.get("function"), Mapping):
        function = {**inner, **function}
    return {**extra, "id": call.id, "type": "function", "function": function}


def _calls(sent: Any) -> Iterable[ToolCall]:
    for call in sent if isinstance(sent, list) else ():
        if not isinstance(call, Mapping):
            continue
        function = call.get("function")
        function = function if isinstance(function, Mapping) else call
        identity = "" if call.get("id") is None else str(call["id"])
        yield ToolCall(
            identity, text_at(function, "name"), raw=function.get("arguments") or ""
        )


def _understood(call: ToolCall) -> ToolCall:
    parsed = parse(call.raw)
    return ToolCall(
        call.id, call.name, parsed.arguments, call.raw, parsed.repairs, parsed.problem
    )
