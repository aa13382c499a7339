"""Chat Completions in chunks, assembled into the body that would have come without a stream. Pure.

Calls come in pieces, and servers differ in how they say which piece belongs to which call. What was met in public
bug reports until 2026-11 is read here. Fields: openai-python 3.57, types/chat/chat_completion_chunk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from toolkit.calls.parsing import parse
from toolkit.dialects import JSONDict, JSONObject
from toolkit.dialects.shared import object_at
from toolkit.errors import MalformedReply
from toolkit.messages import text_of


@dataclass(slots=True)
class _PartialCall:
    """A call as far as it has come. `arguments` are texts, or whole objects as some servers send them."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[Any] = field(default_factory=list)
    extras: JSONDict = field(default_factory=dict)


class Assembly:
    """A streamed reply, assembled from its chunks.

    `known_names` are the names of the tools on the wire: they tell a name in fragments from one that is repeated.
    """

    def __init__(self, known_names: Collection[str] = ()) -> None:
        self._known_names = frozenset(known_names)
        self._head: JSONDict = {}
        self._pieces: dict[str, list[Any]] = {}
        self._calls: list[_PartialCall] = []
        self._latest: dict[int, _PartialCall] = {}
        self._by_id: dict[tuple[int | None, str], _PartialCall] = {}
        self._finish = ""

    def add(self, chunk: JSONObject) -> str:
        """Add one chunk; return the text that becomes visible with it.

        Raises MalformedReply if the chunk reports an error.
        """
        if not isinstance(chunk, Mapping):
            return ""
        if chunk.get("error") or chunk.get("object") == "error":
            body = chunk if chunk.get("error") else {"error": chunk}
            raise MalformedReply.told_by(body, "The server broke the stream off")
        self._head = self._head or dict(chunk)
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, Mapping) or choice.get("index"):
            return ""
        # Moonshot puts the usage into the choice.
        usage = chunk.get("usage") or choice.get("usage")
        if usage:
            self._head["usage"] = usage
        self._finish = text_of(choice.get("finish_reason")) or self._finish
        return self._add_delta(object_at(choice, "delta"))

    def body(self) -> JSONDict:
        """The response body as it would have come without a stream.

        Raises MalformedReply if the stream ended before a finish_reason: not every server sends a last line `[DONE]`.
        """
        if not self._finish:
            raise MalformedReply("The stream ended early, before a finish_reason.")
        message: JSONDict = {"role": "assistant", "content": None}
        for key, pieces in self._pieces.items():
            message[key] = _joined(pieces)
        if self._calls:
            message["tool_calls"] = self._call_entries()
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._head, "object": "chat.completion", "choices": [choice]}

    def _add_delta(self, delta: JSONObject) -> str:
        visible = ""
        for key, value in delta.items():
            if key == "tool_calls":
                self._add_calls(value)
            elif value is not None and key != "role":
                piece = text_of(value) if key == "content" else value
                self._pieces.setdefault(key, []).append(piece)
                if key in ("content", "refusal"):
                    visible += text_of(value)
        return visible

    def _add_calls(self, entries: Any) -> None:
        if not isinstance(entries, list):
            return
        pieces = [entry for entry in entries if isinstance(entry, Mapping)]
        for position, piece in enumerate(pieces):
            call_id = str(piece.get("id") or "")
            index = piece.get("index")
            if not isinstance(index, int):
                index = self._guessed_index(call_id, position, len(pieces))
            function = object_at(piece, "function")
            name = text_of(function.get("name"))
            arguments = function.get("arguments")
            call = self._call_of(index, call_id, name, arguments)
            if name and name != call.name and self._continues(call.name, name):
                call.name += name
            if arguments and isinstance(arguments, (str, Mapping)):
                call.arguments.append(arguments)
            for key, value in piece.items():
                if key != "index" and value is not None:
                    call.extras[key] = value

    def _guessed_index(self, call_id: str, position: int, count: int) -> int:
        """The index of one of `count` pieces in a chunk that came without an index."""
        if count > 1 or not self._calls:
            return position
        return self._by_id.get((None, call_id), self._calls[-1]).index

    def _call_of(
        self, index: int, call_id: str, name: str, arguments: Any
    ) -> _PartialCall:
        """The call that a piece belongs to: a new one if the piece begins it."""
        call = self._by_id.get((index, call_id)) or self._latest.get(index)
        if call is None or self._begins_next(call, call_id, name, arguments):
            call = _PartialCall(index)
            self._calls.append(call)
        self._latest[index] = call
        if call_id and not call.id:
            call.id = call_id
            self._by_id[index, call_id] = call
            self._by_id[None, call_id] = call
        return call

    def _begins_next(
        self, call: _PartialCall, call_id: str, name: str, arguments: Any
    ) -> bool:
        """Whether a piece begins the call that follows `call` under the same index."""
        is_object = isinstance(arguments, Mapping)
        opens = is_object or text_of(arguments).lstrip().startswith("{")
        if opens and _is_complete(call.arguments):
            is_repeated = call_id == call.id and arguments == _joined(call.arguments)
            return not call_id or not is_repeated
        if call_id and call.id and call_id != call.id:
            # Poolside gives the later pieces of a call another id, but no name.
            return name != ""
        both_known = {name, call.name} <= self._known_names
        return both_known and name != call.name and not self._continues(call.name, name)

    def _continues(self, start: str, piece: str) -> bool:
        """Whether a piece of a name goes on with `start`, and is not another name or the same one again."""
        if start not in self._known_names:
            return True
        return any(known.startswith(start + piece) for known in self._known_names)

    def _call_entries(self) -> list[JSONDict]:
        calls: list[_PartialCall] = []
        for call in self._calls:
            if calls and not call.id and not call.name:
                # Nebius and Cerebras count the index up from piece to piece.
                calls[-1].arguments += call.arguments
            else:
                calls.append(replace(call, arguments=list(call.arguments)))
        calls.sort(key=attrgetter("index"))
        return [
            {
                "type": "function",
                **call.extras,
                "id": call.id,
                "function": {"name": call.name, "arguments": _joined(call.arguments)},
            }
            for call in calls
        ]


def _is_complete(arguments: list[Any]) -> bool:
    """Whether arguments are a whole object, so that nothing more of them can follow."""
    # Bounded: else a call in many pieces would be read once for each.
    if not 0 < len(arguments) < 100:
        return False
    last = arguments[-1]
    if isinstance(last, str) and not last.rstrip().endswith("}"):
        return False
    parsed = parse(_joined(arguments))
    return not parsed.problem and not parsed.repairs


def _joined(pieces: list[Any]) -> Any:
    """The value that came in pieces.

    Texts and lists are joined, an object's keys replace those of an earlier one, of other values the last one counts.
    """
    last: Any = pieces[-1] if pieces else ""
    alike = [piece for piece in pieces if type(piece) is type(last)]
    if isinstance(last, str):
        return "".join(alike)
    if isinstance(last, list):
        return [item for piece in alike for item in piece]
    if isinstance(last, dict):
        return {key: value for piece in alike for key, value in piece.items()}
    return last
