"""Messages events, assembled into the body that would have come without a stream. Pure.

Fields: anthropic-python 2.14, types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.shared import without_nulls
from toolkit.errors import MalformedReply

_WITHOUT_START = {"text_delta": "text", "thinking_delta": "thinking"}
"""The deltas of blocks whose start a server may leave out, and the type of these blocks."""


@dataclass(slots=True)
class _PartialBlock:
    """A block as it began, and the pieces of text, thought or input that came since."""

    index: Any
    fields: JSONDict
    pieces: list[str] = field(default_factory=list)


class Assembly:
    """A streamed reply, assembled from its events."""

    def __init__(self) -> None:
        self._head: JSONDict = {}
        self._usage: JSONDict = {}
        self._blocks: list[_PartialBlock] = []

    def add(self, chunk: JSONObject) -> str:
        """Add one event; return the text that becomes visible with it.

        Raises MalformedReply if the event reports an error.
        """
        match chunk:
            case {"type": "content_block_delta", "delta": {"type": str(kind)} as delta}:
                block = self._block_of(chunk.get("index"), kind)
                return _add_delta(block, delta) if block else ""
            case {
                "type": "content_block_start",
                "content_block": {"type": str(kind)} as start,
            }:
                block = self._begin_block(chunk.get("index"), start)
                return "".join(block.pieces) if kind == "text" else ""
            case {"type": "message_start", "message": {} as head} | {
                "type": "message_delta",
                "delta": {} as head,
            }:
                self._add_head(head, head.get("usage", chunk.get("usage")))
            case {"type": "message_stop"}:
                self._head.setdefault("stop_reason", "end_turn")
            case {"type": "error"} | {"error": {} | str()}:
                raise MalformedReply.told_by(
                    chunk, "The server broke off with an error"
                )
        return ""

    def body(self) -> JSONDict:
        """The response body as it would have come without a stream.

        Raises MalformedReply if the stream ended early.
        """
        if "stop_reason" not in self._head:
            raise MalformedReply(
                "The stream ended early: its closing events are missing."
            )
        content = [_whole_block(block) for block in self._blocks]
        return {**self._head, "content": content, "usage": dict(self._usage)}

    def _add_head(self, head: JSONObject, usage: Any) -> None:
        """Null says nothing. Counts are totals so far, so that a later one replaces an earlier one."""
        self._head |= without_nulls({**head, "usage": None})
        if isinstance(usage, Mapping):
            self._usage |= without_nulls(usage)

    def _block_of(self, index: Any, delta_type: str) -> _PartialBlock | None:
        for block in reversed(self._blocks):
            if index is None or block.index == index:
                return block
        if delta_type in _WITHOUT_START:
            return self._begin_block(index, {"type": _WITHOUT_START[delta_type]})
        return None

    def _begin_block(self, index: Any, start: JSONObject) -> _PartialBlock:
        block = _PartialBlock(index, without_nulls(start))
        first = start.get(start["type"])
        if isinstance(first, str):
            block.pieces.append(first)
        self._blocks.append(block)
        return block


def _add_delta(block: _PartialBlock, delta: JSONObject) -> str:
    """Add what a delta brings; return the text that becomes visible with it."""
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block.pieces.append(text)
            return text
        case {"thinking": str(piece)} | {"partial_json": str(piece)}:
            block.pieces.append(piece)
        case {"signature": str(signature)}:
            block.fields["signature"] = signature
        case {"citation": citation}:
            citations = block.fields.setdefault("citations", [])
            if isinstance(citations, list):
                citations.append(citation)
    return ""


def _whole_block(block: _PartialBlock) -> JSONDict:
    kind = block.fields["type"]
    content = "".join(block.pieces)
    if kind in ("text", "thinking"):
        return {**block.fields, kind: content}
    if content.strip():
        return {**block.fields, "input": _object_or_text(content)}
    return block.fields


def _object_or_text(text: str) -> Any:
    """A streamed input as an object; as it came, if it was cut off or is malformed."""
    from pydantic_core import from_json

    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError:
        return text
    return value if isinstance(value, dict) else text
