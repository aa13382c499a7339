"""OpenAI Responses, as two pure functions.

An answer is a list of items, and an item has an id of its own: a call (`fc_…`) is answered by its `call_id`.
Fields: openai-python 3.57, types/responses; what servers refuse: public bug reports until 2026-11.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, takewhile

from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.responses_stream import Assembly
from toolkit.dialects.shared import (
    WireNames,
    forced_tool,
    is_unmended,
    list_in_reply,
    without_nulls,
)
from toolkit.errors import MalformedReply
from toolkit.messages import (
    Finish,
    Message,
    Reply,
    ToolCall,
    as_json,
    read_usage,
    text_at,
)
from toolkit.tools.request import Request
from toolkit.tools.tool import tool_entry

PATH = "/responses"
DIALECT = "responses"
STREAM: JSONObject = {"stream": True}

_NO_REPLY = ("failed", "cancelled", "queued", "in_progress")
_ENCRYPTED = "reasoning.encrypted_content"
_MAX_ID_LENGTH = 64


def encode(request: Request) -> JSONDict:
    """The body of a request. `options` are further fields (temperature, max_output_tokens …), sent as they are, but:

    With `reasoning`, the server keeps nothing unless `store` asks for it: the reasoning comes and goes encrypted.
    (Not otherwise: models that do not reason refuse to encrypt.) `previous_response_id=True` leaves the conversation
    with the server, and only the messages after the last answer that it keeps are sent. `tools` are tools of the
    provider's own, such as web search, beside ours.
    """
    names = WireNames(request.tools)
    history = list(request.messages)
    body: JSONDict = {"model": request.model, **request.options}
    if not request.info.parallel_calls:
        body.setdefault("parallel_tool_calls", False)

    # As instructions: a server that keeps the conversation would get a system item again with each request.
    leading = list(takewhile(lambda message: message.role == "system", history))
    instructions = "\n\n".join(message.text for message in leading if message.text)
    if instructions:
        body["instructions"] = instructions

    start = len(leading)
    server_state = _server_state(history) if _settle_state(body) else None
    if server_state:
        start, body["previous_response_id"] = server_state
    is_stateless = body.get("store") is False
    body["input"] = [
        item
        for message in history[start:]
        for item in _items(message, names, is_stateless=is_stateless)
    ]

    tools = [*(body.get("tools") or ()), *_tool_entries(request)]
    if not tools:
        body.pop("tools", None)
        body.pop("parallel_tool_calls", None)
        return body
    body["tools"] = tools
    forced = forced_tool(request, names)
    if forced is not None:
        body["tool_choice"] = {"type": "function", "name": forced}
    elif request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    return body


def decode(body: JSONObject) -> Reply:
    """The reply in a response body. Raises MalformedReply if it holds none."""
    output = list_in_reply(body, "output")
    status = body.get("status")
    if status in _NO_REPLY:
        raise MalformedReply.told_by(
            body, f"The server answered with a response that is {status}"
        )
    items = [item for item in output if isinstance(item, Mapping)]
    calls: list[ToolCall] = []
    text = refusal = ""
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            call_id = text_at(item, "call_id")
            raw = item.get("arguments") or ""
            calls.append(ToolCall(call_id, text_at(item, "name"), raw=raw))
        elif kind == "message":
            text += _joined_parts(item, "text")
            refusal += _joined_parts(item, "refusal")
    finish: Finish = "stop"
    if status == "incomplete":
        finish = "length"
    if refusal:
        finish = "refusal"
    if text_at(body.get("incomplete_details"), "reason") == "content_filter":
        # A call that the filter has cut must not run.
        finish = "refusal"
        calls = []
    response_id = body.get("id") if body.get("store") is not False else None
    opaque = {DIALECT: {"id": response_id, "output": items}}
    return Reply(
        Message("assistant", text or refusal, tuple(calls), opaque=opaque),
        read_usage(body.get("usage"), "input_tokens", "output_tokens"),
        finish,
    )


def assembly(known_names: Sequence[str]) -> Assembly:
    """An empty assembly of a streamed reply. This wire needs no names for it."""
    return Assembly()


def _settle_state(body: JSONDict) -> bool:
    """Settle in the body who keeps the conversation. True if the server does."""
    previous = body.get("previous_response_id")
    is_on_server = previous is True and body.get("store") is not False
    if not isinstance(previous, str):
        body.pop("previous_response_id", None)
    if body.get("reasoning") and not is_on_server:
        body.setdefault("store", False)
        if body["store"] is False:
            others = [name for name in body.get("include") or () if name != _ENCRYPTED]
            body["include"] = [*others, _ENCRYPTED]
    return is_on_server


def _server_state(history: Sequence[Message]) -> tuple[int, str] | None:
    """How many messages the server keeps as they stand here, and the id of its last answer among them."""
    for position in reversed(range(len(history))):
        message = history[position]
        answer = message.opaque.get(DIALECT)
        if not answer or not isinstance(answer.get("id"), str):
            continue
        # Results go by the ids that the server gave out.
        ids = [call.get("call_id") for call in _calls_in(answer["output"])]
        if ids == [call.id for call in message.tool_calls]:
            return position + 1, answer["id"]
    return None


def _items(message: Message, names: WireNames, *, is_stateless: bool) -> list[JSONDict]:
    """The items of the input for one message."""
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": _short_id(result.call_id),
                "output": result.content,
            }
            for result in message.tool_results
        ]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.text}]
    if message.opaque.get(DIALECT):
        return _echo(message, names, is_stateless=is_stateless)
    items = [_call_item(call, {}, names) for call in message.tool_calls]
    if message.text:
        items.insert(0, {"role": "assistant", "content": message.text})
    return items


def _echo(message: Message, names: WireNames, *, is_stateless: bool) -> list[JSONDict]:
    """The items of an answer as they came and where they stood, without those that are refused on their way back."""
    calls = message.tool_calls
    output = message.opaque[DIALECT]["output"]
    originals = _calls_in(output)
    is_paired = len(originals) == len(calls)
    if not is_paired:
        originals = [{}] * len(calls)
    call_items = (
        _call_item(call, original, names)
        for call, original in zip(calls, originals, strict=True)
    )
    items: list[JSONDict] = []
    is_reasoning_lost = False
    for item in output:
        kind = item.get("type")
        if kind == "function_call":
            # Calls that cannot be paired stand together, where the first one stood.
            items += islice(call_items, 1 if is_paired else None)
        elif kind == "reasoning" and is_stateless and not item.get("encrypted_content"):
            # The server would not find it by its id alone.
            is_reasoning_lost = True
        else:
            items.append(without_nulls(item))
            if kind == "reasoning":
                items[-1].pop("status", None)
    items += call_items
    # Else: "provided without its required following item".
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    if is_reasoning_lost:
        # Else, by an id that the server knows: "provided without its required 'reasoning' item".
        for item in items:
            if item.get("type") in ("message", "function_call"):
                item.pop("id", None)
    return items


def _call_item(call: ToolCall, original: JSONObject, names: WireNames) -> JSONDict:
    """The call as it came, but with the id that was made unique, and with a JSON object as arguments in any case."""
    item = without_nulls(original)
    if original.get("call_id") != call.id:
        # It is no longer the item that the server knows.
        item.pop("id", None)
    is_as_sent = call.raw and isinstance(call.raw, str) and is_unmended(call)
    return {
        **item,
        "type": "function_call",
        "call_id": _short_id(call.id),
        "name": names[call.name],
        "arguments": call.raw if is_as_sent else as_json(call.arguments),
    }


def _short_id(call_id: str) -> str:
    """An id of any wire, shortened to what this one takes; a call and its result get the same."""
    if len(call_id) <= _MAX_ID_LENGTH:
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()
    return f"call_{digest[:32]}"


def _tool_entries(request: Request) -> list[JSONDict]:
    entries = []
    for tool in request.tools:
        function = tool_entry(tool, request.info.strict)["function"]
        # `strict` is always sent: left out, it would mean true on this wire.
        entries.append({"type": "function", "strict": False, **function})
    return entries


def _calls_in(output: Iterable[JSONObject]) -> list[JSONObject]:
    return [item for item in output if item.get("type") == "function_call"]


def _joined_parts(item: JSONObject, key: str) -> str:
    """The texts under `key` in the parts of a message, whose content some servers send as one text."""
    content = item.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    return "".join(text_at(part, key) for part in parts)
