"""Server-sent events: bytes in, the JSON of each event out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from toolkit.errors import MalformedReply
from toolkit.messages import whole_characters


class EventReader:
    """Reads the events of one stream, whose bytes may be cut anywhere."""

    def __init__(self) -> None:
        self._incomplete_line = b""
        self._has_events = False
        self._lines: list[bytes] = []

    def read(self, data: bytes) -> Iterator[Any]:
        """The events that end within these bytes. Raises MalformedReply for one that is not JSON."""
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        for line in lines:
            payload = line.removeprefix(b"data:").strip()
            if line.startswith(b"data:") and payload:
                self._has_events = True
                yield DONE if payload == DONE.encode() else read_json(payload)
            elif not self._has_events:
                self._lines.append(line)

    @property
    def whole_answer(self) -> bytes:
        """What came instead of events: JSON or a page, although a header announced a stream. Empty if neither did."""
        content = b"\n".join([*self._lines, self._incomplete_line]).strip()
        is_whole = not self._has_events and content.startswith((b"{", b"[", b"<"))
        return content if is_whole else b""


DONE = "[DONE]"
"""Instead of the JSON of an event: how Chat Completions ends."""


def read_json(content: bytes) -> Any:
    """What a server sent as JSON. Raises MalformedReply if it is not JSON.

    One odd character or number does not lose a reply: invalid UTF-8 and lone surrogates become U+FFFD, and NaN and
    the infinities become None.
    """
    from pydantic_core import from_json

    try:
        return from_json(content, allow_inf_nan=False)
    except ValueError:
        pass
    try:
        text = content.decode("utf-8-sig", "replace")
        return whole_characters(json.loads(text, parse_constant=lambda _: None))
    except (ValueError, RecursionError) as error:
        raise MalformedReply(
            f"The server's answer is not JSON: {content[:200]!r}"
        ) from error
