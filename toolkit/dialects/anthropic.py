"""Anthropic Messages, as two pure functions and one for stream events.

Spoken by Anthropic and, in part, by other servers (llama.cpp, gateways). Fields: anthropic-python 2.14, types. Rules:
what the API refuses under version 2026-10-21, which that SDK sends, and as quoted in public bug reports until 2026-11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.errors import MalformedReply
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
from toolkit.tools.json_schema import is_recursive
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool, wire_name

PATH = "/v1/messages"
DIALECT = "anthropic"
STREAM: Mapping[str, Any] = {"stream": True}

MAX_TOKENS = 16_000
"""What `max_tokens`, which the API requires, is where nobody gives it; a thinking budget comes on top.

Models since 2025 can give as many, and up to 21,333 the SDK thinks it safe to wait for without a stream.
"""

Block = dict[str, Any]
_Part = tuple[
    Any, Block, list[str]
]  # the index of a block, how it began, and the pieces that came since

_CUT = ("max_tokens", "model_context_window_exceeded")
# pause_turn: the server stopped amid its own tools, and goes on when it is sent back what there is.
_FINISHES: dict[str, Finish] = {
    "refusal": "refusal",
    "pause_turn": "pause",
    **dict.fromkeys(_CUT, "length"),
}
_THINKING = ("thinking", "redacted_thinking")
_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_OPENING: Block = {
    "role": "user",
    "content": [{"type": "text", "text": "(The conversation begins.)"}],
}
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+")

# Strict mode (guide "Structured outputs", as quoted until 2026-08) refuses these keywords, `minItems` over 1 and
# recursion, and takes `pattern` only in part. Its limits hold for all strict tools of a request together.
_REFUSED = {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "maxItems",
    "pattern",
}
_MAX_STRICT_TOOLS, _MAX_UNIONS = 20, 16


def encode(request: Request) -> dict[str, Any]:
    """The body of a request. `options` are further fields (max_tokens, thinking, metadata …), as they are.

    Two of them are ours: `parallel_tool_calls=False` goes into the tool choice, `cache=True` marks the last tool and
    the system text for the prompt cache. `tools` among them are the server's own, and come before the given ones.
    Thinking is left out of a request that the API would refuse for it: one that forces a call, and, where it is
    "enabled", one that answers calls which were made without it.
    """
    fields, messages = dict(request.options), list(request.messages)
    cache = (
        {"cache_control": {"type": "ephemeral"}} if fields.pop("cache", False) else {}
    )
    if not request.info.parallel_calls:
        fields.setdefault("parallel_tool_calls", False)
    one_call = fields.pop("parallel_tool_calls", None) is False
    names = {tool.name: tool.wire_name for tool in request.tools}
    max_tokens = MAX_TOKENS + token_count(fields.get("thinking"), "budget_tokens")
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": _conversation(messages, names),
    }
    if system := "\n\n".join(
        m.text for m in messages if m.role == "system" and m.text.strip()
    ):
        body["system"] = (
            [{"type": "text", "text": system, **cache}] if cache else system
        )
    entries = [
        *(fields.pop("tools", None) or ()),
        *_tool_entries(request.tools, request.info.strict),
    ]
    body.update(fields)
    if entries:
        body["tools"] = [*entries[:-1], {**entries[-1], **cache}]
        body["tool_choice"] = _tool_choice(request.tool_choice, one_call, names)
    if _is_thinking_refused(body):
        del body["thinking"]
    return body


def decode(body: Mapping[str, Any]) -> Reply:
    """The reply in a response body. Raises MalformedReply where there is none.

    Its usage counts all input tokens; the API counts those read from and written to the cache apart.
    """
    content = body.get("content") if isinstance(body, Mapping) else None
    if not isinstance(content, list):
        raise MalformedReply.told_by(body, "The server answered with no content")
    blocks = [block for block in content if _is_block(block)]
    reason = body.get("stop_reason")
    finish = _FINISHES.get(reason, "stop") if isinstance(reason, str) else "stop"
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [_call(block) for block in blocks if block["type"] == "tool_use"]
    if calls and reason in _CUT and blocks[-1]["type"] == "tool_use":
        # The members that were whole come as if they were all of them. Cut it for the reader too, or it would run.
        calls[-1] = replace(
            calls[-1], raw=calls[-1].raw.rstrip().removesuffix("}") or "{"
        )
    if finish == "refusal":  # it takes back what came before it: no call of it is made
        calls = []
        match body.get("stop_details"):
            case {"explanation": str(explanation)}:
                text = text or explanation
    return Reply(
        Message("assistant", text, tuple(calls), opaque={DIALECT: blocks}),
        _usage(body.get("usage")),
        finish,
    )


def assembly(known_names: Sequence[str]) -> Assembly:
    """What puts a streamed reply together; this wire needs no names for it."""
    return Assembly()


class Assembly:
    """A streamed reply, put together from its events: `decode(assembly.body())` is the reply as without a stream."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._parts: list[_Part] = []

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take in one event; return the text that it made visible. Raises MalformedReply for an error event."""
        match chunk:
            case {"type": "content_block_delta", "delta": {"type": str(kind)} as delta}:
                return _grow(self._part(chunk.get("index"), kind), delta)
            case {
                "type": "content_block_start",
                "content_block": {"type": str(kind)} as start,
            }:
                _, _, pieces = self._begin(chunk.get("index"), start)
                return "".join(pieces) if kind == "text" else ""
            case {"type": "message_start", "message": {} as told} | {
                "type": "message_delta",
                "delta": {} as told,
            }:
                self._note({"usage": chunk.get("usage"), **told})
            case {"type": "message_stop"}:
                self._head.setdefault("stop_reason", "end_turn")
            case {"type": "error"} | {"error": {} | str()}:
                raise MalformedReply.told_by(
                    chunk, "The server broke off with an error"
                )
        return ""

    def body(self) -> dict[str, Any]:
        """The response body. Raises MalformedReply where the stream broke off before its end."""
        if "stop_reason" not in self._head:
            raise MalformedReply(
                "The stream ended early: its closing events are missing."
            )
        return {
            **self._head,
            "content": [_whole(part) for part in self._parts],
            "usage": dict(self._usage),
        }

    def _note(self, told: Mapping[str, Any]) -> None:
        """Null tells nothing. Counts are totals so far, so that a later one replaces an earlier."""
        self._head.update(
            (key, value)
            for key, value in told.items()
            if value is not None and key != "usage"
        )
        if isinstance(usage := told.get("usage"), Mapping):
            self._usage.update(
                (key, value) for key, value in usage.items() if value is not None
            )

    def _part(self, index: Any, kind: str) -> _Part:
        for part in reversed(self._parts):
            if index is None or part[0] == index:
                return part
        if kind in ("text_delta", "thinking_delta"):  # its start was left out
            return self._begin(index, {"type": kind.removesuffix("_delta")})
        return (index, {}, [])

    def _begin(self, index: Any, start: Mapping[str, Any]) -> _Part:
        first = start.get(start["type"])
        block = {key: value for key, value in start.items() if value is not None}
        part: _Part = (index, block, [first] if isinstance(first, str) else [])
        self._parts.append(part)
        return part


def _grow(part: _Part, delta: Mapping[str, Any]) -> str:
    _, block, pieces = part
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            pieces.append(text)
            return text
        case {"thinking": str(piece)} | {"partial_json": str(piece)}:
            pieces.append(piece)
        case {"signature": str(signature)}:
            block["signature"] = signature
        case {"citation": citation} if isinstance(
            block.setdefault("citations", []), list
        ):
            block["citations"].append(citation)
    return ""


def _whole(part: _Part) -> Block:
    _, block, pieces = part
    kind, grown = block["type"], "".join(pieces)
    if kind in ("text", "thinking"):
        return {**block, kind: grown}
    return {**block, "input": _object_or_text(grown)} if grown.strip() else block


def _conversation(messages: Iterable[Message], names: Mapping[str, str]) -> list[Block]:
    """Messages whose roles alternate: what the user says after results joins their message, behind them."""
    wire: list[Block] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, names) if message.role != "system" else []
        if blocks and wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        elif blocks:
            wire.append({"role": role, "content": blocks})
    # Refused where the user has not the first word.
    return [_OPENING, *wire] if wire and wire[0]["role"] == "assistant" else wire


def _blocks(message: Message, names: Mapping[str, str]) -> list[Block]:
    """The content of a message, in a list of its own: as it came where it came from this wire."""
    if message.role == "tool":
        return [_result(result) for result in message.tool_results]
    given = message.opaque.get(DIALECT, [{"type": "text", "text": message.text}])
    blocks = [
        block for block in given if block["type"] != "text" or block["text"].strip()
    ]
    if message.role == "user":
        return blocks
    if sum(block["type"] == "tool_use" for block in blocks) != len(message.tool_calls):
        blocks = [block for block in blocks if block["type"] != "tool_use"]
        blocks += [_use(call, {}, names) for call in message.tool_calls]
    else:
        calls = iter(message.tool_calls)
        blocks = [
            _use(next(calls), block, names) if block["type"] == "tool_use" else block
            for block in blocks
        ]
    while blocks and blocks[-1]["type"] in _THINKING:  # refused at the end of a message
        blocks.pop()
    return blocks


def _use(call: ToolCall, sent: Block, names: Mapping[str, str]) -> Block:
    """A call as it came; the id as it was made unique, the input an object whatever came."""
    came = sent.get("input")
    verbatim = isinstance(came, dict) and not call.repairs and not call.problem
    name = names.get(call.name) or wire_name(call.name or "unnamed")
    arguments = came if verbatim else dict(call.arguments)
    return {
        **sent,
        "type": "tool_use",
        "id": _legal_id(call.id),
        "name": name,
        "input": arguments,
    }


def _result(result: ToolResult) -> Block:
    # An error without content is refused, as is a blank text; a success may leave its content out.
    content = (
        result.content
        if result.content.strip()
        else "The tool failed."
        if result.is_error
        else ""
    )
    told = {
        key: value
        for key, value in (("content", content), ("is_error", result.is_error))
        if value
    }
    return {"type": "tool_result", "tool_use_id": _legal_id(result.call_id), **told}


def _legal_id(call_id: str) -> str:
    """The id; an alias for one from another wire that has characters which this one refuses."""
    return call_id if _LEGAL_ID.fullmatch(call_id) else wire_name(call_id, unique=True)


def _tool_choice(tool_choice: str, one_call: bool, names: Mapping[str, str]) -> Block:
    kind = _CHOICES.get(tool_choice, "tool")
    single = {"disable_parallel_tool_use": True} if one_call and kind != "none" else {}
    return {
        "type": kind,
        **({"name": names.get(tool_choice, tool_choice)} if kind == "tool" else {}),
        **single,
    }


def _is_thinking_refused(body: Block) -> bool:
    # Left out, not set to "disabled": models that always think refuse that, and may be forced all the same.
    match body:
        case {
            "thinking": {"type": "enabled" | "adaptive"},
            "tool_choice": {"type": "any" | "tool"},
        }:
            return True
        case {
            "thinking": {"type": "enabled"},
            "messages": [*_, {"content": [said, *_]}, {"content": [told, *_]}],
        }:
            return told["type"] == "tool_result" and said["type"] not in _THINKING
    return False


def _tool_entries(tools: Sequence[Tool], strict: bool) -> list[Block]:
    """The tools as the API takes them. Beyond the limits of strict mode they go without it, or all would be refused."""
    entries: list[Block] = []
    tools_left, unions_left = _MAX_STRICT_TOOLS, _MAX_UNIONS
    for tool in tools:
        described = {"description": tool.description} if tool.description else {}
        entry: Block = {
            "name": tool.wire_name,
            **described,
            "input_schema": tool.parameters,
        }
        wanted = strict if tool.strict is None else tool.strict
        if (
            wanted
            and tools_left
            and (schema := tool.strict_parameters) is not None
            and not is_recursive(schema)
        ):
            unions = sum(
                "anyOf" in part or isinstance(part.get("type"), list)
                for part in _parts(schema)
            )
            if unions <= unions_left:
                tools_left, unions_left = tools_left - 1, unions_left - unions
                entry |= {"input_schema": _narrowed(schema), "strict": True}
        entries.append(entry)
    return entries


def _narrowed(schema: Block) -> Block:
    """A strict schema without the keywords that are refused here; the description says what they said."""
    moved = [
        key
        for key in schema
        if key in _REFUSED or (key == "minItems" and schema[key] not in (0, 1))
    ]
    narrow = {key: value for key, value in schema.items() if key not in moved}
    for key in narrow.keys() & {"properties", "$defs"}:
        narrow[key] = {name: _narrowed(child) for name, child in narrow[key].items()}
    if "anyOf" in narrow:
        narrow["anyOf"] = [_narrowed(branch) for branch in narrow["anyOf"]]
    if "items" in narrow:
        narrow["items"] = _narrowed(narrow["items"])
    if moved:
        notes = "; ".join(f"{key}: {schema[key]}" for key in moved)
        narrow["description"] = f"{schema.get('description', '')} ({notes})".lstrip()
    return narrow


def _parts(schema: Block) -> Iterator[Block]:
    """A strict schema and all the schemas in it."""
    yield schema
    named = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    for child in (
        *named,
        *schema.get("anyOf", ()),
        *([schema["items"]] if "items" in schema else ()),
    ):
        yield from _parts(child)


def _is_block(block: Any) -> bool:
    """Whether it can be read and sent back."""
    return text_at(block, "type") != "" and (
        block["type"] != "text" or isinstance(block.get("text"), str)
    )


def _call(block: Mapping[str, Any]) -> ToolCall:
    sent = block.get("input")
    raw = (
        sent
        if isinstance(sent, str)
        else json.dumps({} if sent is None else sent, ensure_ascii=False)
    )
    return ToolCall(text_at(block, "id"), text_at(block, "name"), raw=raw)


def _object_or_text(text: str) -> Any:
    """A streamed input as the object that it is; cut off or malformed, as it came."""
    from pydantic_core import from_json

    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text


def _usage(usage: Any) -> Usage:
    *other, read = (
        token_count(usage, f"{kind}input_tokens")
        for kind in ("", "cache_creation_", "cache_read_")
    )
    thought = token_count(usage, "output_tokens_details", "thinking_tokens")
    return Usage(sum(other, read), token_count(usage, "output_tokens"), read, thought)
