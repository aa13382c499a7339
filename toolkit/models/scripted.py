"""A model for tests: it plays a script and records the requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from toolkit.messages import Message, ModelInfo, Reply, ToolCall, as_json
from toolkit.tools.request import LanguageModel, Request


class ScriptedModel(LanguageModel):
    """A model for tests that plays a script and records the requests.

    script: a list of replies, or a function of the request that returns one. A reply is a text, a ToolCall, a list of
        ToolCalls (one reply with all of them), a Message, a Reply, or an exception to raise.
    info: what the model can do.

    `requests` holds all requests so far. As a context manager it raises AssertionError at the end if replies are left.
    """

    provider = "scripted"

    def __init__(
        self,
        script: Iterable[Any] | Callable[[Request], Any],
        *,
        info: ModelInfo | None = None,
    ) -> None:
        self.name, self.info, self.defaults = "scripted", info or ModelInfo(), {}
        self.requests: list[Request] = []
        self._script = script if callable(script) else iter(list(script))

    def complete(self, request: Request) -> Reply:
        """Play the next reply. Raises AssertionError if the script has ended."""
        self.requests.append(request)
        script = self._script
        entry = script(request) if callable(script) else next(script, _END)
        if entry is _END:
            raise AssertionError(
                f"The script has ended, but there is another request: {request.messages[-1]!r}"
            )
        if isinstance(entry, BaseException):
            raise entry
        reply = _as_reply(entry)
        if request.on_text and reply.message.text:
            request.on_text(reply.message.text)
        return reply

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`."""
        return self.complete(request)

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        remaining = [] if callable(self._script) or kind else list(self._script)
        if remaining:
            raise AssertionError(
                f"The script was not played to its end; {len(remaining)} replies are left: {remaining!r}"
            )


_END = object()


def _as_reply(entry: Any) -> Reply:
    """A scripted reply as a Reply, whose calls have the text that a model would have sent."""
    if isinstance(entry, str):
        entry = Message("assistant", entry)
    elif isinstance(entry, ToolCall):
        entry = Message("assistant", tool_calls=(entry,))
    elif isinstance(entry, Sequence) and all(
        isinstance(call, ToolCall) for call in entry
    ):
        entry = Message("assistant", tool_calls=tuple(entry))
    if isinstance(entry, Message):
        entry = Reply(entry)
    if not isinstance(entry, Reply):
        raise TypeError(
            f"{entry!r} is not a scripted reply. Pass a text, ToolCalls, a Message, a Reply or an exception."
        )
    message = entry.message
    calls = tuple(
        call if call.raw else replace(call, raw=as_json(call.arguments))
        for call in message.tool_calls
    )
    return replace(entry, message=replace(message, tool_calls=calls))
