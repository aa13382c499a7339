"""A streamed reply on its way: bytes of server-sent events in, its text shown as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from toolkit.errors import MalformedReply
from toolkit.messages import whole_characters


class Assembly(Protocol):
    """A streamed reply, put together from its chunks: `add` returns the text that became visible."""

    def add(self, chunk: Mapping[str, Any]) -> str: ...
    def body(self) -> dict[str, Any]: ...


class Streamed:
    """A reply on its way. Its text is shown as it comes.

    Where the stream breaks and the reply is asked for again, what was shown already is not shown twice: the new
    text is shown from where it goes on, or differs.
    """

    def __init__(
        self, assemble: Callable[[], Assembly], on_text: Callable[[str], None]
    ) -> None:
        self._assemble, self._on_text = assemble, on_text
        self._shown = ""

    def begin(self) -> None:
        self._assembly = self._assemble()
        self._ahead = self._shown
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take bytes of server-sent events in."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (payload := line[5:].strip()) not in (
                b"",
                b"[DONE]",
            ):
                self.take(parsed(payload))

    def take(self, chunk: Any) -> None:
        piece = self._assembly.add(chunk) if isinstance(chunk, Mapping) else ""
        if piece and self._ahead:
            differs = (
                at
                for at, (new, old) in enumerate(zip(piece, self._ahead, strict=False))
                if new != old
            )
            common = next(differs, min(len(piece), len(self._ahead)))
            self._ahead = self._ahead[common:] if common == len(piece) else ""
            piece = piece[common:]
        if piece:
            self._shown += piece
            self._on_text(piece)

    def show_rest(self, text: str) -> None:
        """Show a text that did not come as a stream: some servers answer with the whole reply all the same."""
        if not self._shown and text:
            self._on_text(text)

    def end(self) -> dict[str, Any]:
        try:
            return self._assembly.body()
        except MalformedReply as error:
            raise EndedEarly(str(error), status=error.status) from error


class EndedEarly(MalformedReply):
    """A stream without its end; the same request may well succeed."""


def parsed(content: bytes) -> Any:
    from pydantic_core import from_json

    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        pass
    try:  # one odd character or number is no reason to lose a reply
        return whole_characters(
            json.loads(
                content.decode("utf-8-sig", "replace"), parse_constant=lambda _: None
            )
        )
    except (ValueError, RecursionError) as error:
        raise MalformedReply(
            f"The server answered with something that is no JSON: {content[:200]!r}"
        ) from error
