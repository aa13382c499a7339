"""OpenAI Chat Completions, as two pure functions.

Spoken by OpenAI and by nearly every other server (vLLM, llama.cpp, Ollama, Mistral, DeepSeek, Gemini's
OpenAI endpoint …), each with quirks of its own. Those met in public bug reports until 2026-11 are read here.
Fields: openai-python 3.57, types/chat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.calls.parsing import parse
from toolkit.dialects import Assembly, JSONDict, JSONObject
from toolkit.dialects.shared import (
    WireNames,
    forced_tool,
    is_unmended,
    list_in_reply,
    object_at,
    without_nulls,
)
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
from toolkit.tools.tool import tool_entry

PATH = "/chat/completions"
DIALECT = "chat"
STREAM: JSONObject = {
    "stream": True,
    "stream_options": {"include_usage": True},
}

_FINISHES: dict[str, Finish] = {
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
}


def encode(request: Request) -> JSONDict:
    """The body of a request.

    `options` are further fields (temperature, max_completion_tokens …), sent as they are.
    """
    names = WireNames(request.tools)
    body: JSONDict = {
        "model": request.model,
        "messages": [
            entry
            for message in request.messages
            for entry in _entries(message, names, request.info)
        ],
        **request.options,
    }
    if not request.info.parallel_calls:
        body.setdefault("parallel_tool_calls", False)
    if not request.tools:
        # Servers refuse an empty list of tools, and fields about tools without any.
        body.pop("parallel_tool_calls", None)
        return body
    body["tools"] = [tool_entry(tool, request.info.strict) for tool in request.tools]
    forced = forced_tool(request, names)
    if forced is not None:
        body["tool_choice"] = {"type": "function", "function": {"name": forced}}
    elif request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    return body


def decode(body: JSONObject) -> Reply:
    """The reply in a response body. Raises MalformedReply if it holds none."""
    choices = list_in_reply(body, "choices")
    choice = choices[0] if choices else None
    if not isinstance(choice, Mapping):
        raise MalformedReply.told_by(body, "The server answered with no choices")
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise MalformedReply.told_by(
            body, "The server answered with a choice that has no message"
        )
    text = text_of(message.get("content"))
    finish = _FINISHES.get(str(choice.get("finish_reason")), "stop")
    refusal = message.get("refusal")
    if refusal:
        text = text or str(refusal)
        finish = "refusal"
    calls = tuple(_calls(message.get("tool_calls")))
    return Reply(
        Message("assistant", text, calls, opaque={DIALECT: message}),
        read_usage(body.get("usage"), "prompt_tokens", "completion_tokens"),
        finish,
    )


def assembly(known_names: Sequence[str]) -> Assembly:
    """An empty assembly of a streamed reply. `known_names` are the tools' names on the wire."""
    # Loaded only for a stream: `import toolkit` loads this module.
    from toolkit.dialects import chat_stream

    return chat_stream.Assembly(known_names)


def read_message(message: Any) -> Message:
    """Read one message of a Chat Completions conversation. Raises ValueError if it is not one."""
    role = message.get("role") if isinstance(message, Mapping) else None
    content = message.get("content") if role else None
    text = text_of(content)
    if role == "tool":
        result = ToolResult(message.get("tool_call_id") or "", text)
        return Message("tool", tool_results=(result,))
    if role == "assistant":
        calls = tuple(map(_with_arguments, _calls(message.get("tool_calls"))))
        return Message("assistant", text, calls, opaque={DIALECT: dict(message)})
    if role not in ("system", "developer", "user"):
        raise ValueError(f"its role is {role!r}, not system, user, assistant or tool.")
    if not isinstance(content, (str, list)):
        raise ValueError(
            f"its content is {type(content).__name__}, neither a text nor a list of parts."
        )
    return Message(
        "user" if role == "user" else "system",
        text,
        opaque={DIALECT: dict(message)},
    )


def _entries(message: Message, names: WireNames, info: ModelInfo) -> list[JSONDict]:
    """The entries of `messages` for one message: each result of a batch has an entry of its own."""
    if message.role == "tool":
        return [
            {"role": "tool", "tool_call_id": result.call_id, "content": result.content}
            for result in message.tool_results
        ]
    original = message.opaque.get(DIALECT)
    if message.role == "assistant":
        return [_assistant_entry(message, original or {}, names, info)]
    if original:
        return [dict(original)]
    return [{"role": message.role, "content": message.text}]


def _assistant_entry(
    message: Message, original: JSONObject, names: WireNames, info: ModelInfo
) -> JSONDict:
    """The message as it came, with the fields that only its provider knows.

    Among these are reasoning_content and thought signatures.
    """
    entry = without_nulls(original)
    entry["role"] = "assistant"
    if not isinstance(entry.get("content"), list):
        is_null = message.tool_calls and "refusal" not in entry and info.null_content
        entry["content"] = message.text or (None if is_null else "")
    originals = entry.pop("tool_calls", None)
    calls = message.tool_calls
    if not calls:
        return entry
    if not isinstance(originals, list) or len(originals) != len(calls):
        originals = [None] * len(calls)
    entry["tool_calls"] = [
        _call_entry(call, original_call, names)
        for call, original_call in zip(calls, originals, strict=True)
    ]
    return entry


def _call_entry(call: ToolCall, original: Any, names: WireNames) -> JSONDict:
    """The call as it came, but with the id that was made unique, and with a JSON object as arguments in any case."""
    is_object = isinstance(call.raw, str) and call.raw.lstrip()[:1] == "{"
    is_as_sent = is_object and is_unmended(call)
    extra = original if isinstance(original, Mapping) else {}
    function = {
        **object_at(extra, "function"),
        "name": names[call.name],
        "arguments": call.raw if is_as_sent else as_json(call.arguments),
    }
    return {**extra, "id": call.id, "type": "function", "function": function}


def _calls(entries: Any) -> Iterator[ToolCall]:
    """The calls of a message, with their arguments as they came."""
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        # Some servers leave out the object `function` around name and arguments.
        function = entry.get("function")
        fields = function if isinstance(function, Mapping) else entry
        call_id = "" if entry.get("id") is None else str(entry["id"])
        raw = fields.get("arguments") or ""
        yield ToolCall(call_id, text_at(fields, "name"), raw=raw)


def _with_arguments(call: ToolCall) -> ToolCall:
    parsed = parse(call.raw)
    return replace(
        call,
        arguments=parsed.arguments,
        repairs=parsed.repairs,
        problem=parsed.problem,
    )
