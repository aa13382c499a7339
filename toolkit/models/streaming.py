"""A streamed reply: its text is shown as it arrives, and its chunks become one body."""

from __future__ import annotations

import os.path
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any

from toolkit.dialects import Assembly
from toolkit.errors import MalformedReply
from toolkit.models.server_sent_events import DONE, EventReader


class EndedEarly(MalformedReply):
    """A stream ended before its reply did. The same request may well succeed."""


class StreamedReply:
    """One reply that arrives in pieces, over as many attempts as it takes.

    If a stream breaks and the request is sent again, `on_text` does not get the same text twice: the new text is
    passed on from where it goes beyond what was shown, or differs from it. `new_assembly` makes the assembly
    of one attempt.
    """

    def __init__(
        self, new_assembly: Callable[[], Assembly], on_text: Callable[[str], None]
    ) -> None:
        self._new_assembly, self._on_text = new_assembly, on_text
        self._shown_text = ""

    def collect(self, pieces: Iterable[Any]) -> Any:
        """Take in one attempt: bytes of server-sent events, or chunks. Return the body of the reply.

        Bytes are returned unread if they held no event, but JSON or a page.
        Raises EndedEarly if the end of the reply is missing.
        """
        self._start()
        for piece in pieces:
            self._add(piece)
        return self._body()

    async def acollect(self, pieces: AsyncIterable[Any]) -> Any:
        """As `collect`."""
        self._start()
        async for piece in pieces:
            self._add(piece)
        return self._body()

    def show_whole(self, text: str) -> None:
        """Show the text of a finished reply if none was shown: some servers do not stream though asked to."""
        if text and not self._shown_text:
            self._on_text(text)

    def _start(self) -> None:
        self._assembly, self._events = self._new_assembly(), EventReader()
        # What an earlier attempt showed, and this one has not repeated yet.
        self._repetition = self._shown_text

    def _add(self, piece: Any) -> None:
        chunks: Iterable[Any] = [piece]
        if isinstance(piece, bytes):
            chunks = self._events.read(piece)
        for chunk in chunks:
            if isinstance(chunk, Mapping) or chunk == DONE:
                self._show(self._assembly.add(chunk))

    def _show(self, text: str) -> None:
        """Pass on what goes beyond an earlier attempt."""
        overlap = len(os.path.commonprefix([text, self._repetition]))  # noqa: RUF071  # by characters, on purpose
        is_repetition = overlap == len(text)
        self._repetition = self._repetition[overlap:] if is_repetition else ""
        if not is_repetition:
            self._shown_text += text[overlap:]
            self._on_text(text[overlap:])

    def _body(self) -> Any:
        try:
            return self._assembly.body()
        except MalformedReply as error:
            if self._events.whole_answer:
                return self._events.whole_answer
            raise EndedEarly(str(error), status=error.status) from error
