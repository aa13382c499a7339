"""OpenAI Chat Completions, as two pure functions.

Spoken by OpenAI and by nearly every other server (vLLM, llama.cpp, Ollama, Mistral, DeepSeek,
Gemini's OpenAI endpoint …), each with quirks of its own; those met in public bug reports until
2026-11 are read here. Fields: openai-python 3.57, types/chat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.arguments import parse
from toolkit.errors import MalformedReply
from toolkit.messages import Finish, Message, Reply, ToolCall, ToolResult, Usage, as_json, token_count
from toolkit.tools import Tool, tool_entry, wire_name

PATH = "/chat/completions"
DIALECT = "chat"
STREAM = {"stream": True, "stream_options": {"include_usage": True}}

_FINISHES: dict[Any, Finish] = {"length": "length", "max_tokens": "length", "content_filter": "refusal"}
_ONLY_WITH_TOOLS = ("parallel_tool_calls",)


def encode(
    messages: Iterable[Message],
    tools: Sequence[Tool],
    *,
    model: str,
    tool_choice: str = "auto",
    strict: bool = False,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of a request. `options` are further fields (temperature, max_completion_tokens …), as they are."""
    names = {tool.name: tool.wire_name for tool in tools}
    body: dict[str, Any] = {"model": model, "messages": [w for m in messages for w in _messages(m, names)]}
    body.update(options or {})
    if tools:
        body["tools"] = [tool_entry(tool, strict) for tool in tools]
        if tool_choice in ("none", "required"):
            body["tool_choice"] = tool_choice
        elif tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": names.get(tool_choice, tool_choice)}}
    else:  # servers refuse an empty list of tools, and what speaks of tools without any
        for key in _ONLY_WITH_TOOLS:
            body.pop(key, None)
    return body


def assembly(known_names: Sequence[str]) -> Any:
    """What puts a streamed reply together."""
    from toolkit.dialects.chat_stream import Assembly

    return Assembly(known_names)


def decode(body: Mapping[str, Any]) -> Reply:
    """The reply in a response body. Raises MalformedReply where there is none."""
    choices = body.get("choices") if isinstance(body, Mapping) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedReply.told_by(body, "The server answered with no choices")
    message = choices[0].get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply.told_by(body, "The server answered with a choice that has no message")
    finish = _FINISHES.get(str(choices[0].get("finish_reason")), "stop")
    text = _text(message.get("content"))
    if refusal := message.get("refusal"):
        text, finish = text or str(refusal), "refusal"
    calls = tuple(_calls(message.get("tool_calls")))
    return Reply(Message("assistant", text, calls, opaque={DIALECT: message}), _usage(body.get("usage")), finish)


def read_message(message: Any) -> Message:
    """Read one message of a Chat Completions conversation. Raises ValueError where it is none."""
    role = message.get("role") if isinstance(message, Mapping) else None
    content = message.get("content") if role else None
    if role == "tool":
        return Message("tool", tool_results=(ToolResult(message.get("tool_call_id") or "", _text(content)),))
    if role == "assistant":
        calls = tuple(_understood(call) for call in _calls(message.get("tool_calls")))
        return Message("assistant", _text(content), calls, opaque={DIALECT: dict(message)})
    if role not in ("system", "developer", "user"):
        raise ValueError(f"its role is {role!r}, not system, user, assistant or tool.")
    if not isinstance(content, (str, list)):
        raise ValueError(f"its content is {type(content).__name__}, neither a text nor a list of parts.")
    return Message("user" if role == "user" else "system", _text(content), opaque={DIALECT: dict(message)})


def _messages(message: Message, names: Mapping[str, str]) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.tool_results
        ]
    said = message.opaque.get(DIALECT)
    if message.role != "assistant":
        return [dict(said) if said else {"role": message.role, "content": message.text}]
    # Back goes what came, with the fields that only its provider knows (reasoning_content, thought signatures …).
    wire: dict[str, Any] = {key: value for key, value in said.items() if value is not None} if said else {}
    wire["role"] = "assistant"
    if not said or not isinstance(wire.get("content"), list):
        wire["content"] = message.text or (None if message.tool_calls else "")
    if "refusal" in wire and wire["content"] is None:
        wire["content"] = ""
    wire.pop("tool_calls", None)
    if message.tool_calls:
        sent = said.get("tool_calls") if said else None
        extras = (
            sent
            if isinstance(sent, list) and len(sent) == len(message.tool_calls)
            else [None] * len(message.tool_calls)
        )
        wire["tool_calls"] = [_call(call, extra, names) for call, extra in zip(message.tool_calls, extras, strict=True)]
    return [wire]


def _call(call: ToolCall, sent: Mapping[str, Any] | None, names: Mapping[str, str]) -> dict[str, Any]:
    """A call as it came; the id as it was made unique, the arguments a JSON object whatever came."""
    name = names.get(call.name) or wire_name(call.name or "unnamed")
    is_object = isinstance(call.raw, str) and call.raw.lstrip()[:1] == "{"
    verbatim = is_object and not call.repairs and not call.problem
    function = {"name": name, "arguments": call.raw if verbatim else as_json(call.arguments)}
    if isinstance(sent, Mapping):
        inner = sent.get("function")
        function = {**inner, **function} if isinstance(inner, Mapping) else function
        return {**sent, "id": call.id, "type": "function", "function": function}
    return {"id": call.id, "type": "function", "function": function}


def _calls(sent: Any) -> Iterable[ToolCall]:
    for call in sent if isinstance(sent, list) else ():
        if not isinstance(call, Mapping):
            continue
        function = call.get("function")
        function = function if isinstance(function, Mapping) else call
        identity = call.get("id")
        name = function.get("name")
        yield ToolCall(
            identity if isinstance(identity, str) else "" if identity is None else str(identity),
            name if isinstance(name, str) else "",
            raw=function.get("arguments") or "",
        )


def _understood(call: ToolCall) -> ToolCall:
    parsed = parse(call.raw)
    return ToolCall(call.id, call.name, parsed.arguments, call.raw, parsed.repairs, parsed.problem)


def _text(content: Any) -> str:
    """The text of a content, which is a string, a list of parts, or missing."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _usage(usage: Any) -> Usage:
    return Usage(
        token_count(usage, "prompt_tokens"),
        token_count(usage, "completion_tokens"),
        token_count(usage, "prompt_tokens_details", "cached_tokens"),
        token_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )
