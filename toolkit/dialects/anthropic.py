"""Anthropic Messages, as two pure functions.

Spoken by Anthropic and, in part, by other servers (llama.cpp, gateways). Fields: anthropic-python 2.14, types. Rules:
what the API refuses under version 2026-10-21, which that SDK sends, and as quoted in public bug reports until 2026-11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.anthropic_stream import Assembly
from toolkit.dialects.shared import (
    OPENING,
    WireNames,
    forced_tool,
    is_unmended,
    list_in_reply,
)
from toolkit.messages import (
    Finish,
    Message,
    Reply,
    ToolCall,
    ToolResult,
    Usage,
    text_at,
    token_count,
)
from toolkit.tools.json_schema import is_recursive, rewrite, subschemas
from toolkit.tools.request import Request
from toolkit.tools.tool import wire_name

PATH = "/v1/messages"
DIALECT = "anthropic"
STREAM: JSONObject = {"stream": True}

MAX_TOKENS = 16_000
"""The `max_tokens` of a request that does not set it, as the API requires one; a thinking budget comes on top.

Models since 2025 can give as many, and the SDK considers it safe to wait for up to 21,333 without a stream.
"""

_FINISHES: dict[str, Finish] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    # The server stopped during its own tools, and goes on when its message is sent back.
    "pause_turn": "pause",
}
_THINKING = ("thinking", "redacted_thinking")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")

# Strict mode (guide "Structured outputs", as quoted until 2026-08) refuses these keywords, `minItems` over 1 and
# recursion, and takes `pattern` only in part. Its limits hold for all strict tools of a request together.
_REFUSED_KEYWORDS = {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "maxItems",
    "pattern",
}
_MAX_STRICT_TOOLS = 20
_MAX_UNIONS = 16


def encode(request: Request) -> JSONDict:
    """The body of a request. `options` are further fields (max_tokens, thinking, metadata …), sent as they are.

    Two of them are ours: `parallel_tool_calls=False` goes into the tool choice, `cache=True` marks the last tool and
    the system text for the prompt cache. `tools` among them are the server's own, and come before the request's tools.
    Thinking is left out of a request that the API would refuse for it: one that forces a call, and, if it is
    "enabled", one that answers calls which were made without it.
    """
    fields = dict(request.options)
    names = WireNames(request.tools)
    is_cached = fields.pop("cache", False)
    cache_mark = {"cache_control": {"type": "ephemeral"}} if is_cached else {}
    max_tokens = MAX_TOKENS + token_count(fields.get("thinking"), "budget_tokens")
    body: JSONDict = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": _conversation(request.messages, names),
    }
    system = _system_text(request.messages)
    if system:
        block = {**_text_block(system), **cache_mark}
        body["system"] = [block] if is_cached else system

    parallel = fields.pop("parallel_tool_calls", request.info.parallel_calls)
    server_tools = fields.pop("tools", None) or ()
    tools = [*server_tools, *_tool_entries(request)]
    body.update(fields)
    if tools:
        tools[-1] = {**tools[-1], **cache_mark}
        body["tools"] = tools
        forced = forced_tool(request, names)
        body["tool_choice"] = {"type": _CHOICES.get(request.tool_choice, "tool")}
        if forced is not None:
            body["tool_choice"]["name"] = forced
        if parallel is False and request.tool_choice != "none":
            body["tool_choice"]["disable_parallel_tool_use"] = True
    if _is_thinking_refused(body):
        # Not set to "disabled": models that always think refuse that, and may be forced all the same.
        del body["thinking"]
    return body


def decode(body: JSONObject) -> Reply:
    """The reply in a response body. Raises MalformedReply if it holds none.

    Its usage counts all input tokens; the API counts those read from and written to the cache apart.
    """
    content = list_in_reply(body, "content")
    blocks = [block for block in content if _is_block(block)]
    finish = _FINISHES.get(text_at(body, "stop_reason"), "stop")
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    if finish == "length" and blocks and blocks[-1]["type"] == "tool_use":
        # The output limit cut this call off, and its complete members come as if they were all of them.
        # Cut the text too, or the call would run.
        raw = calls[-1].raw.rstrip().removesuffix("}") or "{"
        calls[-1] = replace(calls[-1], raw=raw)
    if finish == "refusal":
        # It takes back what came before it: none of its calls is made.
        calls = []
        text = text or text_at(body.get("stop_details"), "explanation")
    message = Message("assistant", text, tuple(calls), opaque={DIALECT: blocks})
    return Reply(message, _usage(body.get("usage")), finish)


def assembly(known_names: Sequence[str]) -> Assembly:
    """An empty assembly of a streamed reply. This wire needs no names for it."""
    return Assembly()


# The conversation


def _system_text(messages: Iterable[Message]) -> str:
    texts = [message.text for message in messages if message.role == "system"]
    return "\n\n".join(text for text in texts if text.strip())


def _conversation(messages: Iterable[Message], names: WireNames) -> list[JSONDict]:
    """Messages whose roles alternate: what the user says after results joins their message, behind them."""
    entries: list[JSONDict] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, names)
        if not blocks:
            continue
        if not entries and role == "assistant":
            # Refused unless the user has the first word.
            entries.append({"role": "user", "content": [_text_block(OPENING)]})
        if entries and entries[-1]["role"] == role:
            entries[-1]["content"] += blocks
        else:
            entries.append({"role": role, "content": blocks})
    return entries


def _blocks(message: Message, names: WireNames) -> list[JSONDict]:
    """The content of a message, in a list of its own: as it came, if it came from this wire."""
    if message.role == "system":
        return []
    if message.role == "tool":
        return [_result_block(result) for result in message.tool_results]
    original = message.opaque.get(DIALECT, [_text_block(message.text)])
    blocks = [
        block for block in original if block["type"] != "text" or block["text"].strip()
    ]
    if message.role == "user":
        return blocks
    calls = message.tool_calls
    if sum(block["type"] == "tool_use" for block in blocks) != len(calls):
        blocks = [block for block in blocks if block["type"] != "tool_use"]
        blocks += [_call_block(call, {}, names) for call in calls]
    else:
        next_calls = iter(calls)
        blocks = [
            _call_block(next(next_calls), block, names)
            if block["type"] == "tool_use"
            else block
            for block in blocks
        ]
    # Refused at the end of a message.
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    return blocks


def _text_block(text: str) -> JSONDict:
    return {"type": "text", "text": text}


def _call_block(call: ToolCall, original: JSONObject, names: WireNames) -> JSONDict:
    """The call as it came, but with the id that was made unique, and with an object as input in any case."""
    own_input = original.get("input")
    is_as_sent = isinstance(own_input, dict) and is_unmended(call)
    return {
        **original,
        "type": "tool_use",
        "id": _legal_id(call.id),
        "name": names[call.name],
        "input": own_input if is_as_sent else dict(call.arguments),
    }


def _result_block(result: ToolResult) -> JSONDict:
    block: JSONDict = {
        "type": "tool_result",
        "tool_use_id": _legal_id(result.call_id),
    }
    # An error without content is refused, as is a blank text; a success may leave its content out.
    if result.content.strip():
        block["content"] = result.content
    elif result.is_error:
        block["content"] = "The tool failed."
    if result.is_error:
        block["is_error"] = True
    return block


def _legal_id(call_id: str) -> str:
    """The id; an alias for one from another wire, if it has characters which this wire refuses."""
    return call_id if _LEGAL_ID.fullmatch(call_id) else wire_name(call_id, unique=True)


# The tools


def _is_thinking_refused(body: JSONDict) -> bool:
    """Whether the request forces a call, or answers calls that were made without thinking."""
    match body:
        case {
            "thinking": {"type": "enabled" | "adaptive"},
            "tool_choice": {"type": "any" | "tool"},
        }:
            return True
        case {
            "thinking": {"type": "enabled"},
            "messages": [*_, {"content": [reply, *_]}, {"content": [answer, *_]}],
        }:
            return answer["type"] == "tool_result" and reply["type"] not in _THINKING
    return False


def _tool_entries(request: Request) -> list[JSONDict]:
    """The tools as the API takes them.

    Beyond the limits of strict mode they go without it, or all would be refused.
    """
    entries: list[JSONDict] = []
    strict_tools = unions = 0
    for tool in request.tools:
        entry: JSONDict = {"name": tool.wire_name}
        if tool.description:
            entry["description"] = tool.description
        entry["input_schema"] = tool.parameters
        entries.append(entry)
        is_wanted = request.info.strict if tool.strict is None else tool.strict
        if not is_wanted or strict_tools == _MAX_STRICT_TOOLS:
            continue
        schema = tool.strict_parameters
        if schema is None or is_recursive(schema):
            continue
        own_unions = sum(
            "anyOf" in part or isinstance(part.get("type"), list)
            for part in subschemas(schema)
        )
        if unions + own_unions <= _MAX_UNIONS:
            strict_tools += 1
            unions += own_unions
            entry["input_schema"] = rewrite(schema, _without_refused_keywords)
            entry["strict"] = True
    return entries


def _without_refused_keywords(schema: JSONDict) -> JSONDict:
    """The schema with the keywords that strict mode refuses moved into its description."""
    keywords = schema.keys() & _REFUSED_KEYWORDS
    if schema.get("minItems", 0) not in (0, 1):
        keywords.add("minItems")
    if keywords:
        notes = [f"{key}: {schema.pop(key)}" for key in [*schema] if key in keywords]
        description = schema.get("description", "")
        schema["description"] = f"{description} ({'; '.join(notes)})".lstrip()
    return schema


# The reply


def _is_block(block: Any) -> bool:
    """Whether it can be read and sent back."""
    kind = text_at(block, "type")
    if kind == "text":
        return isinstance(block.get("text"), str)
    return kind != ""


def _call(block: JSONObject) -> ToolCall:
    raw = block.get("input")
    if not isinstance(raw, str):
        raw = json.dumps({} if raw is None else raw, ensure_ascii=False)
    return ToolCall(text_at(block, "id"), text_at(block, "name"), raw=raw)


def _usage(usage: Any) -> Usage:
    uncached = token_count(usage, "input_tokens")
    written = token_count(usage, "cache_creation_input_tokens")
    read = token_count(usage, "cache_read_input_tokens")
    return Usage(
        uncached + written + read,
        token_count(usage, "output_tokens"),
        read,
        token_count(usage, "output_tokens_details", "thinking_tokens"),
    )
