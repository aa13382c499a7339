"""Chat Completions in chunks, put together into the body that would have come unstreamed. Pure.

Calls come in pieces, and servers differ in how they say which piece belongs to which call; what was met in public
bug reports until 2026-11 is read here. Fields: openai-python 3.57, types/chat/chat_completion_chunk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from toolkit.calls.parsing import parse
from toolkit.errors import MalformedReply
from toolkit.messages import text_of


@dataclass(slots=True)
class _Call:
    """A call as far as it has come. `arguments` are texts, or whole objects as some servers send them."""

    index: int
    id: str = ""
    name: str = ""
    arguments: list[Any] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)


class Assembly:
    """A streamed reply, put together from its chunks. Raises MalformedReply for a chunk that tells of an error.

    `known_names` are the names of the tools on the wire: they tell a name in fragments from one that is repeated.
    """

    def __init__(self, known_names: Collection[str] = ()) -> None:
        self._known = frozenset(known_names)
        self._head: dict[str, Any] = {}
        self._pieces: dict[str, list[Any]] = {}
        self._calls: list[_Call] = []
        self._latest: dict[int, _Call] = {}
        self._by_id: dict[tuple[int | None, str], _Call] = {}
        self._finish = ""

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk in; return the text that became visible with it."""
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
        if usage := chunk.get("usage") or choice.get(
            "usage"
        ):  # in the choice from Moonshot
            self._head["usage"] = usage
        self._finish = text_of(choice.get("finish_reason")) or self._finish
        return self._add_delta(choice.get("delta"))

    def body(self) -> dict[str, Any]:
        """The response body as it would have come unstreamed. Raises MalformedReply where the stream broke off.

        Its end is a finish_reason: not every server sends a last line `[DONE]`.
        """
        if not self._finish:
            raise MalformedReply("The stream ended early, before a finish_reason.")
        message = {"role": "assistant", "content": None} | {
            key: _whole(said) for key, said in self._pieces.items()
        }
        if self._calls:
            message["tool_calls"] = self._whole_calls()
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._head, "object": "chat.completion", "choices": [choice]}

    def _add_delta(self, delta: Any) -> str:
        text = ""
        for key, value in delta.items() if isinstance(delta, Mapping) else ():
            if key == "tool_calls":
                self._add_calls(value)
            elif value is not None and key != "role":
                self._pieces.setdefault(key, []).append(
                    text_of(value) if key == "content" else value
                )
                if key in ("content", "refusal"):
                    text += text_of(value)
        return text

    def _add_calls(self, given: Any) -> None:
        pieces = (
            [piece for piece in given if isinstance(piece, Mapping)]
            if isinstance(given, list)
            else []
        )
        for position, piece in enumerate(pieces):
            index, identity, function = (
                piece.get("index"),
                str(piece.get("id") or ""),
                piece.get("function"),
            )
            if not isinstance(index, int):
                known = self._by_id.get((None, identity)) or (
                    self._calls[-1] if self._calls else None
                )
                index = known.index if known and len(pieces) == 1 else position
            call = self._call(
                index, identity, function if isinstance(function, Mapping) else {}
            )
            call.extras |= {
                key: value
                for key, value in piece.items()
                if key != "index" and value is not None
            }

    def _call(self, index: int, identity: str, function: Mapping[str, Any]) -> _Call:
        """The call that a piece belongs to, the piece's own part of it taken in."""
        name, arguments = text_of(function.get("name")), function.get("arguments")
        call = self._by_id.get((index, identity)) or self._latest.get(index)
        if call is None or self._is_next(call, identity, name, arguments):
            call = _Call(index)
            self._calls.append(call)
        self._latest[index] = call
        if identity and not call.id:
            call.id = identity
            self._by_id[index, identity] = self._by_id[None, identity] = call
        if (
            name
            and name != call.name
            and (call.name not in self._known or self._is_begun(call.name + name))
        ):
            call.name += name
        if arguments and isinstance(arguments, (str, Mapping)):
            call.arguments.append(arguments)
        return call

    def _is_next(self, call: _Call, identity: str, name: str, arguments: Any) -> bool:
        """Whether a piece is the first of a call that follows `call` under the same index."""
        opens = isinstance(arguments, Mapping) or text_of(arguments).lstrip()[:1] == "{"
        if opens and _is_closed(call.arguments):
            return (
                not identity
                or identity != call.id
                or arguments != _whole(call.arguments)
            )
        if identity and call.id and identity != call.id:
            return (
                name != ""
            )  # Poolside gives the later pieces of a call another id, but no name
        return (
            name in self._known
            and call.name in self._known - {name}
            and not self._is_begun(call.name + name)
        )

    def _is_begun(self, name: str) -> bool:
        return any(known.startswith(name) for known in self._known)

    def _whole_calls(self) -> list[dict[str, Any]]:
        calls: list[_Call] = []
        for call in self._calls:
            if (
                calls and not call.id and not call.name
            ):  # Nebius and Cerebras count the index up from piece to piece
                calls[-1].arguments += call.arguments
            else:
                calls.append(replace(call, arguments=list(call.arguments)))
        return [_entry(call) for call in sorted(calls, key=attrgetter("index"))]


def _entry(call: _Call) -> dict[str, Any]:
    function = {
        "name": call.name,
        "arguments": _whole(call.arguments) if call.arguments else "",
    }
    return {"type": "function", **call.extras, "id": call.id, "function": function}


def _is_closed(arguments: list[Any]) -> bool:
    """Whether arguments are a whole object, so that nothing of theirs can follow."""
    last = (
        arguments[-1] if 0 < len(arguments) < 100 else ""
    )  # bounded, or many pieces would be read many times
    parsed = (
        parse(_whole(arguments))
        if isinstance(last, Mapping) or last.rstrip().endswith("}")
        else None
    )
    return parsed is not None and not parsed.problem and not parsed.repairs


def _whole(pieces: list[Any]) -> Any:
    """What came in pieces: texts and lists one after the other, objects one over the other, else the last one."""
    last = pieces[-1]
    alike = [piece for piece in pieces if type(piece) is type(last)]
    if isinstance(last, str):
        return "".join(alike)
    if isinstance(last, list):
        return [item for piece in alike for item in piece]
    return (
        {key: value for piece in alike for key, value in piece.items()}
        if isinstance(last, dict)
        else last
    )
