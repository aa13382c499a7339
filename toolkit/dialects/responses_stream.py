"""Responses events, assembled into the body that would have come without a stream. Pure.

Fields: openai-python 3.57, types/responses.
"""

from __future__ import annotations

from typing import Any

from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.shared import object_at
from toolkit.errors import MalformedReply
from toolkit.messages import text_at

_FIELDS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
}
_PART_TYPES = {"text": "output_text", "refusal": "refusal"}


class Assembly:
    """A streamed reply, assembled from its events."""

    def __init__(self) -> None:
        self._items: dict[int, JSONDict] = {}
        self._complete_items: dict[str, JSONObject] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._end: JSONDict | None = None

    def add(self, chunk: JSONObject) -> str:
        """Add one event; return the text that becomes visible with it.

        Raises MalformedReply if the event reports an error.
        """
        match chunk:
            case {"type": str(kind), "delta": str(delta)} if kind in _FIELDS:
                index = chunk.get("output_index")
                if isinstance(index, int):
                    pieces = self._pieces.setdefault(index, {})
                    pieces.setdefault(_FIELDS[kind], []).append(delta)
                return "" if _FIELDS[kind] == "arguments" else delta
            case {
                "type": "response.output_item.added",
                "output_index": int(index),
                "item": {} as item,
            }:
                self._items[index] = dict(item)
                # Only the event of the finished item is sure to hold all of it.
                self._items[index].pop("encrypted_content", None)
            case {"type": "response.output_item.done", "item": {} as item}:
                self._finish_item(chunk.get("output_index"), item)
            case {"type": "response.completed" | "response.incomplete" as kind}:
                status = kind.removeprefix("response.")
                self._end = {"status": status, **object_at(chunk, "response")}
            case {"type": "response.failed"}:
                response = chunk.get("response")
                raise MalformedReply.told_by(response, "The response failed")
            case {"error": error} if error and chunk.get("type") in (None, "error"):
                raise MalformedReply.told_by(chunk, "The server broke the stream off")
            case {"type": "error"}:
                body = {"error": chunk}
                raise MalformedReply.told_by(body, "The server broke the stream off")
        return ""

    def body(self) -> JSONDict:
        """The response body as it would have come without a stream.

        Raises MalformedReply if the stream ended before the event that completes it.
        """
        if self._end is None:
            raise MalformedReply(
                "The stream ended early, before the event that completes it."
            )
        output = self._end.get("output")
        if isinstance(output, list) and output:
            items = [
                self._complete_items.get(text_at(item, "id"), item) for item in output
            ]
        else:
            # Some servers leave it empty (ChatGPT's Codex endpoint, proxies; met until 2026-09).
            indexes = sorted({*self._items, *self._pieces})
            items = [self._item(index) for index in indexes]
        return {**self._end, "output": items}

    def _finish_item(self, index: Any, item: JSONObject) -> None:
        item_id = text_at(item, "id")
        if item_id:
            self._complete_items[item_id] = item
        if isinstance(index, int):
            self._items[index] = dict(item)
            self._pieces.pop(index, None)

    def _item(self, index: int) -> JSONDict:
        """An item, with the pieces of it that came if the stream ended without finishing it."""
        item = self._items.get(index, {})
        pieces = self._pieces.get(index, {})
        texts = {field: "".join(texts) for field, texts in pieces.items()}
        if "arguments" in texts:
            return {"type": "function_call", **item, "arguments": texts["arguments"]}
        if not texts:
            return item
        parts = [
            {"type": _PART_TYPES[field], field: text} for field, text in texts.items()
        ]
        return {"type": "message", "role": "assistant", **item, "content": parts}
