"""A conversation to go on from, made whole: ids unique, every call answered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolkit.dialects.chat import read_message
from toolkit.messages import (
    Message,
    ToolCall,
    ToolResult,
    whole_characters,
    with_own_id,
)
from toolkit.runs.loop import Run
from toolkit.runs.results import RunResult

Conversation = RunResult | Run | Sequence[Message | Mapping[str, Any]] | None


def read_conversation(history: Conversation) -> list[Message]:
    """The messages of a result, a run, or a list of Messages and Chat Completions dicts; what is given stays as it is.

    A call without a result is answered as not run. Raises ValueError for what is no message, naming its place, and for
    a result without its call.
    """
    if history is None:
        return []
    given: Any = history.messages if isinstance(history, (RunResult, Run)) else history
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(
            f"history is a RunResult or a list of messages, not {type(history).__name__}."
        )
    whole: list[Message] = []
    used: set[str] = set()
    asked: list[
        tuple[str, ToolCall]
    ] = []  # the calls of the last reply, with the ids that they came with
    results: dict[str, ToolResult] = {}  # theirs, by the ids that they have now
    for position, one in enumerate(given):
        message = _message(one, position)
        if message.role == "tool":
            for result in message.tool_results:
                call = next(
                    (
                        call
                        for came, call in asked
                        if came == result.call_id and call.id not in results
                    ),
                    None,
                )
                if call is None:
                    told = f"answers {result.call_id!r}, but no call of that id is open there."
                    raise ValueError(f"history[{position}] {told}")
                results[call.id] = replace(result, call_id=call.id)
            continue
        whole += _settled(asked, results)
        asked, results = (
            [
                (call.id, with_own_id(call, used, f"history:{len(used)}"))
                for call in message.tool_calls
            ],
            {},
        )
        calls = tuple(call for _, call in asked)
        whole.append(
            message
            if calls == message.tool_calls
            else replace(message, tool_calls=calls)
        )
    return [*whole, *_settled(asked, results)]


def _message(one: Any, position: int) -> Message:
    if isinstance(one, Message):
        return (
            one if one.text.isascii() else replace(one, text=whole_characters(one.text))
        )
    try:
        return read_message(whole_characters(one))
    except ValueError as error:
        raise ValueError(f"history[{position}] is no message: {error}") from error


def _settled(
    asked: list[tuple[str, ToolCall]], results: Mapping[str, ToolResult]
) -> list[Message]:
    """The results of one batch in one message, in the order of its calls; what is still open is answered."""
    why = "Not run: the conversation went on without it."
    answers = (
        results.get(call.id)
        or ToolResult(call.id, why, is_error=True, reason="not_run")
        for _, call in asked
    )
    return [Message("tool", tool_results=tuple(answers))] if asked else []
