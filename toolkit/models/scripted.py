"""A model for tests: it plays a script and records what it was asked."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from toolkit.messages import Message, ModelInfo, Reply, ToolCall, as_json
from toolkit.tools.request import LanguageModel, Request


class ScriptedModel(LanguageModel):
    """A model for tests that plays a script and records what it was asked.

    `script` is a list of replies, or a function of the request that returns one. A reply is a text, a ToolCall, a list
    of ToolCalls (one reply with all of them), a Message, a Reply, or an exception to raise. `requests` holds what was
    asked. As a context manager it complains of replies that were not asked for.
    """

    provider = "scripted"

    def __init__(
        self,
        script: Iterable[Any] | Callable[[Request], Any],
        *,
        info: ModelInfo | None = None,
    ):
        self.name, self.info, self.defaults = "scripted", info or ModelInfo(), {}
        self._script = script if callable(script) else iter(list(script))
        self.requests: list[Request] = []

    def complete(self, request: Request) -> Reply:
        """Play the next reply. Raises AssertionError where the script has ended."""
        self.requests.append(request)
        try:
            played = (
                self._script(request) if callable(self._script) else next(self._script)
            )
        except StopIteration:
            raise AssertionError(
                f"The script has ended, but a request came: {request.messages[-1]!r}"
            ) from None
        if isinstance(played, BaseException):
            raise played
        reply = _as_reply(played)
        if request.on_text and reply.message.text:
            request.on_text(reply.message.text)
        return reply

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`."""
        return self.complete(request)

    def __reduce__(
        self,
    ) -> tuple[
        Any, ...
    ]:  # a script of values, or a function of a module, can be pickled
        return copyreg.__newobj__, (type(self),), self.__dict__  # type: ignore[attr-defined]  # of no typeshed

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        left = [] if callable(self._script) or kind else list(self._script)
        if left:
            raise AssertionError(
                f"The script was not played to its end; {len(left)} replies are left: {left!r}"
            )


def _as_reply(played: Any) -> Reply:
    if isinstance(played, Reply):
        return replace(played, message=_with_raw(played.message))
    if isinstance(played, str):
        return Reply(Message("assistant", played))
    if isinstance(played, ToolCall):
        played = [played]
    if isinstance(played, Message):
        return Reply(_with_raw(played))
    if isinstance(played, Sequence) and all(
        isinstance(call, ToolCall) for call in played
    ):
        return Reply(_with_raw(Message("assistant", tool_calls=tuple(played))))
    raise TypeError(
        f"{played!r} is no scripted reply. Give a text, ToolCalls, a Message, a Reply or an exception."
    )


def _with_raw(message: Message) -> Message:
    """Calls written with `arguments` get the text that a model would have sent."""
    calls = (
        replace(c, raw=as_json(c.arguments)) if not c.raw else c
        for c in message.tool_calls
    )
    return replace(message, tool_calls=tuple(calls))
