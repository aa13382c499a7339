"""OpenAI Responses, as two pure functions and one assembly of stream events.

An answer is a list of items, and an item has an id of its own: a call (`fc_…`) is answered by its `call_id`.
Fields: openai-python 3.57, types/responses; what servers refuse: public bug reports until 2026-11.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

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
from toolkit.tools.tool import tool_entry, wire_name

PATH = "/responses"
DIALECT = "responses"
STREAM: Mapping[str, Any] = {"stream": True}

_ENCRYPTED = "reasoning.encrypted_content"
_NO_REPLY = ("failed", "cancelled", "queued", "in_progress")
_DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
}


def encode(request: Request) -> dict[str, Any]:
    """The body of a request. `options` are further fields (temperature, max_output_tokens …), as they are, but:

    With `reasoning`, nothing is kept by the server unless `store` says so: the reasoning comes and goes encrypted.
    (Not otherwise: models that do not reason refuse to encrypt.) `previous_response_id=True` leaves the conversation
    with the server and sends only what came after the last answer that it keeps. `tools` are tools of the provider's
    own, such as web search, beside ours.
    """
    names = {tool.name: tool.wire_name for tool in request.tools}
    body: dict[str, Any] = {"model": request.model, **request.options}
    if not request.info.parallel_calls:
        body.setdefault("parallel_tool_calls", False)
    history = list(request.messages)
    leading = list(takewhile(lambda message: message.role == "system", history))
    # As instructions, since a server that keeps the conversation would get a system item again with each request.
    if instructions := "\n\n".join(message.text for message in leading if message.text):
        body["instructions"] = instructions
    start = len(leading)
    if _choose_state(body) and (kept := _kept(history)):
        start, body["previous_response_id"] = kept
    stateless = body.get("store") is False
    body["input"] = [
        item
        for message in history[start:]
        for item in _items(message, names, stateless)
    ]
    # `strict` is said in any case: left out, it would mean true here.
    entries = [
        {
            "type": "function",
            "strict": False,
            **tool_entry(tool, request.info.strict)["function"],
        }
        for tool in request.tools
    ]
    if all_entries := [*(body.get("tools") or ()), *entries]:
        body["tools"] = all_entries
        choice = request.tool_choice
        if choice in ("none", "required"):
            body["tool_choice"] = choice
        elif choice != "auto":
            name = names.get(choice, choice)
            body["tool_choice"] = {"type": "function", "name": name}
    else:
        body.pop("tools", None)
        body.pop("parallel_tool_calls", None)
    return body


def decode(body: Mapping[str, Any]) -> Reply:
    """The reply in a response body. Raises MalformedReply where there is none."""
    output = body.get("output") if isinstance(body, Mapping) else None
    if not isinstance(output, list):
        raise MalformedReply.told_by(body, "The server answered with no output")
    status, details = body.get("status"), body.get("incomplete_details")
    if status in _NO_REPLY:
        raise MalformedReply.told_by(
            body, f"The server answered with a response that is {status}"
        )
    items = [item for item in output if isinstance(item, Mapping)]
    parts = [
        part
        for item in items
        if item.get("type") == "message"
        for part in _parts(item.get("content"))
    ]
    text, refusal = (
        "".join(text_at(part, key) for part in parts) for key in ("text", "refusal")
    )
    calls = tuple(_call(item) for item in items if item.get("type") == "function_call")
    finish: Finish = (
        "refusal" if refusal else "length" if status == "incomplete" else "stop"
    )
    if isinstance(details, Mapping) and details.get("reason") == "content_filter":
        finish, calls = "refusal", ()  # what the filter has cut must not run
    said = {
        "id": body.get("id") if body.get("store") is not False else None,
        "output": items,
    }
    message = Message("assistant", text or refusal, calls, opaque={DIALECT: said})
    return Reply(
        message, read_usage(body.get("usage"), "input_tokens", "output_tokens"), finish
    )


def assembly(known_names: Sequence[str]) -> Assembly:
    """What puts a streamed reply together. This wire needs no names for it."""
    return Assembly()


class Assembly:
    """A streamed reply, put together from its events. Raises MalformedReply for an event that tells of an error."""

    def __init__(self) -> None:
        self._items: dict[int, dict[str, Any]] = {}
        self._done: dict[str, Mapping[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._end: dict[str, Any] | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one event in; return the text that became visible with it."""
        kind = chunk.get("type") if isinstance(chunk, Mapping) else None
        if isinstance(kind, str) and kind in _DELTAS:
            return self._add_piece(_DELTAS[kind], chunk)
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._add_item(
                chunk.get("output_index"),
                chunk.get("item"),
                done=kind == "response.output_item.done",
            )
        elif kind in ("response.completed", "response.incomplete"):
            response = chunk.get("response")
            told = response if isinstance(response, Mapping) else {}
            self._end = {"status": str(kind).removeprefix("response."), **told}
        elif kind == "response.failed":
            raise MalformedReply.told_by(chunk.get("response"), "The response failed")
        elif kind == "error" or (
            kind is None and isinstance(chunk, Mapping) and chunk.get("error")
        ):
            body = chunk if chunk.get("error") else {"error": chunk}
            raise MalformedReply.told_by(body, "The server broke the stream off")
        return ""

    def body(self) -> dict[str, Any]:
        """The response body as it would have come unstreamed. Raises MalformedReply where the stream broke off."""
        if self._end is None:
            raise MalformedReply(
                "The stream ended early, before the event that completes it."
            )
        told = self._end.get("output")
        if isinstance(told, list) and told:
            # Only the event of the finished item is sure to hold the whole of its encrypted_content.
            output = [self._done.get(text_at(item, "id"), item) for item in told]
        else:  # as some servers leave it (ChatGPT's Codex endpoint, proxies; met until 2026-09)
            output = [
                self._assembled(index)
                for index in sorted({*self._items, *self._pieces})
            ]
        return {**self._end, "output": output}

    def _add_piece(self, field: str, chunk: Mapping[str, Any]) -> str:
        delta, index = chunk.get("delta"), chunk.get("output_index")
        if not isinstance(delta, str):
            return ""
        if isinstance(index, int):
            self._pieces.setdefault(index, {}).setdefault(field, []).append(delta)
        return "" if field == "arguments" else delta

    def _add_item(self, index: Any, item: Any, *, done: bool) -> None:
        if not isinstance(item, Mapping):
            return
        if done and (identity := text_at(item, "id")):
            self._done[identity] = item
        if isinstance(index, int):
            self._items[index] = {
                key: value
                for key, value in item.items()
                if done or key != "encrypted_content"
            }
            if done:
                self._pieces.pop(index, None)

    def _assembled(self, index: int) -> dict[str, Any]:
        """An item, with the pieces of it that came before the stream ended without finishing it."""
        pieces = {
            field: "".join(texts)
            for field, texts in self._pieces.get(index, {}).items()
        }
        item = self._items.get(index, {})
        if "arguments" in pieces:
            return {"type": "function_call", **item, "arguments": pieces["arguments"]}
        parts = [
            {
                "type": "refusal" if field == "refusal" else "output_text",
                field: pieces[field],
            }
            for field in pieces
        ]
        return (
            {"type": "message", "role": "assistant", **item, "content": parts}
            if parts
            else item
        )


def _choose_state(body: dict[str, Any]) -> bool:
    """Settle in the body who keeps the conversation; say whether the server does."""
    wanted = body.get("previous_response_id")
    on_server = wanted is True and body.get("store") is not False
    if not isinstance(wanted, str):
        body.pop("previous_response_id", None)
    if body.get("reasoning") and not on_server:
        body.setdefault("store", False)
        if body["store"] is False:
            body["include"] = [
                *(name for name in body.get("include") or () if name != _ENCRYPTED),
                _ENCRYPTED,
            ]
    return on_server


def _kept(history: Sequence[Message]) -> tuple[int, str] | None:
    """Up to where the server knows the conversation as it stands here, and by which id."""
    for position in range(len(history) - 1, -1, -1):
        said = history[position].opaque.get(DIALECT)
        if said and isinstance(said.get("id"), str):
            sent = [
                item.get("call_id")
                for item in said["output"]
                if item.get("type") == "function_call"
            ]
            if sent == [
                call.id for call in history[position].tool_calls
            ]:  # results go by the ids that it gave out
                return position + 1, said["id"]
    return None


def _items(
    message: Message, names: Mapping[str, str], stateless: bool
) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": _call_id(result.call_id),
                "output": result.content,
            }
            for result in message.tool_results
        ]
    if message.role != "assistant":
        return [{"role": message.role, "content": message.text}]
    if said := message.opaque.get(DIALECT):
        return _echoed(said["output"], message.tool_calls, names, stateless)
    text = [{"role": "assistant", "content": message.text}] if message.text else []
    return [*text, *(_call_item(call, {}, names) for call in message.tool_calls)]


def _echoed(
    output: Sequence[Mapping[str, Any]],
    calls: Sequence[ToolCall],
    names: Mapping[str, str],
    stateless: bool,
) -> list[dict[str, Any]]:
    """The items of an answer as they came and where they stood, but for what is refused on its way back."""
    sent = [item for item in output if item.get("type") == "function_call"]
    paired = len(sent) == len(calls)
    made = (
        _call_item(call, sent[at] if paired else {}, names)
        for at, call in enumerate(calls)
    )
    items: list[dict[str, Any]] = []
    lost = False
    for item in output:
        kind = item.get("type")
        if kind == "function_call":
            items += islice(made, 1 if paired else None)
        elif kind == "reasoning" and stateless and not item.get("encrypted_content"):
            lost = True  # by its id alone it would not be found
        else:
            items.append(
                {
                    k: v
                    for k, v in item.items()
                    if v is not None and (k, kind) != ("status", "reasoning")
                }
            )
    items += made
    while (
        items and items[-1].get("type") == "reasoning"
    ):  # "provided without its required following item"
        items.pop()
    if lost:  # "provided without its required 'reasoning' item", by an id that the server knows
        for item in items:
            if item.get("type") in ("message", "function_call"):
                item.pop("id", None)
    return items


def _call_item(
    call: ToolCall, sent: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """A call as it came; the id as it was made unique, the arguments a JSON object whatever came."""
    verbatim = (
        isinstance(call.raw, str) and not call.repairs and not call.problem and call.raw
    )
    item = {key: value for key, value in sent.items() if value is not None}
    if sent.get("call_id") != call.id:
        item.pop("id", None)  # it is no longer the item that the server knows
    name = names.get(call.name) or wire_name(call.name or "unnamed")
    item |= {"type": "function_call", "call_id": _call_id(call.id), "name": name}
    return {**item, "arguments": call.raw if verbatim else as_json(call.arguments)}


def _call_id(given: str) -> str:
    """An id of any wire in the length that this one takes, 64; a call and its result get the same."""
    return (
        given
        if len(given) <= 64
        else f"call_{hashlib.sha256(given.encode('utf-8', 'replace')).hexdigest()[:32]}"
    )


def _call(item: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        text_at(item, "call_id"), text_at(item, "name"), raw=item.get("arguments") or ""
    )


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"text": content}]
